"""Runs of a comparison: the ladder of learning rates, the search for settings, and the runs themselves."""

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
from vicinal.runs.recipe import Recipe
from vicinal.runs.record import search_name
from vicinal.runs.validation import choose_by_folds, gain_over_folds
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
    "check_searched",
    "chosen_rates",
    "climb_rates",
    "get_ready",
    "run_grid",
    "rungs_of",
    "say",
    "search_settings",
    "try_twice_the_budget",
]


# Progress file of a tuning trial.

EVERY = 1.0  # shortest time between two lines, in seconds


@final
class TrialLog(Hook):
    """Writes log lines like a run, with the number of the trial and of all trials.

    Args:
        path: Path of the file, which replaces that of the previous trial.
        finished: Number of trials before this one.
        trials: Number of trials of the whole search.
    """

    def __init__(self, path: Path, finished: int, trials: int) -> None:
        self._path = path
        self._trial = {"trial": finished + 1, "trials": trials}
        self._written, self._images = time.monotonic(), 0
        with suppress(OSError):  # a progress file must not stop a search
            path.write_text(json.dumps(self._trial) + "\n")

    def before_step(self, state: TrainingState) -> None:
        """Write the progress of the trial, at most once per `EVERY` seconds."""
        now = time.monotonic()
        if now - self._written >= EVERY:
            rate = (state.images - self._images) / (now - self._written)
            self._write({"step": state.step, "loss": state.loss, "images_per_second": rate}, state)
            self._written, self._images = now, state.images

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> None:
        """Write the new score."""
        self._write({"step": state.step, "score": scores[state.settings.score]}, state)

    def _write(self, values: Mapping[str, int | float], state: TrainingState) -> None:
        used = state.time_used
        line = {**self._trial, **values, **({} if used is None else {TIME_USED: used})}
        with suppress(OSError), self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


# Work of a comparison's processes; holds the data, and is sent to each process once.


