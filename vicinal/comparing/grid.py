"""The runs of a comparison: the ladder of learning rates, the search for settings, and the runs themselves."""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, final

from rich.console import Console

from vicinal._util.files import write_atomically
from vicinal.comparing.contestants import Contestant, demands_after_search
from vicinal.comparing.executor import Ended, Processes, run_here
from vicinal.comparing.progress import Shown
from vicinal.data import Dataset
from vicinal.errors import DataError, Interrupted
from vicinal.runs import Journal, Record, RunFiles
from vicinal.runs._train import Bookkeeping, train
from vicinal.runs.draft import images_per_step
from vicinal.runs.journal import OpenJournal
from vicinal.runs.record import search_name
from vicinal.training.log import TIME_USED
from vicinal.training.processes import import_fabric
from vicinal.training.state import Hook, TrainingState
from vicinal.tuning import Tuned, search_space
from vicinal.tuning.ladder import FAR, NEAR, at_rate, climb, ladder
from vicinal.tuning.study import TrialRuns, Trials, need_validation, run_study

__all__ = [
    "Execution",
    "RunContestant",
    "TrialLog",
    "TuneContestant",
    "chosen_rates",
    "climb_rates",
    "get_ready",
    "run_grid",
    "rungs_of",
    "say",
    "search_settings",
]


# How far a trial of a search is, for who waits for the search.

EVERY = 1.0  # seconds between two lines at least


@final
class TrialLog(Hook):
    """Writes lines as the log of a run has them, and which trial of how many it is.

    Args:
        path: Of the file; what a former trial wrote there is gone.
        finished: Trials before this one.
        trials: Of the whole search.
    """

    def __init__(self, path: Path, finished: int, trials: int) -> None:
        self._path = path
        self._trial = {"trial": finished + 1, "trials": trials}
        self._written, self._images = time.monotonic(), 0
        with suppress(OSError):  # nobody should lose a search over the news of it
            path.write_text(json.dumps(self._trial) + "\n")

    def before_step(self, state: TrainingState) -> None:
        """Say how far the trial is, unless that was said just now."""
        now = time.monotonic()
        if now - self._written >= EVERY:
            rate = (state.images - self._images) / (now - self._written)
            self._write({"step": state.step, "loss": state.loss, "images_per_second": rate}, state)
            self._written, self._images = now, state.images

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> None:
        """Say the new score."""
        self._write({"step": state.step, "score": scores[state.settings.score]}, state)

    def _write(self, values: Mapping[str, int | float], state: TrainingState) -> None:
        used = state.time_used
        line = {**self._trial, **values, **({} if used is None else {TIME_USED: used})}
        with suppress(OSError), self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


# What a worker of a comparison does with a contestant; carries the data, and is sent to each process once.


