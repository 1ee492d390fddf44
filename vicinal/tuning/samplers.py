"""Samplers: choose the next settings from the results so far."""

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
RANDOM_FIRST = 6  # random trials before TPE and GP use their models

SAMPLERS: dict[str, Callable[[int], BaseSampler] | None] = {
    "tpe": lambda seed: TPESampler(seed=seed, n_startup_trials=RANDOM_FIRST),
    "gp": lambda seed: GPSampler(seed=seed, n_startup_trials=RANDOM_FIRST),
    "random": lambda seed: RandomSampler(seed=seed),
    "grid": None,  # the coordinate grid below
}


@final
class InTurn(BaseSampler):
    """Draws each position in the search from its own seed, so that a killed search continues as if uninterrupted.

    The position of a trial is its number, but a retried trial keeps its position. Position 0 is the unchanged recipe.

    Args:
        name: One of `SAMPLERS`.
        space: Settings to vary.
        start: Values of the recipe.
        seed: Seed of the search.
        trials: Number of trials; a grid is adapted to it.
    """

    def __init__(self, name: str, space: Space, start: Mapping[str, Any], *, seed: int, trials: int) -> None:
        self._make = SAMPLERS[name]
        self._space = {key: entry.distribution() for key, entry in space.items()}
        self._start = dict(start)
        self._seed = seed
        self._plan = grid_plan(space, start, trials) if self._make is None else None

    @property
    def places(self) -> int | None:
        """Number of positions; None if unlimited."""
        return None if self._plan is None else 1 + len(self._plan)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the whole space, which never depends on results."""
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of all settings for a trial."""
        position = places(study.get_trials(deepcopy=False))[trial.number]
        if position == 0:
            return self._start
        if self._plan is not None:
            return self._on_the_grid(study, position)
        assert self._make is not None
        digest = hashlib.sha256(f"{self._seed} {position}".encode()).digest()
        sampler = self._make(int.from_bytes(digest[:4], "big"))
        values = sampler.sample_relative(study, trial, search_space)
        return {
            name: values[name] if name in values else sampler.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never called: all settings are drawn together."""
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
    """Plan a coordinate grid: one setting after another goes through its levels, and the best level is kept.

    It costs the sum of the numbers of levels; a full grid costs their product. Levels are thinned out evenly if
    there are more than the trials allow.

    Returns:
        For each position after the first: the first position of its setting, the setting, and its level.

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
    return [levels[int(middle)] for middle in middles]


def places(trials: Sequence[FrozenTrial]) -> list[int]:
    """Return the position of each trial in the search: its number, not counting retries of other trials."""
    positions, again = [], 0
    for number, trial in enumerate(trials):
        positions.append(int(trial.user_attrs.get(PLACE, number - again)))
        again += PLACE in trial.user_attrs
    return positions
