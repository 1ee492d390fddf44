"""Search for the settings of a loss on the validation classes alone: the learning rate first, then the rest near it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vicinal._util.code import Trust
from vicinal.data import Split
from vicinal.errors import InputError, look_up
from vicinal.runs.draft import suited_recipe
from vicinal.runs.recipe import Recipe
from vicinal.training.state import Hook
from vicinal.tuning.ladder import FAR, NEAR, RUNGS, at_rate, ladder
from vicinal.tuning.samplers import SAMPLERS
from vicinal.tuning.spaces import Choice, Space, search_space, start_of
from vicinal.tuning.study import NoTrialEnded, TrialRuns, run_study
from vicinal.tuning.tuned import Attempt, Tuned, best_of

__all__ = ["tune"]

RATE = "learning_rate"


def tune(
    split: Split,
    recipe: Recipe | None = None,
    *,
    trials: int,
    sampler: str = "tpe",
    score: str | None = None,
    storage: str | Path | None = None,
    seed: int = 0,
    space: Space | None = None,
    fix: Collection[str] = (),
    rates: int = RUNGS,
    start_curve: Mapping[int, float] | None = None,
    prune: bool = True,
    progress: bool = True,
    cache: Path | None = None,
    watch: Callable[[int, int], Hook] | None = None,
    allow_code: Sequence[str] = (),
    **changes: Any,
) -> Tuned:
    """Search for the settings of a recipe that score best on the validation classes of a split.

    The test classes are taken away first: nothing that happens here can see them. The first trial is the recipe as it
    is, and all trials are trained with its seed, so they differ in the settings alone.

    Args:
        split: Classes to train on and to score by.
        recipe: What is not varied, and where the search starts; by default one that suits the data.
        trials: How many settings to try, those of earlier calls with the same storage included.
        sampler: "tpe" (tree-structured Parzen estimators), "gp" (a Gaussian process), "random", or "grid": one setting
            after the other goes through its levels and keeps the best.
        score: The validation score to raise: "MAP@R", "P@R" or "P@1"; by default the one that the recipe chooses by.
        storage: Where trials are kept: a path for an SQLite file, or the address of a database. The same call goes on
            where it stopped, and several processes or machines may work on it together. None keeps them in memory.
        seed: Of the search.
        space: What to vary, by default `search_space(recipe)` with the composition of batches.
        fix: Names in it that are left as they are, after all.
        rates: How many of the trials are learning rates, half an order of magnitude apart around the recipe's, which
            are tried before anything else; the rest is searched near the best of them, as a comparison does. 1 searches
            the rate with the rest, and so does a `space` of one's own.
        start_curve: Steps and validation scores of the recipe as it is, where they are known: its trial is not run.
        prune: Whether to give up trials whose score stays below the median of the others at the same step.
        progress: Whether to show progress.
        cache: Where frozen features are kept, by default the user's cache folder.
        watch: From the number of finished trials and that of all to a hook that takes part in the next trial.
        allow_code: Modules or files whose code the recipe may name.
        **changes: Names of a recipe on top of it, as `fit` takes them: `loss=my_loss, steps=500`.

    Raises:
        InputError: Where the split has fewer than three validation classes, or every trial failed.
        DataError: Where the storage cannot be used.
        Interrupted: After Ctrl-C or SIGTERM; what is finished is in the storage.
    """
    view = split.without_test()
    del split
    if view.chooser is None:
        held = 0 if view.validation is None else len(view.validation.classes)
        raise InputError(
            f"Tuning needs at least three validation classes to choose by, and the split has {held or 'none'}: make it "
            "with protocol 'fixed-validation' (of six training classes or more) or with fewer folds."
        )
    if min(trials, rates) < 1:
        raise InputError(f"trials and rates must be at least 1; got {trials} and {rates}.")
    look_up("sampler", sampler, SAMPLERS)
    trust = Trust.of(allow_code) | Trust.typed(changes.values())
    if recipe is None:
        recipe = suited_recipe(view.train, changes, trust).recipe
    else:
        recipe = recipe.trusting(trust).changed(changes)
    recipe = recipe.changed(score=score or recipe.training.score)
    how = TrialRuns(storage, prune, progress, cache, watch)
    given, classes = space, len(view.train.classes)
    space = search_space(recipe, classes=classes, spread=FAR) if given is None else given
    for name in fix:
        look_up("setting that is searched", name, space)

    rungs, asked, left = list[Attempt](), recipe, trials
    multiplier_stays = "proxy_multiplier" in {*changes, *fix}
    if given is None and RATE not in fix and min(rates, trials) > 1:
        tried = ladder(recipe.training.learning_rate, min(rates, trials))
        rungs = _climbed(view, recipe, tried, how, seed, multiplier_stays)
        best = best_of(rungs)
        if best is not None:
            recipe = at_rate(recipe, best.values[RATE], multiplier_stays=multiplier_stays)
            space, start_curve = search_space(recipe, classes=classes, spread=NEAR), best.curve
        # The rung that won is the first trial of the search, and is not run again.
        left = trials - len(rungs) + (best is not None)
        if not left:
            raise NoTrialEnded(rungs)
    tuned = run_study(
        view,
        recipe,
        {name: entry for name, entry in space.items() if name not in fix},
        how,
        trials=left,
        sampler=sampler,
        seed=seed,
        start_curve=start_curve,
        before=trials - left,
    )
    return tuned.after(_with_all_settings(rungs, asked, tuned.space, multiplier_stays)) if rungs else tuned


def _climbed(
    view: Split, recipe: Recipe, rates: Sequence[float], how: TrialRuns, seed: int, multiplier_stays: bool
) -> list[Attempt]:
    """Return what came of each learning rate, that of the recipe first."""

    def made(values: Mapping[str, Any]) -> Recipe:
        return at_rate(recipe, values[RATE], multiplier_stays=multiplier_stays)

    space = {RATE: Choice(tuple(rates))}
    climb = partial(run_study, view, recipe, space, replace(how, prune=False), trials=len(rates), seed=seed)
    known_as = "ladder, multiplier stays" if multiplier_stays else "ladder"
    try:
        return list(climb(sampler="grid", made=made, made_how=known_as, title="learning rates").trials)
    except NoTrialEnded as error:
        return list(error.trials)


def _with_all_settings(rungs: Sequence[Attempt], recipe: Recipe, space: Space, multiplier_stays: bool) -> list[Attempt]:
    """Return rungs with the values of everything that was searched after them."""
    return [
        replace(rung, values=start_of(at_rate(recipe, rung.values[RATE], multiplier_stays=multiplier_stays), space))
        for rung in rungs
    ]
