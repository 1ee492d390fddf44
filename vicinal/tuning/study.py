"""A search in a storage: its trials, run one after another by one or several workers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import optuna
from optuna.exceptions import StorageInternalError
from optuna.pruners import MedianPruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from vicinal._util.code import short_name
from vicinal._util.progress import LiveBar
from vicinal._util.secrets import masked
from vicinal.data import Split
from vicinal.errors import InputError, Interrupted
from vicinal.runs._train import fit
from vicinal.runs.recipe import Recipe
from vicinal.training.state import Hook
from vicinal.tuning.samplers import InTurn, places
from vicinal.tuning.spaces import Space, start_of
from vicinal.tuning.storage import ERROR, LostTrials, claim, explained, open_storage, running, signs_of_life, unclaimed
from vicinal.tuning.tuned import Attempt, State, Tuned, best_of

__all__ = ["Conversion", "NoTrialEnded", "TrialRuns", "Trials", "need_validation", "run_study"]

POLL = 0.5  # seconds between two checks of other workers
FEWEST = 5  # complete trials needed for pruning and for importances
STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class NoTrialEnded(InputError):
    """Every trial of a search failed.

    Args:
        trials: All trials.
    """

    def __init__(self, trials: Sequence[Attempt]) -> None:
        self.trials = tuple(trials)
        first = next((trial.error for trial in trials if trial.error), "they are still running elsewhere")
        super().__init__(f"None of {len(trials)} trials finished. The first error: {first}")


class _Failed(Exception):
    """A trial failed, and its error is recorded."""


@final
@dataclass(frozen=True)
class TrialRuns:
    """Options of the execution of trials.

    Attributes:
        storage: Storage of the trials; None for memory.
        prune: Whether to stop trials whose score stays below the median of the others at the same step.
        progress: Whether to show progress.
        cache: Folder of cached frozen features.
        watch: Function from the number of finished trials and of all trials to a hook for the next trial.
    """

    storage: str | Path | None = None
    prune: bool = True
    progress: bool = True
    cache: Path | None = None
    watch: Callable[[int, int], Hook] | None = None


@final
@dataclass(frozen=True)
class Trials:
    """Number and choice of the settings that a search tries.

    Attributes:
        count: Number of trials.
        sampler: One of `SAMPLERS`.
        seed: Seed of the search.
        title: Name of the trials in the progress display.
        before: Number of earlier trials, which count towards the total.
    """

    count: int
    sampler: str = "tpe"
    seed: int = 0
    title: str = "trials"
    before: int = 0


@final
@dataclass(frozen=True)
class Conversion:
    """Conversion of values of a space to a recipe.

    Attributes:
        recipe: Function from values of the space to the recipe that is trained.
        name: Short name, which is part of the search's name in its storage.
    """

    recipe: Callable[[Mapping[str, Any]], Recipe]
    name: str = ""


def need_validation(view: Split) -> None:
    """Check that there are validation classes to choose settings by.

    Raises:
        InputError: If the split has fewer than three validation classes.
    """
    if view.usable_validation is None:
        held = 0 if view.validation is None else len(view.validation.classes)
        raise InputError(
            f"Tuning needs at least three validation classes to choose by, and the split has {held or 'none'}: make it "
            "with protocol 'fixed-validation' (of six training classes or more) or with fewer folds."
        )


def run_study(
    views: Sequence[Split],
    recipe: Recipe,
    space: Space,
    trials: Trials,
    how: TrialRuns,
    *,
    start_curve: Mapping[int, float] | None = None,
    conversion: Conversion | None = None,
) -> Tuned:
    """Try settings of a space on splits without test classes; see `tune`.

    Args:
        views: Classes to train on and to score by; scores of several folds are averaged.
        recipe: Recipe that the search starts from, with the settings that are not varied.
        space: Settings to vary.
        trials: Number and choice of the settings to try.
        how: Options of the execution of trials.
        start_curve: Validation scores of the unchanged recipe by step, if known.
        conversion: Function from values of the space to a recipe; by default the recipe with those values.
    """
    storage = how.storage
    conversion = Conversion(recipe.changed) if conversion is None else conversion
    start = start_of(recipe, space)
    space = {name: entry.including(start[name]) for name, entry in space.items()}
    chooser = InTurn(trials.sampler, space, start, seed=trials.seed, trials=trials.count)
    limit = trials.count if chooser.places is None else chooser.places
    name = _name(views, recipe, space, trials, conversion.name)
    steps = recipe.training.steps  # without a number of steps, trials cannot be compared midway
    pruner = MedianPruner(FEWEST, steps // 3) if how.prune and steps is not None else NopPruner()
    watch = None if how.watch is None else partial(_watched, how.watch, limit)
    attempt = _attempt(views, recipe, space, conversion.recipe, how.cache, watch, start_curve or {})
    with _quiet(), explained(storage), _bar(trials.title, trials.before, limit, how.progress) as show:
        study = optuna.create_study(
            storage=open_storage(storage),
            study_name=name,
            direction="maximize",
            sampler=chooser,
            pruner=pruner,
            load_if_exists=True,
        )
        study.set_user_attr("recipe", recipe.toml())
        try:
            _search(study, attempt, limit, show)
        except (Interrupted, KeyboardInterrupt):
            message = f"are saved in {masked(storage)}: start the same search to resume" if storage else "are lost"
            raise Interrupted(f"The search was stopped. Its finished trials {message}.") from None
        return _tuned(study, recipe, space, conversion.recipe, trials.sampler, limit)


def _search(study: Study, attempt: Callable[[optuna.Trial], float], limit: int, show: Callable[[Study], None]) -> None:
    """Run all free trials, then wait for other workers: one of their trials may get lost and become free."""
    lost = LostTrials()
    while True:
        lost.give_up(study)
        show(study)
        position = unclaimed(study, limit)
        if position is None:
            if not running(study, limit):
                return
            time.sleep(POLL)
            continue
        with claim(study, position) as trial, signs_of_life(trial):
            try:
                study.tell(trial, attempt(trial), skip_if_finished=True)
            except optuna.TrialPruned:
                study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
            except _Failed:
                study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


def _watched(watch: Callable[[int, int], Hook], limit: int, trial: optuna.Trial) -> Hook:
    return watch(len(_finished(trial.study, limit)), limit)


def _attempt(
    views: Sequence[Split],
    recipe: Recipe,
    space: Space,
    conversion: Callable[[Mapping[str, Any]], Recipe],
    cache: Path | None,
    watch: Callable[[optuna.Trial], Hook] | None,
    start_curve: Mapping[int, float],
) -> Callable[[optuna.Trial], float]:
    """Return the objective of a trial, to be maximised; it only sees a split without test classes."""
    score = recipe.training.score

    def attempt(trial: optuna.Trial) -> float:
        values = {name: entry.suggest(trial, name) for name, entry in space.items()}
        if start_curve and places(trial.study.get_trials(deepcopy=False))[trial.number] == 0:
            for step, start_score in start_curve.items():
                trial.report(start_score, step)
            return max(start_curve.values())
        curves: list[dict[int, float]] = []

        def note(step: int, scores: dict[str, float]) -> None:
            curves[-1][step] = scores[score]
            if len(views) > 1:
                return
            trial.report(scores[score], step)
            if step != recipe.training.steps and trial.should_prune():
                raise optuna.TrialPruned

        try:
            for view in views:
                curves.append({})
                hooks = [] if watch is None else [watch(trial)]
                fit(view, conversion(values), progress=False, cache=cache, on_score=note, hooks=hooks)
        except (optuna.TrialPruned, StorageInternalError, Interrupted):
            raise
        except Exception as error:
            trial.set_user_attr(ERROR, f"{type(error).__name__}: {error}")
            raise _Failed from error
        weights = [1 if view.validation is None else len(view.validation) for view in views]
        mean = {step: float(np.average([curve[step] for curve in curves], weights=weights)) for step in curves[0]}
        if len(views) > 1:
            for step, value in mean.items():
                trial.report(value, step)
        return max(mean.values())

    return attempt


def _name(views: Sequence[Split], recipe: Recipe, space: Space, trials: Trials, made_how: str) -> str:
    """Return a name from everything that defines a search, so that different searches never mix in a storage."""
    # A grid depends on the number of trials; other samplers can be continued with more.
    count = trials.count if trials.sampler == "grid" else None
    parts: list[Any] = [
        *(view.hash() for view in views),
        recipe.toml(),
        repr(space),
        trials.sampler,
        trials.seed,
        count,
    ]
    parts += [recipe.code()] if recipe.code() else []
    parts += [made_how] if made_how else []
    return f"{short_name(recipe.loss)}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]}"


def _finished(study: Study, limit: int) -> dict[int, FrozenTrial]:
    """Return the latest finished trial of every position in the search."""
    trials = study.get_trials(deepcopy=False)
    latest = dict(zip(places(trials), trials, strict=True))
    return {
        position: latest[position]
        for position in sorted(latest)
        if position < limit and latest[position].state in STATES
    }


def _tuned(
    study: Study,
    recipe: Recipe,
    space: Space,
    conversion: Callable[[Mapping[str, Any]], Recipe],
    sampler: str,
    limit: int,
) -> Tuned:
    trials = tuple(_attempted(position, trial) for position, trial in _finished(study, limit).items())
    best = best_of(trials)
    if best is None:
        raise NoTrialEnded(trials)
    complete = [trial for trial in trials if trial.state == "complete"]
    return Tuned(
        recipe=conversion(best.values),
        value=best.score or 0.0,
        score=recipe.training.score,
        trials=trials,
        best=best,
        space=space,
        sampler=sampler,
        importance=_importance(study) if len(complete) >= FEWEST else {},
        study_name=study.study_name,
    )


def _attempted(number: int, trial: FrozenTrial) -> Attempt:
    scores = trial.intermediate_values
    return Attempt(
        number=number,
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
def _bar(title: str, before: int, limit: int, progress: bool) -> Iterator[Callable[[Study], None]]:
    """Show the number of finished trials and the best score so far."""
    columns: list[Any] = [TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[best]}"), TimeRemainingColumn()]
    with LiveBar(*columns, shown=progress) as bar:
        task = bar.add_task(title, total=before + limit, best="")

        def show(study: Study) -> None:
            finished = _finished(study, limit).values()
            best = max((trial.value or 0.0 for trial in finished if trial.state == TrialState.COMPLETE), default=None)
            bar.update(task, completed=before + len(finished), best="" if best is None else f"best {best:.4f}")

        yield show


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log messages."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
