"""Search for the settings of a loss, on the validation classes alone."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.pruners import MedianPruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from vicinal.data import Split
from vicinal.defaults import suited_recipe
from vicinal.errors import InputError, Interrupted, look_up
from vicinal.fitting import fit
from vicinal.live_bar import LiveBar
from vicinal.masking import masked
from vicinal.named_code import allow_code as allow
from vicinal.named_code import short_name, told
from vicinal.recipe import Recipe
from vicinal.training.hooks import Hook
from vicinal.tuning.claims import ERROR, LostTrials, claim, running, signs_of_life, unclaimed
from vicinal.tuning.in_turn import SAMPLERS, InTurn, places
from vicinal.tuning.ranges import Space
from vicinal.tuning.search_spaces import search_space, start_of
from vicinal.tuning.storage import explained, open_storage
from vicinal.tuning.tuned import Attempt, State, Tuned

__all__ = ["tune"]

POLL = 0.5  # seconds between two looks at what other workers do
FEWEST = 5  # complete trials before anything is called hopeless, or important
STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class _Failed(Exception):
    """A trial failed, and its error is recorded."""


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
    if trials < 1:
        raise InputError(f"trials must be at least 1; got {trials}.")
    look_up("sampler", sampler, SAMPLERS)
    allow(*allow_code)
    told(*changes.values())
    recipe = suited_recipe(view.train, changes).recipe if recipe is None else recipe.changed(changes)
    recipe = recipe.changed(score=score or recipe.training.score)
    space = search_space(recipe, classes=len(view.train.classes)) if space is None else space
    for name in fix:
        look_up("setting that is searched", name, space)
    space = {name: entry for name, entry in space.items() if name not in fix}
    start = start_of(recipe, space)
    space = {name: entry.including(start[name]) for name, entry in space.items()}
    chooser = InTurn(sampler, space, start, seed=seed, trials=trials)
    limit = trials if chooser.places is None else chooser.places

    name = _name(view, recipe, space, sampler, seed, trials)
    steps = recipe.training.steps  # without a number of them there is no telling when trials can be compared
    pruner = MedianPruner(FEWEST, steps // 3) if prune and steps is not None else NopPruner()
    attempt = _attempt(view, recipe, space, cache, None if watch is None else partial(_watched, watch, limit))
    with _quiet(), explained(storage), _bar(limit, progress) as show:
        study = optuna.create_study(
            storage=open_storage(storage),
            study_name=name,
            direction="maximize",
            sampler=chooser,
            pruner=pruner,
            load_if_exists=True,
        )
        study.set_user_attr("recipe", recipe.toml())
        if start_curve and not study.get_trials(deepcopy=False):
            study.add_trial(_known(start, space, start_curve))
        try:
            _search(study, attempt, limit, show)
        except (Interrupted, KeyboardInterrupt):
            kept = f"are kept in {masked(storage)}: start the same search to go on" if storage else "are lost"
            raise Interrupted(f"The search was stopped. Its finished trials {kept}.") from None
        return _tuned(study, recipe, space, sampler, limit)


def _search(study: Study, attempt: Callable[[optuna.Trial], float], limit: int, show: Callable[[Study], None]) -> None:
    """Run what no worker has run or is running, and wait for the others: one of them may not come to its end."""
    lost = LostTrials()
    while True:
        lost.give_up(study)
        show(study)
        place = unclaimed(study, limit)
        if place is None:
            if not running(study, limit):
                return
            time.sleep(POLL)
            continue
        with claim(study, place) as trial, signs_of_life(trial):
            try:
                study.tell(trial, attempt(trial), skip_if_finished=True)
            except optuna.TrialPruned:
                study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
            except _Failed:
                study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


def _watched(watch: Callable[[int, int], Hook], limit: int, trial: optuna.Trial) -> Hook:
    return watch(len(_finished(trial.study, limit)), limit)


def _attempt(
    view: Split, recipe: Recipe, space: Space, cache: Path | None, watch: Callable[[optuna.Trial], Hook] | None
) -> Callable[[optuna.Trial], float]:
    """Return the function of a trial that is maximised; all it knows of the data is a split without test classes."""
    score = recipe.training.score

    def attempt(trial: optuna.Trial) -> float:
        values = {name: entry.suggest(trial, name) for name, entry in space.items()}
        scores: list[float] = []

        def note(step: int, found: dict[str, float]) -> None:
            scores.append(found[score])
            trial.report(found[score], step)
            if step != recipe.training.steps and trial.should_prune():
                raise optuna.TrialPruned

        try:
            hooks = [] if watch is None else [watch(trial)]
            fit(view, recipe.changed(values), progress=False, cache=cache, on_score=note, hooks=hooks)
        except (optuna.TrialPruned, StorageInternalError, Interrupted):
            raise
        except Exception as error:
            trial.set_user_attr(ERROR, f"{type(error).__name__}: {error}")
            raise _Failed from error
        return max(scores)

    return attempt


def _known(start: Mapping[str, Any], space: Space, curve: Mapping[int, float]) -> FrozenTrial:
    """Return the first trial as it would have ended."""
    return optuna.trial.create_trial(
        params=dict(start),
        distributions={name: entry.distribution() for name, entry in space.items()},
        value=max(curve.values()),
        intermediate_values=dict(curve),
    )


def _name(view: Split, recipe: Recipe, space: Space, sampler: str, seed: int, trials: int) -> str:
    """Name a search by all that defines it, so that different ones never mix in a storage."""
    # A grid is made to fit the number of trials; the others can go on.
    parts = [view.hash(), recipe.toml(), repr(space), sampler, seed, trials if sampler == "grid" else None]
    parts += [recipe.code()] if recipe.code() else []
    return f"{short_name(recipe.loss)}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]}"


def _finished(study: Study, limit: int) -> dict[int, FrozenTrial]:
    """Return the last word on every place in the search."""
    trials = study.get_trials(deepcopy=False)
    latest = dict(zip(places(trials), trials, strict=True))
    return {place: latest[place] for place in sorted(latest) if place < limit and latest[place].state in STATES}


def _tuned(study: Study, recipe: Recipe, space: Space, sampler: str, limit: int) -> Tuned:
    trials = tuple(_attempted(place, trial) for place, trial in _finished(study, limit).items())
    complete = [trial for trial in trials if trial.state == "complete"]
    if not complete:
        first = next((trial.error for trial in trials if trial.error), "they are still running elsewhere")
        raise InputError(f"None of {len(trials)} trials came to an end. The first one: {first}")
    best = max(complete, key=lambda trial: trial.score or 0.0)
    return Tuned(
        recipe=recipe.changed(best.values),
        value=best.score or 0.0,
        score=recipe.training.score,
        trials=trials,
        best=best,
        space=space,
        sampler=sampler,
        importance=_importance(study) if len(complete) >= FEWEST else {},
        study_name=study.study_name,
    )


def _attempted(place: int, trial: FrozenTrial) -> Attempt:
    scores = trial.intermediate_values
    return Attempt(
        place=place,
        state=STATES[trial.state],
        values=dict(trial.params),
        score=max(scores.values(), default=None),
        curve=dict(scores),
        seconds=trial.duration.total_seconds() if trial.duration else 0.0,
        error=trial.user_attrs.get(ERROR),
    )


def _importance(study: Study) -> Mapping[str, float]:
    return optuna.importance.get_param_importances(study)


@contextmanager
def _bar(limit: int, progress: bool) -> Iterator[Callable[[Study], None]]:
    """Show how many trials are finished and the best score so far."""
    columns: list[Any] = [TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[best]}"), TimeRemainingColumn()]
    with LiveBar(*columns, shown=progress) as bar:
        task = bar.add_task("trials", total=limit, best="")

        def show(study: Study) -> None:
            finished = _finished(study, limit).values()
            best = max((trial.value or 0.0 for trial in finished if trial.state == TrialState.COMPLETE), default=None)
            bar.update(task, completed=len(finished), best="" if best is None else f"best {best:.4f}")

        yield show


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from narrating."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