@final
@dataclass(frozen=True, kw_only=True)
class RunContestant:
    """Trains and scores; what fails becomes a record that says why. Which code may run is known by the recipe it gets.

    Attributes:
        data: The whole dataset.
        data_hash: Of its content.
        out: Folder of the comparison.
        cache: Where frozen features are kept.
        workers: Processes that decode images, for each run.
        keep_models: Whether trained embedders stay in the runs' folders.
        command: What repeats the comparison.
        notes: What a reader of any of its scores has to know.
        same_batches: Whether batches are composed alike for all losses.
    """

    data: Dataset
    data_hash: str
    out: Path
    cache: Path | None = None
    workers: int = 0
    keep_models: bool = True
    command: str = ""
    notes: tuple[str, ...] = ()
    same_batches: bool = False

    def get_ready(self) -> None:
        """Import what the first run in a process of its own needs."""
        import_fabric()

    def key(self, contestant: Contestant) -> str:
        """Return what the run of a contestant is called in the journal."""
        return contestant.recipe.key(self.data_hash, contestant.name)

    def log_of(self, contestant: Contestant) -> Path:
        """Return the file in which the run of a contestant says how far it is."""
        return RunFiles(Journal(self.out).run_folder(self.key(contestant))).log

    def __call__(self, contestant: Contestant) -> Record:
        """Run one contestant; a run that was interrupted goes on from its last checkpoint.

        A rung is trained and not tested. Its checkpoint stays: the run that it may become goes on from there.
        """
        files = RunFiles(Journal(self.out).run_folder(self.key(contestant)))
        try:
            run = train(
                contestant.recipe,
                data=self.data,
                folder=files.folder,
                resume=True,
                workers=self.workers,
                cache=self.cache,
                progress=False,
                bookkeeping=Bookkeeping(self.keep_models, contestant.role != "rung", facts=self.facts(contestant)),
            )
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the others go on
            return self.failed(contestant, error)
        if contestant.role != "rung":
            self.forget(run.record.key)
        return run.record

    def forget(self, key: str) -> None:
        """Delete the checkpoints of a run, which only an unfinished one needs."""
        files = RunFiles(Journal(self.out).run_folder(key))
        for checkpoint in (files.last, files.best, files.former_best):
            checkpoint.unlink(missing_ok=True)

    def failed(self, contestant: Contestant, error: BaseException | str) -> Record:
        """Return the record of a run that failed, and leave the traceback in its folder."""
        text = error if isinstance(error, str) else str(error) or type(error).__name__
        if not isinstance(error, str):
            files = RunFiles(Journal(self.out).run_folder(self.key(contestant)))
            with suppress(OSError, DataError):  # the disk may be what failed
                files.folder.mkdir(parents=True, exist_ok=True)
                write_atomically(files.error, "".join(traceback.format_exception(error)))
                text += f" The traceback is in {files.folder.name}/{files.error.name}."
        recipe = contestant.recipe
        return Record(
            **self.facts(contestant),
            status="failed",
            error=text,
            recipe=recipe.model_dump(mode="json"),
            selected_on="test" if recipe.select_on_test else "last" if recipe.protocol == "default" else "validation",
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def again(self, contestant: Contestant, record: Record) -> Record:
        """Return the record of a rung that failed as that of a run."""
        # What was noted of its training stays: that the budget was next to nothing, say.
        notes = tuple(dict.fromkeys([*self.notes, *record.notes]))
        return record.model_copy(update={**self.facts(contestant), "notes": notes})

    def facts(self, contestant: Contestant) -> dict[str, Any]:
        """Return what is known of a contestant's record before it runs."""
        return {
            "key": self.key(contestant),
            "name": contestant.name,
            "data": self.data_hash,
            "role": contestant.role,
            "same_batches": self.same_batches,
            "demands": contestant.demands,
            "tuning_trials": contestant.tuning_trials,
            "tuning_images": contestant.tuning_images,
            "rates": contestant.rates,
            "command": self.command,
            "notes": self.notes,
        }


@final
@dataclass(frozen=True, kw_only=True)
class TuneContestant:
    """Searches for the settings of a contestant, on the validation classes of its split.

    Attributes:
        data: The whole dataset.
        out: Folder of the comparison; searches are kept in `tuning/` and go on from there.
        trials: Of each contestant, the learning rates that it has tried among them.
        sampler: Which sampler chooses.
        cache: Where frozen features are kept.
    """

    data: Dataset
    out: Path
    trials: int
    sampler: str
    cache: Path | None = None

    def log_of(self, contestant: Contestant) -> Path:
        """Return the file in which the search of a contestant says how far it is."""
        name = search_name(contestant.name, contestant.recipe.backbone, contestant.recipe.dim)
        return self.out / "tuning" / f"{name}.progress.jsonl"

    def __call__(self, contestant: Contestant) -> Tuned | str:
        """Return what was found, or why nothing was."""
        recipe = contestant.recipe
        split = recipe.split(self.data).without_test()
        log, name = self.log_of(contestant), search_name(contestant.name, recipe.backbone, recipe.dim)
        folder = log.parent
        folder.mkdir(parents=True, exist_ok=True)
        try:
            need_validation(split)
            trials, spread = self.trials - contestant.tuning_trials, FAR
            if contestant.curve:  # the rung that won is the first trial of the search, and is not run again
                trials, spread = trials + 1, NEAR
            tuned = run_study(
                split,
                recipe,
                search_space(recipe, classes=len(split.train.classes), spread=spread),
                Trials(trials, self.sampler),
                TrialRuns(folder / f"{name}.db", progress=False, cache=self.cache, watch=partial(TrialLog, log)),
                start_curve=contestant.curve,
            )
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the others go on
            return str(error)
        finally:
            log.unlink(missing_ok=True)
        write_atomically(folder / f"{name}.txt", f"{tuned}\n")
        write_atomically(folder / f"{name}.toml", tuned.to_toml())
        network = {"backbone": recipe.backbone, "dim": recipe.dim}
        tuned.summary(contestant.name).model_copy(update=network).write(self.out)
        return tuned


# A ladder of learning rates for each loss: what suits one ruins another, so each climbs it before it is compared.


def rungs_of(grid: Sequence[Contestant], rungs: int) -> list[Contestant]:
    """Return what has to be tried: with each network, every loss at every rate, on the first seed and fold."""
    return [
        replace(first, recipe=at_rate(first.recipe, rate, multiplier_stays=_multiplier_stays(first)), role="rung")
        for first in first_of_each(grid)
        for rate in ladder(first.recipe.training.learning_rate, rungs)
    ]


def chosen_rates(grid: Sequence[Contestant], tried: Sequence[tuple[Contestant, Record]]) -> list[Contestant]:
    """Return the runs of a comparison at the rates whose rungs scored best on the validation classes.

    A loss none of whose rungs came to an end keeps its rate, at which it will say what is wrong; its rungs count as
    trials all the same.

    Args:
        grid: All runs.
        tried: The rungs, and what came of them.
    """
    ended: dict[object, list[Record]] = {}
    for contestant, record in tried:
        ended.setdefault(searched_apart(contestant), []).append(record)
    return [_at_best_rate(contestant, ended.get(searched_apart(contestant), [])) for contestant in grid]


def _at_best_rate(contestant: Contestant, records: Sequence[Record]) -> Contestant:
    of_rate = {float(record.recipe["training"]["learning_rate"]): record for record in records}
    climbed = climb(
        contestant.recipe,
        list(of_rate),
        lambda rungs: {rate: of_rate[rate].validation.get(of_rate[rate].score) for rate in rungs},
        multiplier_stays=_multiplier_stays(contestant),
    )
    winner = None if climbed.best is None else of_rate[climbed.best]
    return replace(
        contestant,
        recipe=climbed.recipe,
        curve={} if winner is None else _by_step(winner),
        tuning_trials=len(records),
        tuning_images=sum(record.images for record in records if record is not winner),
        rates=climbed.scores,
    )


def _by_step(record: Record) -> dict[int, float]:
    return {images * record.steps // record.images: score for images, score in record.curve}


def _multiplier_stays(contestant: Contestant) -> bool:
    """Whether somebody said by how much the rate of proxies is higher than that of the network."""
    return "proxy_multiplier" in contestant.chosen


def first_of_each(grid: Sequence[Contestant]) -> list[Contestant]:
    """Return, of all that is searched apart, the contestant of the first seed and fold."""
    found: dict[object, Contestant] = {}
    for contestant in grid:
        found.setdefault(searched_apart(contestant), contestant)
    return list(found.values())


def searched_apart(contestant: Contestant) -> tuple[str, str, int | None]:
    """What has a ladder and a search of its own: a loss with a network, since rates and settings depend on both."""
    return contestant.name, contestant.recipe.backbone, contestant.recipe.dim


Result = TypeVar("Result")


@final
@dataclass(frozen=True)
class Execution:
    """How runs are carried out, which their results do not depend on.

    Attributes:
        jobs: Runs at a time.
        threads: Of each.
        ray: Address of a Ray cluster; None for this machine.
        retry_failed: Run again what failed before.
        progress: Whether to show progress.
        processes: That do several at a time here; None does them in this one.
    """

    jobs: int
    threads: int
    ray: str | None
    retry_failed: bool
    progress: bool
    processes: Processes | None = None


def get_ready(first: Sequence[Contestant], run: RunContestant, how: Execution, journal: OpenJournal) -> None:
    """Start the processes that the first runs will need, unless the journal has those runs."""
    existing = {record.key for record in journal.records}
    lacking = [contestant for contestant in first if run.key(contestant) not in existing]
    if how.processes is not None and lacking:
        how.processes.start(run, len(lacking))


def climb_rates(
    grid: Sequence[Contestant],
    rungs: Sequence[Contestant],
    run: RunContestant,
    how: Execution,
    journal: OpenJournal,
) -> list[Contestant]:
    """Try learning rates, and return the runs at the best of them.

    Args:
        grid: All runs.
        rungs: Each loss at each rate, as `rungs_of` returns them.
        run: Runs one.
        how: How they are carried out.
        journal: Journal of the comparison.
    """
    best: dict[object, float] = {}

    def forget_if_beaten(rung: Contestant, record: Record) -> None:
        """Keep the checkpoints of what may yet be chosen alone: those of all rungs of large networks fill a disk."""
        score, apart = record.validation.get(record.score, -math.inf), searched_apart(rung)
        if score < best.setdefault(apart, score):
            run.forget(record.key)
        best[apart] = max(score, best[apart])

    tried = run_grid("learning rates", rungs, run, how, journal, ended=forget_if_beaten)
    chosen = chosen_rates(grid, [(rung, tried[run.key(rung)]) for rung in rungs])
    kept = {run.key(contestant) for contestant in chosen}
    for rung in rungs:
        if run.key(rung) not in kept:
            run.forget(run.key(rung))
    return chosen


def search_settings(
    grid: Sequence[Contestant], search: TuneContestant, how: Execution
) -> tuple[list[Contestant], list[tuple[Contestant, str]]]:
    """Search for each loss's settings once with each network; return the runs with them, and those whose search failed.

    Rates that were tried count: a loss that has had all of its trials is left as it is.
    """
    wanting = [contestant for contestant in first_of_each(grid) if contestant.tuning_trials < search.trials]
    outcomes: dict[object, Tuned | str] = {}
    with Shown("tuning", len(wanting), how.progress, log_of=search.log_of) as shown:
        for ended in _ended(wanting, search, shown.started, how):
            outcomes[searched_apart(ended.task)] = ended.result if ended.result is not None else ended.error
            shown.ended(ended.task)
    ready, broken = list[Contestant](), list[tuple[Contestant, str]]()
    for contestant in grid:
        found, own = outcomes.get(searched_apart(contestant)), contestant.recipe
        if found is None:
            ready.append(contestant)
            continue
        if isinstance(found, str):
            broken.append((contestant, f"The search for its settings failed: {found}"))
            continue
        best = found.recipe
        recipe = best.changed(seed=own.training.seed, fold=own.fold, backbone=own.backbone, dim=own.dim)
        spent = contestant.tuning_images + found.steps * images_per_step(own)
        trials = search.trials
        demands = demands_after_search(contestant, best)
        ready.append(replace(contestant, recipe=recipe, demands=demands, tuning_trials=trials, tuning_images=spent))
    return ready, broken


def run_grid(
    what: str,
    grid: Sequence[Contestant],
    run: RunContestant,
    how: Execution,
    journal: OpenJournal,
    *,
    ended: Callable[[Contestant, Record], None] = lambda contestant, record: None,
) -> dict[str, Record]:
    """Run what the journal lacks, and return all records by their keys.

    Rungs whose learning rates were chosen are trained already, and only tested.

    Args:
        what: What they are called.
        grid: All that there have to be.
        run: Runs one.
        how: How they are carried out.
        journal: Journal of the comparison.
        ended: Told of each that ends.
    """
    known = {record.key: record for record in journal.records if record.status == "done" or not how.retry_failed}
    for contestant in grid:
        key = run.key(contestant)
        if contestant.role == "run" and key in known and known[key].role == "rung":
            if known[key].status == "failed":
                known[key] = run.again(contestant, known[key])
                journal.append(known[key])
            else:
                del known[key]
    missing = [contestant for contestant in grid if run.key(contestant) not in known]
    with Shown(what, len(grid), how.progress, completed=len(grid) - len(missing), log_of=run.log_of) as shown:
        for outcome in _ended(missing, run, shown.started, how):
            record = outcome.result or run.failed(outcome.task, outcome.error)
            journal.append(record)
            known[record.key] = record
            ended(outcome.task, record)
            shown.ended(outcome.task, record)
    return known


def say(*lines: str) -> None:
    """Show lines where progress is shown."""
    for line in lines:
        Console(stderr=True).print(line, highlight=False, markup=False)


def _ended(
    contestants: Sequence[Contestant],
    work: Callable[[Contestant], Result],
    started: Callable[[Contestant], None],
    how: Execution,
) -> Iterator[Ended[Contestant, Result]]:
    """Do the work on each contestant, here, in other processes or on a cluster, and yield what ends."""
    if how.ray is not None:
        from vicinal.comparing.executor import run_on_ray

        return run_on_ray(contestants, work, started, address=how.ray, threads=how.threads)
    if how.processes is None:
        return run_here(contestants, work, started)
    return how.processes.run(contestants, work, started)
