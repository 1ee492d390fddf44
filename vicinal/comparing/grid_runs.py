"""The runs of a comparison: the ladder of learning rates, the search for settings, and the runs themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from rich.console import Console

from vicinal.budget import images_per_step
from vicinal.comparing.contestants import Contestant, demands_after_search
from vicinal.comparing.executor import Ended, Processes, run_here
from vicinal.comparing.opening_words import time_in_words
from vicinal.comparing.progress import Shown
from vicinal.comparing.rates import chosen_rates, first_of_each, rungs_of, searched_apart
from vicinal.comparing.tasks import RunContestant, TuneContestant
from vicinal.comparing.time_estimate import runs_seconds
from vicinal.results import Journal, Record
from vicinal.tuning import Tuned

__all__ = ["Execution", "climb_rates", "get_ready", "run_grid", "say", "search_settings"]


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


def get_ready(grid: Sequence[Contestant], run: RunContestant, how: Execution, *, rates: int, tune: int) -> None:
    """Start the processes that the first runs will need, unless the journal has those runs."""
    first = rungs_of(grid, _rungs(rates, tune)) if rates > 1 else grid
    known = {record.key for record in Journal(run.out).records()}
    lacking = [contestant for contestant in first if run.key(contestant) not in known]
    if how.processes is not None and lacking:
        how.processes.start(run, len(lacking))


def _rungs(rates: int, tune: int) -> int:
    """How many rungs a ladder has: a search counts them among its trials."""
    return min(rates, tune) if tune else rates


def climb_rates(
    grid: Sequence[Contestant], run: RunContestant, how: Execution, *, rates: int, tune: int
) -> list[Contestant]:
    """Try learning rates, and return the runs at the best of them."""
    rungs = rungs_of(grid, _rungs(rates, tune))
    ladders = len(first_of_each(grid))
    later = len(grid) - ladders + ladders * max(0, tune - rates)
    best: dict[object, float] = {}

    def forget_if_beaten(rung: Contestant, record: Record) -> None:
        """Keep the checkpoints of what may yet be chosen alone: those of all rungs of large networks fill a disk."""
        score, apart = record.validation.get(record.score, -math.inf), searched_apart(rung)
        if score < best.setdefault(apart, score):
            run.forget(record.key)
        best[apart] = max(score, best[apart])

    tried = run_grid("learning rates", rungs, run, how, later, ended=forget_if_beaten)
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
    later: int = 0,
    *,
    estimate: bool = True,
    ended: Callable[[Contestant, Record], None] = lambda contestant, record: None,
) -> dict[str, Record]:
    """Run what the journal lacks, and return all records by their keys.

    Rungs whose learning rates were chosen are trained already, and only tested.

    Args:
        what: What they are called.
        grid: All that there have to be.
        run: Runs one.
        how: How they are carried out.
        later: How many more there will be, for the time that all take.
        estimate: Whether to measure that time and say it.
        ended: Told of each that ends.
    """
    journal = Journal(run.out)
    known = {record.key: record for record in journal.records() if record.status == "done" or not how.retry_failed}
    trained: set[str] = set()
    for contestant in grid:
        key = run.key(contestant)
        if contestant.role == "run" and key in known and known[key].role == "rung":
            if known[key].test or known[key].status == "failed":
                known[key] = run.again(contestant, known[key])
                journal.append(known[key])
            else:
                trained.add(known.pop(key).key)
    missing = [contestant for contestant in grid if run.key(contestant) not in known]
    recipes = [contestant.recipe for contestant in missing if run.key(contestant) not in trained]
    if how.progress and estimate and recipes:
        seconds = runs_seconds(recipes, run.data, run.cache, later, jobs=how.jobs, threads=how.threads)
        say(time_in_words(len(recipes) + later, seconds))
    with Shown(what, len(grid), how.progress, completed=len(grid) - len(missing), log_of=run.log_of) as shown:
        for one in _ended(missing, run, shown.started, how):
            record = one.result or run.failed(one.task, one.error)
            journal.append(record)
            known[record.key] = record
            ended(one.task, record)
            shown.ended(one.task, record)
    return known


def say(*lines: str) -> None:
    """Show lines where progress is shown."""
    for line in lines:
        Console(stderr=True).print(line, highlight=False, markup=False)


def _ended(tasks: Sequence[Any], work: Any, started: Any, how: Execution) -> Iterator[Ended[Any, Any]]:
    if how.ray is not None:
        from vicinal.comparing.ray_executor import run_on_ray

        return run_on_ray(tasks, work, started, address=how.ray, threads=how.threads)
    return run_here(tasks, work, started) if how.processes is None else how.processes.run(tasks, work, started)
