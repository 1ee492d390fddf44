"""Samplers: what to try next, given what came of what was tried."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from vicinal.tuning.spaces import Space

__all__ = ["PLACE", "SAMPLERS", "InTurn", "grid_plan", "places"]

PLACE = "place"
RANDOM_FIRST = 6  # how many trials the models of TPE and GP start from

SAMPLERS: dict[str, Callable[[int], BaseSampler] | None] = {
    "tpe": lambda seed: TPESampler(seed=seed, n_startup_trials=RANDOM_FIRST),
    "gp": lambda seed: GPSampler(seed=seed, n_startup_trials=RANDOM_FIRST),
    "random": lambda seed: RandomSampler(seed=seed),
    "grid": None,  # the coordinate grid below
}


@final
class InTurn(BaseSampler):
    """Draws for each place in the search from its own seed, so that a search that was killed goes on as it would have.

    The place of a trial is its number, but a trial that is run again keeps its place. Place 0 is the recipe as it is.

    Args:
        name: One of `SAMPLERS`.
        space: What is varied.
        start: The values of the recipe.
        seed: Of the search.
        trials: How many there will be; a grid is made to fit.
    """

    def __init__(self, name: str, space: Space, start: Mapping[str, Any], *, seed: int, trials: int) -> None:
        self._make = SAMPLERS[name]
        self._space = {key: entry.distribution() for key, entry in space.items()}
        self._start = dict(start)
        self._seed = seed
        self._plan = grid_plan(space, start, trials) if self._make is None else None

    @property
    def places(self) -> int | None:
        """How many places there are; None for as many as you like."""
        return None if self._plan is None else 1 + len(self._plan)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the whole space: what is searched never depends on what was found."""
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of all settings for a trial."""
        place = places(study.get_trials(deepcopy=False))[trial.number]
        if place == 0:
            return self._start
        if self._plan is not None:
            return self._on_the_grid(study, place)
        assert self._make is not None
        digest = hashlib.sha256(f"{self._seed} {place}".encode()).digest()
        sampler = self._make(int.from_bytes(digest[:4], "big"))
        found = sampler.sample_relative(study, trial, search_space)
        return {
            name: found[name] if name in found else sampler.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never needed: every setting is drawn with the others."""
        raise NotImplementedError(param_name)

    def _on_the_grid(self, study: Study, place: int) -> dict[str, Any]:
        assert self._plan is not None
        first, name, level = self._plan[place - 1]
        trials = study.get_trials(deepcopy=False)
        done = [
            trial
            for trial, earlier in zip(trials, places(trials), strict=True)
            if trial.state == TrialState.COMPLETE and earlier < first
        ]
        best = max(done, key=lambda trial: trial.value or 0.0, default=None)
        return {**(self._start if best is None else best.params), name: level}


def grid_plan(space: Space, start: Mapping[str, Any], trials: int) -> list[tuple[int, str, Any]]:
    """Plan a coordinate grid: one setting after the other goes through its levels, the best one is kept.

    It costs the sum of the numbers of levels where a full grid costs their product. Levels are left out evenly where
    there are more than the trials allow.

    Returns:
        For each place after the first: the first place of its setting, the setting, and its level.

    Example:
        >>> from vicinal.tuning.spaces import Choice, Range
        >>> grid_plan({"a": Range(0.0, 1.0, step=0.5), "b": Choice(("x", "y"))}, {"a": 0.5, "b": "x"}, trials=9)
        [(1, 'a', 0.0), (1, 'a', 1.0), (3, 'b', 'y')]
    """
    columns = {name: [level for level in entry.levels() if level != start[name]] for name, entry in space.items()}
    plan: list[tuple[int, str, Any]] = []
    for left, (name, levels) in zip(range(len(columns), 0, -1), columns.items(), strict=True):
        share = max(1, (trials - 1 - len(plan)) // left)
        first = 1 + len(plan)
        plan += [(first, name, level) for level in _thinned(levels, share)]
    return plan[: trials - 1]


def _thinned(levels: Sequence[Any], count: int) -> list[Any]:
    if len(levels) <= count:
        return list(levels)
    middles = (np.arange(count) + 0.5) * len(levels) / count
    return [levels[int(at)] for at in middles]


def places(trials: Sequence[FrozenTrial]) -> list[int]:
    """Return the place of each trial in the search: its number, not counting trials that ran others again."""
    found, again = [], 0
    for number, trial in enumerate(trials):
        found.append(int(trial.user_attrs.get(PLACE, number - again)))
        again += PLACE in trial.user_attrs
    return found