@final
@dataclass(frozen=True, kw_only=True)
class RunContestant:
    """Trains and scores a contestant; a failure becomes a record with its reason. The recipe knows which code may run.

    Attributes:
        data: The whole dataset.
        data_hash: Hash of its content.
        out: Folder of the comparison.
        cache: Folder of cached frozen features.
        workers: Number of processes that decode images, for each run.
        keep_models: Whether to save trained embedders in the runs' folders.
        command: Command that repeats the comparison.
        notes: Notes that apply to all of its scores.
        same_batches: Whether all losses use the same composition of batches.
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
        """Import in advance what the first run in a new process needs."""
        import_fabric()

    def key(self, contestant: Contestant) -> str:
        """Return the journal key of a contestant's run."""
        return contestant.recipe.key(self.data_hash, contestant.name)

    def log_of(self, contestant: Contestant) -> Path:
        """Return the log file of a contestant's run."""
        return RunFiles(Journal(self.out).run_folder(self.key(contestant))).log

    def __call__(self, contestant: Contestant) -> Record:
        """Run one contestant; an interrupted run resumes from its last checkpoint.

        A rung is trained but not tested. Its checkpoint is kept: if it is chosen, its run continues from there.
        """
        files = RunFiles(Journal(self.out).run_folder(self.key(contestant)))
        recipe = contestant.recipe
        # A head is trained in less time than its checkpoints take to write.
        quick = contestant.role == "rung" and recipe.cross_validated and recipe.trains_head_only
        try:
            run = train(
                recipe,
                data=self.data,
                folder=None if quick else files.folder,
                resume=not quick,
                workers=self.workers,
                cache=self.cache,
                progress=False,
                bookkeeping=Bookkeeping(self.keep_models, contestant.role != "rung", facts=self.facts(contestant)),
            )
        except Interrupted:
            raise
        except Exception as error:  # the others continue in any case
            return self.failed(contestant, error)
        if contestant.role != "rung":
            self.forget(run.record.key)
        return run.record

    def forget(self, key: str) -> None:
        """Delete the checkpoints of a run, which only an unfinished run needs."""
        files = RunFiles(Journal(self.out).run_folder(key))
        for checkpoint in (files.last, files.best, files.former_best):
            checkpoint.unlink(missing_ok=True)

    def failed(self, contestant: Contestant, error: BaseException | str) -> Record:
        """Return the record of a failed run, and write the traceback to its folder."""
        text = error if isinstance(error, str) else str(error) or type(error).__name__
        if not isinstance(error, str):
            files = RunFiles(Journal(self.out).run_folder(self.key(contestant)))
            with suppress(OSError, DataError):  # the failure may be a full disk
                files.folder.mkdir(parents=True, exist_ok=True)
                write_atomically(files.error, "".join(traceback.format_exception(error)))
                text += f" The traceback is in {files.folder.name}/{files.error.name}."
        recipe = contestant.recipe
        selected_on = "test" if recipe.select_on_test else "last" if recipe.protocol == "default" else "validation"
        values = {
            "selected_on": selected_on,
            **self.facts(contestant),
            "status": "failed",
            "error": text,
            "recipe": recipe.model_dump(mode="json"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return Record(**values)

    def again(self, contestant: Contestant, record: Record) -> Record:
        """Return the record of a failed rung as the record of a run."""
        # Notes on its training still apply, such as one on a tiny budget.
        notes = tuple(dict.fromkeys([*self.notes, *record.notes]))
        return record.model_copy(update={**self.facts(contestant), "notes": notes})

    def facts(self, contestant: Contestant) -> dict[str, Any]:
        """Return the fields of a contestant's record that are known before it runs."""
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
            **contestant.validated,
        }


@final
@dataclass(frozen=True, kw_only=True)
class TuneContestant:
    """Searches for the settings of a contestant, on the validation classes of its split.

    Attributes:
        data: The whole dataset.
        out: Folder of the comparison; searches are stored in `tuning/` and resumed from there.
        trials: Number of trials of each contestant, including the learning rates that it has tried.
        sampler: Sampler of the search.
        cache: Folder of cached frozen features.
    """

    data: Dataset
    out: Path
    trials: int
    sampler: str
    cache: Path | None = None

    def log_of(self, contestant: Contestant) -> Path:
        """Return the progress file of a contestant's search."""
        name = search_name(contestant.name, contestant.recipe.network, contestant.recipe.dim)
        return self.out / "tuning" / f"{name}.progress.jsonl"

    def __call__(self, contestant: Contestant) -> Tuned | str:
        """Return the result of the search, or the reason why there is none."""
        recipe = contestant.recipe
        splits = [at_fold.split(self.data).without_test() for at_fold in recipe.by_fold()]
        log, name = self.log_of(contestant), search_name(contestant.name, recipe.network, recipe.dim)
        folder = log.parent
        folder.mkdir(parents=True, exist_ok=True)
        try:
            need_validation(splits[0])
            trials, spread = self.trials - contestant.tuning_trials, FAR
            if contestant.curve:  # the winning rung is the first trial of the search and is not rerun
                trials, spread = trials + 1, NEAR
            tuned = run_study(
                splits,
                recipe,
                search_space(recipe, classes=min(len(split.train.classes) for split in splits), spread=spread),
                Trials(trials, self.sampler),
                TrialRuns(folder / f"{name}.db", progress=False, cache=self.cache, watch=partial(TrialLog, log)),
                start_curve=contestant.curve,
            )
        except Interrupted:
            raise
        except Exception as error:  # the others continue in any case
            return str(error)
        finally:
            log.unlink(missing_ok=True)
        write_atomically(folder / f"{name}.txt", f"{tuned}\n")
        write_atomically(folder / f"{name}.toml", tuned.to_toml())
        network = {"backbone": recipe.network, "dim": recipe.dim}
        tuned.summary(contestant.name).model_copy(update=network).write(self.out)
        return tuned


# Ladder of learning rates: a rate that suits one loss ruins another, so each loss tries several before the comparison.


def rungs_of(grid: Sequence[Contestant], rungs: int) -> list[Contestant]:
    """Return the runs to try: every loss at every rate with each network, on the first seed.

    Under cross-validation these are the runs of all folds, otherwise the run of the first fold.
    """
    return [
        rung
        for first in first_of_each(grid)
        for rate in ladder(first.recipe.training.learning_rate, rungs)
        for rung in fold_runs(replace(first, recipe=_at_rate(first, rate)))
    ]


def fold_runs(contestant: Contestant) -> list[Contestant]:
    """Return the runs that try the settings of a contestant: those of all folds under cross-validation."""
    tried = replace(contestant, role="rung", validated={}, folds=())
    return [replace(tried, recipe=recipe) for recipe in contestant.recipe.by_fold()]


def chosen_rates(grid: Sequence[Contestant], tried: Sequence[tuple[Contestant, Record]]) -> list[Contestant]:
    """Return the runs of a comparison at the rates whose rungs scored best on the validation classes.

    A loss whose rungs all failed keeps its rate, at which its run will report what is wrong; its rungs still count as
    trials.

    Args:
        grid: All runs.
        tried: Rungs and their records.
    """
    ended: dict[object, list[Record]] = {}
    for contestant, record in tried:
        ended.setdefault(searched_apart(contestant), []).append(record)
    return [_at_best_rate(contestant, ended.get(searched_apart(contestant), [])) for contestant in grid]


def _at_best_rate(contestant: Contestant, records: Sequence[Record]) -> Contestant:
    of_rate: dict[float, list[Record]] = {}
    for record in records:
        of_rate.setdefault(float(record.recipe["training"]["learning_rate"]), []).append(record)
    if contestant.recipe.cross_validated:
        own = contestant.recipe.training.learning_rate
        rates = sorted(of_rate, key=lambda rate: (rate != own, rate))
        return by_cross_validation(contestant, [(_at_rate(contestant, rate), of_rate[rate]) for rate in rates])
    only = {rate: of_this_rate[0] for rate, of_this_rate in of_rate.items()}
    climbed = climb(
        contestant.recipe,
        list(only),
        lambda rungs: {rate: only[rate].validation.get(only[rate].score) for rate in rungs},
        multiplier_stays=_multiplier_stays(contestant),
    )
    winner = None if climbed.best is None else only[climbed.best]
    return replace(
        contestant,
        recipe=climbed.recipe,
        curve={} if winner is None else _by_step(winner),
        tuning_trials=len(records),
        tuning_images=sum(record.images for record in records if record is not winner),
        rates=climbed.scores,
    )


def by_cross_validation(contestant: Contestant, tried: Sequence[tuple[Recipe, Sequence[Record]]]) -> Contestant:
    """Return a contestant with the settings that score best over all folds.

    Args:
        contestant: Run of any seed.
        tried: Recipes that were tried, each with the records of all folds; the first one is preferred.
    """
    chosen = choose_by_folds(dict(enumerate(records for _, records in tried)), contestant.recipe.training.score)
    scores = {} if chosen is None else chosen.scores
    rates = {recipe.training.learning_rate: scores.get(index) for index, (recipe, _) in enumerate(tried)}
    spent = replace(
        contestant,
        tuning_trials=len(tried) if len(tried) > 1 else 0,
        tuning_images=sum(record.images for _, records in tried for record in records),
        rates=dict(sorted(rates.items())) if len(rates) > 1 else {},
    )
    if chosen is None:
        return spent
    recipe, records = tried[chosen.setting]
    return replace(
        spent,
        recipe=recipe.changed(seed=contestant.recipe.training.seed),
        curve=_by_step(records[0].model_copy(update={"curve": chosen.facts["curve"]})),
        validated=chosen.facts,
        folds=tuple(records),
    )


def _at_rate(contestant: Contestant, rate: float) -> Recipe:
    return at_rate(contestant.recipe, rate, multiplier_stays=_multiplier_stays(contestant))


def _by_step(record: Record) -> dict[int, float]:
    return {images * record.steps // record.images: score for images, score in record.curve}


def _multiplier_stays(contestant: Contestant) -> bool:
    """Whether the user chose the ratio of the proxies' learning rate to that of the network."""
    return "proxy_multiplier" in contestant.chosen


def first_of_each(grid: Sequence[Contestant]) -> list[Contestant]:
    """Return the contestant of the first seed and fold for each separate search."""
    first: dict[object, Contestant] = {}
    for contestant in grid:
        first.setdefault(searched_apart(contestant), contestant)
    return list(first.values())


def searched_apart(contestant: Contestant) -> tuple[str, str, int | None]:
    """Return the key of a separate ladder and search: loss and network, since rates and settings depend on both."""
    return contestant.name, contestant.recipe.network, contestant.recipe.dim


Result = TypeVar("Result")


@final
@dataclass(frozen=True)
class Execution:
    """How runs are executed; results do not depend on it.

    Attributes:
        jobs: Number of parallel runs.
        threads: Number of threads of each run.
        ray: Address of a Ray cluster; None for this machine.
        retry_failed: Whether to retry runs that failed before.
        progress: Whether to show progress.
        processes: Processes for parallel runs on this machine; None to run in this process.
    """

    jobs: int
    threads: int
    ray: str | None
    retry_failed: bool
    progress: bool
    processes: Processes | None = None


def get_ready(first: Sequence[Contestant], run: RunContestant, how: Execution, journal: OpenJournal) -> None:
    """Start the processes for the first runs, unless the journal already has those runs."""
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
    """Try learning rates, and return the runs at the best rates.

    Args:
        grid: All runs.
        rungs: Each loss at each rate, as `rungs_of` returns them.
        run: Function that runs a contestant.
        how: How runs are executed.
        journal: Journal of the comparison.
    """
    best: dict[object, float] = {}

    def forget_if_beaten(rung: Contestant, record: Record) -> None:
        """Keep only checkpoints that may still be chosen: those of all rungs of large networks would fill a disk."""
        score, apart = record.validation.get(record.score, -math.inf), searched_apart(rung)
        if score < best.setdefault(apart, score):
            run.forget(record.key)
        best[apart] = max(score, best[apart])

    tried = run_grid("learning rates", rungs, run, how, journal, ended=forget_if_beaten)
    chosen = chosen_rates(grid, [(rung, tried[run.key(rung)]) for rung in rungs])
    keys = {run.key(contestant) for contestant in chosen}
    for rung in rungs:
        if run.key(rung) not in keys:
            run.forget(run.key(rung))
    return chosen


def try_twice_the_budget(
    grid: Sequence[Contestant], run: RunContestant, how: Execution, journal: OpenJournal
) -> list[Contestant]:
    """Measure by cross-validation what twice the budget would gain, and return the runs with that result.

    The end of a run does not show it: its learning rate falls to zero, and all scores level off.

    Args:
        grid: All runs, with the records of their folds.
        run: Function that runs a contestant.
        how: How runs are executed.
        journal: Journal of the comparison.
    """
    tested = {
        searched_apart(contestant): fold_runs(
            replace(contestant, recipe=contestant.recipe.changed(steps=2 * contestant.recipe.training.steps))
        )
        for contestant in first_of_each(grid)
        if contestant.folds and contestant.recipe.training.steps is not None
    }
    tried = run_grid("twice the budget", [rung for runs in tested.values() for rung in runs], run, how, journal)
    gains = {
        searched_apart(contestant): gain_over_folds(
            [tried[run.key(rung)] for rung in tested[searched_apart(contestant)]], contestant.folds
        )
        for contestant in first_of_each(grid)
        if searched_apart(contestant) in tested
    }
    return [
        replace(
            contestant, validated={**contestant.validated, "twice_the_budget": gains.get(searched_apart(contestant))}
        )
        for contestant in grid
    ]


def search_settings(
    grid: Sequence[Contestant], search: TuneContestant, how: Execution
) -> tuple[list[Contestant], list[tuple[Contestant, str]]]:
    """Search for the settings of each loss with each network; return the updated runs, and those whose search failed.

    Learning rates that were tried count as trials: a loss that has used all of its trials is left unchanged.
    """
    wanting = [contestant for contestant in first_of_each(grid) if contestant.tuning_trials < search.trials]
    outcomes: dict[object, Tuned | str] = {}
    with Shown("tuning", len(wanting), how.progress, log_of=search.log_of) as shown:
        for ended in _ended(wanting, search, shown.started, how):
            outcomes[searched_apart(ended.task)] = ended.result if ended.result is not None else ended.error
            shown.ended(ended.task)
    ready, broken = list[Contestant](), list[tuple[Contestant, str]]()
    for contestant in grid:
        outcome, own = outcomes.get(searched_apart(contestant)), contestant.recipe
        if outcome is None:
            ready.append(contestant)
            continue
        if isinstance(outcome, str):
            broken.append((contestant, f"The search for its settings failed: {outcome}"))
            continue
        best = outcome.recipe
        recipe = best.changed(seed=own.training.seed, fold=own.fold, dim=own.dim)
        spent = contestant.tuning_images + outcome.steps * images_per_step(own)
        trials = search.trials
        demands = demands_after_search(contestant, best)
        ready.append(replace(contestant, recipe=recipe, demands=demands, tuning_trials=trials, tuning_images=spent))
    return ready, broken


def check_searched(
    before: Sequence[Contestant],
    searched: Sequence[Contestant],
    run: RunContestant,
    how: Execution,
    journal: OpenJournal,
) -> list[Contestant]:
    """Return the runs with the searched settings where cross-validation finds them better than those before.

    Args:
        before: Runs before the search, with the records of their folds.
        searched: The same runs after the search.
        run: Function that runs a contestant.
        how: How runs are executed.
        journal: Journal of the comparison.
    """
    former = {searched_apart(contestant): contestant for contestant in first_of_each(before)}
    rungs = {searched_apart(contestant): fold_runs(contestant) for contestant in first_of_each(searched)}
    tried = run_grid("searched settings", [rung for runs in rungs.values() for rung in runs], run, how, journal)
    checked = []
    for contestant in searched:
        apart = searched_apart(contestant)
        settings = [
            (former[apart].recipe, former[apart].folds),
            (contestant.recipe, tuple(tried[run.key(rung)] for rung in rungs[apart])),
        ]
        chosen = by_cross_validation(contestant, settings)
        demands = contestant.demands if chosen.folds != former[apart].folds else former[apart].demands
        checked.append(
            replace(
                chosen,
                demands=demands,
                rates=former[apart].rates,
                tuning_trials=contestant.tuning_trials,
                tuning_images=contestant.tuning_images,
            )
        )
    return checked


def run_grid(
    what: str,
    grid: Sequence[Contestant],
    run: RunContestant,
    how: Execution,
    journal: OpenJournal,
    *,
    ended: Callable[[Contestant, Record], None] = lambda contestant, record: None,
) -> dict[str, Record]:
    """Run what is missing in the journal, and return all records by key.

    Rungs whose learning rates were chosen are already trained and are only tested.

    Args:
        what: Name of the runs in the progress display.
        grid: All runs that must exist.
        run: Function that runs a contestant.
        how: How runs are executed.
        journal: Journal of the comparison.
        ended: Callback that receives each finished run.
    """
    records = {record.key: record for record in journal.records if record.status == "done" or not how.retry_failed}
    for contestant in grid:
        key = run.key(contestant)
        if contestant.role == "run" and key in records and records[key].role == "rung":
            if records[key].status == "failed":
                records[key] = run.again(contestant, records[key])
                journal.append(records[key])
            else:
                del records[key]
    missing = [contestant for contestant in grid if run.key(contestant) not in records]
    with Shown(what, len(grid), how.progress, completed=len(grid) - len(missing), log_of=run.log_of) as shown:
        for outcome in _ended(missing, run, shown.started, how):
            record = outcome.result or run.failed(outcome.task, outcome.error)
            journal.append(record)
            records[record.key] = record
            ended(outcome.task, record)
            shown.ended(outcome.task, record)
    return records


def say(*lines: str) -> None:
    """Print lines to standard error."""
    for line in lines:
        Console(stderr=True).print(line, highlight=False, markup=False)


def _ended(
    contestants: Sequence[Contestant],
    work: Callable[[Contestant], Result],
    started: Callable[[Contestant], None],
    how: Execution,
) -> Iterator[Ended[Contestant, Result]]:
    """Run the work on each contestant, here, in other processes or on a cluster, and yield results as they finish."""
    if how.ray is not None:
        from vicinal.comparing.executor import run_on_ray

        return run_on_ray(contestants, work, started, address=how.ray, threads=how.threads)
    if how.processes is None:
        return run_here(contestants, work, started)
    return how.processes.run(contestants, work, started)
