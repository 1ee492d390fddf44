"""Search for the settings of a loss on validation classes only: first the learning rate, then the rest near it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from vicinal._util.code import Trust
from vicinal.data import Split
from vicinal.errors import InputError, look_up
from vicinal.runs.draft import suited_recipe
from vicinal.runs.recipe import Recipe
from vicinal.training.state import Hook
from vicinal.tuning.ladder import FAR, NEAR, RUNGS, Climbed, at_rate, climb, ladder
from vicinal.tuning.samplers import SAMPLERS
from vicinal.tuning.spaces import Choice, Space, search_space, start_of
from vicinal.tuning.study import Conversion, NoTrialEnded, TrialRuns, Trials, need_validation, run_study
from vicinal.tuning.tuned import Attempt, Tuned

__all__ = ["SearchOptions", "tune"]

RATE = "learning_rate"


@final
@dataclass(frozen=True)
class SearchOptions:
    """Options of a search that are rarely needed.

    Attributes:
        seed: Seed of the search.
        fix: Names of settings in the space that are not varied.
        rates: Number of trials that try learning rates first, half an order of magnitude apart around the recipe's. The
            rest is searched near the best rate, as in a comparison. With 1 or a custom `space`, the rate is searched
            together with the rest.
        prune: Whether to stop trials whose score stays below the median of the others at the same step.
        watch: Function from the number of finished trials and of all trials to a hook for the next trial.
    """

    seed: int = 0
    fix: Collection[str] = ()
    rates: int = RUNGS
    prune: bool = True
    watch: Callable[[int, int], Hook] | None = None


def tune(
    split: Split,
    recipe: Recipe | None = None,
    *,
    trials: int,
    sampler: str = "tpe",
    storage: str | Path | None = None,
    space: Space | None = None,
    options: SearchOptions | None = None,
    progress: bool = True,
    cache: Path | None = None,
    allow_code: Sequence[str] = (),
    **changes: Any,
) -> Tuned:
    """Search for the settings of a recipe that score best on the validation classes of a split.

    The test classes are removed first, so the search cannot see them. The first trial is the unchanged recipe, and all
    trials are trained with its seed, so they differ only in their settings.

    Args:
        split: Classes to train on and to score by.
        recipe: Recipe that the search starts from, with the fixed settings; by default one that suits the data.
        trials: Number of settings to try, including those of earlier calls with the same storage.
        sampler: "tpe" (tree-structured Parzen estimator), "gp" (Gaussian process), "random", or "grid": one setting
            after the other goes through its levels and keeps the best.
        storage: Storage of the trials: the path of an SQLite file, or the address of a database. The same call resumes
            where it stopped, and several processes or machines can share it. None keeps trials in memory.
        space: Settings to vary, by default `search_space(recipe)` with the composition of batches.
        options: Learning rates to try first, settings not to vary, seed of the search and pruning.
        progress: Whether to show progress.
        cache: Folder of frozen features, by default the user's cache folder.
        allow_code: Modules or files whose code the recipe may name.
        **changes: Settings that override the recipe, as in `fit`: `loss=my_loss, steps=500`; `score="P@1"` chooses the
            validation score to maximise.

    Raises:
        InputError: If the split has fewer than three validation classes, or every trial failed.
        DataError: If the storage cannot be used.
        Interrupted: After Ctrl-C or SIGTERM; finished trials are in the storage.
    """
    view = split.without_test()
    del split
    options = SearchOptions() if options is None else options
    need_validation(view)
    if min(trials, options.rates) < 1:
        raise InputError(f"trials and rates must be at least 1; got {trials} and {options.rates}.")
    look_up("sampler", sampler, SAMPLERS)
    trust = Trust.of(allow_code) | Trust.typed(changes.values())
    if recipe is None:
        recipe = suited_recipe(view.train, changes, trust).recipe
    else:
        recipe = recipe.trusting(trust).changed(changes)
    how = TrialRuns(storage, options.prune, progress, cache, options.watch)
    classes = len(view.train.classes)
    searched = search_space(recipe, classes=classes, spread=FAR) if space is None else space
    for name in options.fix:
        look_up("setting that is searched", name, searched)
    wanted = Trials(trials, sampler, options.seed)
    if space is not None or RATE in options.fix or min(options.rates, trials) == 1:
        return run_study([view], recipe, _without(searched, options.fix), wanted, how)

    multiplier_stays = "proxy_multiplier" in {*changes, *options.fix}
    rates = ladder(recipe.training.learning_rate, min(options.rates, trials))
    climbed, rungs = _climbed(view, recipe, how, rates, options.seed, multiplier_stays=multiplier_stays)
    curve, left = None, trials - len(rungs)
    if climbed.best is not None:
        searched = search_space(climbed.recipe, classes=classes, spread=NEAR)
        curve = next(rung.curve for rung in rungs if rung.values[RATE] == climbed.best)
        left += 1  # the winning rung is the first trial of the search and is not rerun
    if not left:
        raise NoTrialEnded(rungs)
    rest = replace(wanted, count=left, before=trials - left)
    tuned = run_study([view], climbed.recipe, _without(searched, options.fix), rest, how, start_curve=curve)
    return tuned.after(_with_all_settings(rungs, recipe, tuned.space, multiplier_stays))


def _without(space: Space, names: Collection[str]) -> Space:
    return {name: entry for name, entry in space.items() if name not in names}


def _climbed(
    view: Split, recipe: Recipe, how: TrialRuns, rates: Sequence[float], seed: int, *, multiplier_stays: bool
) -> tuple[Climbed, list[Attempt]]:
    """Return the result of a ladder of learning rates, and its trials, the recipe's own rate first."""
    attempts: list[Attempt] = []

    def run(rungs: Mapping[float, Recipe]) -> dict[float, float | None]:
        space: Space = {RATE: Choice(tuple(rungs))}
        conversion = Conversion(
            lambda values: rungs[values[RATE]], "ladder, multiplier stays" if multiplier_stays else "ladder"
        )
        grid = Trials(len(rungs), "grid", seed, title="learning rates")
        try:
            attempts.extend(
                run_study([view], recipe, space, grid, replace(how, prune=False), conversion=conversion).trials
            )
        except NoTrialEnded as error:
            attempts.extend(error.trials)
        complete = {trial.values[RATE]: trial.score for trial in attempts if trial.state == "complete"}
        return {trial.values[RATE]: complete.get(trial.values[RATE]) for trial in attempts}

    return climb(recipe, rates, run, multiplier_stays=multiplier_stays), attempts


def _with_all_settings(rungs: Sequence[Attempt], recipe: Recipe, space: Space, multiplier_stays: bool) -> list[Attempt]:
    """Return rungs with the values of all settings that were searched after them."""
    return [
        replace(rung, values=start_of(at_rate(recipe, rung.values[RATE], multiplier_stays=multiplier_stays), space))
        for rung in rungs
    ]
