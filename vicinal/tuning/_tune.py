"""Search for the settings of a loss on the validation classes alone: the learning rate first, then the rest near it."""

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
from vicinal.tuning.study import Made, NoTrialEnded, TrialRuns, Trials, need_validation, run_study
from vicinal.tuning.tuned import Attempt, Tuned

__all__ = ["SearchOptions", "tune"]

RATE = "learning_rate"


@final
@dataclass(frozen=True)
class SearchOptions:
    """What a search rarely has to be told.

    Attributes:
        seed: Seed of the search.
        fix: Names of settings in the space that are left as they are.
        rates: How many of the trials are learning rates, half an order of magnitude apart around the recipe's, which
            are tried before anything else; the rest is searched near the best of them, as a comparison does. 1 searches
            the rate with the rest, and so does a `space` of one's own.
        prune: Whether to give up trials whose score stays below the median of the others at the same step.
        watch: From the number of finished trials and that of all to a hook that takes part in the next trial.
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

    The test classes are taken away first: nothing that happens here can see them. The first trial is the recipe as it
    is, and all trials are trained with its seed, so they differ in the settings alone.

    Args:
        split: Classes to train on and to score by.
        recipe: What is not varied, and where the search starts; by default one that suits the data.
        trials: Number of settings to try, those of earlier calls with the same storage included.
        sampler: "tpe" (tree-structured Parzen estimators), "gp" (a Gaussian process), "random", or "grid": one setting
            after the other goes through its levels and keeps the best.
        storage: Where trials are kept: a path for an SQLite file, or the address of a database. The same call goes on
            where it stopped, and several processes or machines may work on it together. None keeps them in memory.
        space: Settings to vary, by default `search_space(recipe)` with the composition of batches.
        options: Learning rates to try first, settings to leave as they are, seed of the search and pruning.
        progress: Whether to show progress.
        cache: Folder of frozen features, by default the user's cache folder.
        allow_code: Modules or files whose code the recipe may name.
        **changes: Names of a recipe on top of it, as `fit` takes them: `loss=my_loss, steps=500`; `score="P@1"` says
            which validation score to raise.

    Raises:
        InputError: Where the split has fewer than three validation classes, or every trial failed.
        DataError: Where the storage cannot be used.
        Interrupted: After Ctrl-C or SIGTERM; what is finished is in the storage.
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
        return run_study(view, recipe, _without(searched, options.fix), wanted, how)

    multiplier_stays = "proxy_multiplier" in {*changes, *options.fix}
    rates = ladder(recipe.training.learning_rate, min(options.rates, trials))
    climbed, rungs = _climbed(view, recipe, how, rates, options.seed, multiplier_stays=multiplier_stays)
    curve, left = None, trials - len(rungs)
    if climbed.best is not None:
        searched = search_space(climbed.recipe, classes=classes, spread=NEAR)
        curve = next(rung.curve for rung in rungs if rung.values[RATE] == climbed.best)
        left += 1  # the rung that won is the first trial of the search, and is not run again
    if not left:
        raise NoTrialEnded(rungs)
    rest = replace(wanted, count=left, before=trials - left)
    tuned = run_study(view, climbed.recipe, _without(searched, options.fix), rest, how, start_curve=curve)
    return tuned.after(_with_all_settings(rungs, recipe, tuned.space, multiplier_stays))


def _without(space: Space, names: Collection[str]) -> Space:
    return {name: entry for name, entry in space.items() if name not in names}


def _climbed(
    view: Split, recipe: Recipe, how: TrialRuns, rates: Sequence[float], seed: int, *, multiplier_stays: bool
) -> tuple[Climbed, list[Attempt]]:
    """Return what a ladder of learning rates came to, and its trials, that of the recipe's own rate first."""
    attempts: list[Attempt] = []

    def run(rungs: Mapping[float, Recipe]) -> dict[float, float | None]:
        space: Space = {RATE: Choice(tuple(rungs))}
        made = Made(lambda values: rungs[values[RATE]], "ladder, multiplier stays" if multiplier_stays else "ladder")
        grid = Trials(len(rungs), "grid", seed, title="learning rates")
        try:
            attempts.extend(run_study(view, recipe, space, grid, replace(how, prune=False), made=made).trials)
        except NoTrialEnded as error:
            attempts.extend(error.trials)
        complete = {trial.values[RATE]: trial.score for trial in attempts if trial.state == "complete"}
        return {trial.values[RATE]: complete.get(trial.values[RATE]) for trial in attempts}

    return climb(recipe, rates, run, multiplier_stays=multiplier_stays), attempts


def _with_all_settings(rungs: Sequence[Attempt], recipe: Recipe, space: Space, multiplier_stays: bool) -> list[Attempt]:
    """Return rungs with the values of everything that was searched after them."""
    return [
        replace(rung, values=start_of(at_rate(recipe, rung.values[RATE], multiplier_stays=multiplier_stays), space))
        for rung in rungs
    ]
