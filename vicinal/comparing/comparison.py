"""Compare losses: the grid of runs, side by side, one journal, one leaderboard."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console

from vicinal.build import build_criterion, build_sampler
from vicinal.comparing.baselines import run_baselines
from vicinal.comparing.conditions import comparison_folder, conditions
from vicinal.comparing.contestants import Contestant, contestants, flat, needs
from vicinal.comparing.executor import Ended, run_here, run_in_processes
from vicinal.comparing.opening_words import features_in_words, opening_words, time_in_words
from vicinal.comparing.own_terms import on_own_terms
from vicinal.comparing.panel import PANEL
from vicinal.comparing.progress import Shown
from vicinal.comparing.rates import RUNGS, chosen_rates, rungs_of
from vicinal.comparing.repeated_call import call_in_python
from vicinal.comparing.shared_features import compute_features
from vicinal.comparing.starting_point import in_fitting_batches, states_conditions, under_default_budget
from vicinal.comparing.tasks import RunContestant, TuneContestant
from vicinal.comparing.time_estimate import feature_seconds, runs_seconds
from vicinal.data import PROTOCOLS, Dataset, load
from vicinal.defaults import suited_settings
from vicinal.embedder.card import DESCRIPTION
from vicinal.errors import InputError, Interrupted, VicinalError
from vicinal.machine import cores
from vicinal.recipe import Recipe, read_tables
from vicinal.results import Journal, Leaderboard, Record, leaderboards
from vicinal.results.text import best_in_words
from vicinal.tuning import Tuned

__all__ = ["compare"]


def compare(
    data: str | Path | Dataset | None,
    losses: Sequence[str | Path] | None = None,
    *,
    out: str | Path = "runs/comparison",
    recipe: Recipe | str | Path | Sequence[str | Path] | None = None,
    dims: Sequence[int] = (),
    backbones: Sequence[str] = (),
    seeds: int = 1,
    same_batches: bool = False,
    rates: int = RUNGS,
    tune: int = 0,
    sampler: str = "tpe",
    jobs: int | None = None,
    ray: str | None = None,
    workers: int = 0,
    cache: Path | None = None,
    keep_models: bool = True,
    retry_failed: bool = False,
    progress: bool = True,
    command: str = "",
    **changes: Any,
) -> Leaderboard:
    """Train every loss under the same conditions, on every seed and fold, and compare what comes out.

    The untrained network is always compared with: its features as they are, reduced to the compared length by their
    principal axes, and chance.

    Killed at any moment and called again with the same arguments, it runs only what is missing. Every run is a line of
    `journal.jsonl` in the folder `out`; one that fails is recorded with its error, and the rest go on.

    Args:
        data: A dataset, its name or its path; None for that of the recipe.
        losses: "triplet", "triplet+semi_hard" (with a miner), "contrastive+memory" (with past batches),
            "contrastive+ccp" (with chance-constrained proxies), a recipe by its name or path, or a folder of them; by
            default `vicinal.comparing.panel.PANEL`, ways that differ in kind.
        out: Folder of the comparison.
        recipe: Conditions that all share: a recipe, or the name or path of one; several are laid over each other. Where
            neither this nor a loss is a recipe, network and budget are those that suit the data (`vicinal.defaults`).
        dims: Lengths of embeddings to compare at, by default the recipe's.
        backbones: Networks to compare with, by default the recipe's.
        seeds: How often all of it is repeated.
        same_batches: Compose batches for all losses as the recipe says, with its warm-up and its learning rate of
            proxies. Otherwise each has them as its paper does, with the same number of images: losses on proxies want
            many classes and one item of each, and fail in others.
        rates: How many learning rates each loss tries, half an order of magnitude apart around that of its recipe; the
            one that is best on the validation classes of the first seed and fold serves all seeds and folds. 1 takes
            rates as given; so do a `learning_rate` among the changes, and data without validation classes.
        tune: Trials of the search for each loss's settings, the same number for each and the rates among them; 0 takes
            the others as given. After the rates it searches the composition of batches and the options of the loss,
            and sees the same validation classes.
        sampler: Which sampler chooses in that search.
        jobs: Runs at a time, among which threads are divided; by default one for each processor up to 4, and one
            where there is a GPU.
        ray: Address of a Ray cluster to run on ("local" starts one here); None runs them here.
        workers: Processes that decode images, for each trial.
        cache: Where frozen features are kept, by default the user's cache folder.
        keep_models: Whether every run keeps its trained embedder.
        retry_failed: Run again what failed before.
        progress: Whether to show progress.
        command: What repeats the comparison, for the records.
        **changes: Settings of a recipe that override everything: `steps=500, protocol="reality-check", freeze=True`.

    Raises:
        InputError: Listing all mistakes of all recipes, before anything runs.
        DataError: Where the folder cannot be written to.
        Interrupted: After Ctrl-C or SIGTERM; the same call goes on.

    Example:
        >>> import tempfile
        >>> board = compare("digits", ["triplet", "proxy_anchor"], out=tempfile.mkdtemp(), steps=5, dim=8,
        ...                 classes_per_batch=2, jobs=1, progress=False, protocol="k-fold", folds=2)
        >>> len(board.records), [entry.name for entry in board.baselines]
        (4, ['untrained', 'untrained, PCA to 8', 'chance'])
    """
    asked = dict(locals())
    if min(seeds, jobs or 1, rates) < 1 or tune < 0:
        raise InputError(
            f"seeds, jobs and rates must be at least 1 and tune at least 0; got {seeds}, {jobs}, {rates} and {tune}."
        )
    base, ways = _tables(recipe), [way.loss for way in PANEL] if losses is None else losses
    flags = changes if data is None else {**changes, "data": _name(data)}
    entries = contestants(ways, base, flags)
    whole = data if isinstance(data, Dataset) else _load(entries[0].recipe)
    follows_data = not states_conditions(base, ways)
    if follows_data:
        said = {**flat(changes), **({"backbone": backbones} if backbones else {})}
        entries = contestants(ways, suited_settings(whole, said), flags)
    cells = [cell.recipe.split(whole).train for cell in _grid(entries[:1], (), (), seeds)]
    entries, notes = in_fitting_batches(entries, cells)
    if follows_data:
        entries = under_default_budget(entries, changes, cells[0])
    if not same_batches:
        entries = [on_own_terms(entry, cells[0]) for entry in entries]
    grid = _grid(entries, dims, backbones, seeds)
    _check(grid, whole)
    first = grid[0].recipe
    if "learning_rate" in changes or first.select_on_test or first.split(whole).chooser is None:
        rates = 1
    jobs = jobs or (1 if torch.cuda.is_available() else min(4, cores()))
    execute = {"jobs": jobs, "threads": max(1, cores() // jobs), "ray": ray}
    folder, data_hash = Path(out), whole.hash()
    call = call_in_python(compare, asked)
    run = RunContestant(whole, data_hash, folder, cache, workers, keep_models, command, notes, call)
    if progress:
        _say(*opening_words(first, whole, notes, panel=losses is None))
    with (
        comparison_folder(folder, conditions(entries[0].recipe, data_hash, same_batches, rates, tune, sampler)),
        _stoppable(folder),
    ):
        recipes = [contestant.recipe for contestant in grid]
        if progress and (seconds := feature_seconds(recipes[0], whole, cache)):
            _say(features_in_words(seconds))
        compute_features(recipes, whole, cache=cache, workers=workers, progress=progress)
        baselines = run_baselines(grid, run, retry_failed=retry_failed, progress=progress)
        if rates > 1:
            rungs = rungs_of(grid, min(rates, tune) if tune else rates)
            ladders = len(rungs) // (min(rates, tune) if tune else rates)
            later = len(grid) - ladders + ladders * max(0, tune - rates)
            tried = _run("learning rates", rungs, run, execute, retry_failed, progress, later)
            grid = chosen_rates(grid, [(rung, tried[run.key(rung)]) for rung in rungs])
        left = tune - grid[0].tuning_trials
        if left > 0:
            # The trial of the recipe as it is counts, and need not be run where a ladder found the rate.
            trials = left + (rates > 1)
            grid, broken = _tuned(grid, TuneContestant(whole, folder, trials, sampler, cache), tune, execute, progress)
            for contestant, reason in broken:
                Journal(folder).append(run.failed(contestant, reason))
        _run("runs", grid, run, execute, retry_failed, progress)
        keys = [*baselines, *(run.key(contestant) for contestant in grid)]
        board = leaderboards([folder], keys=keys)[0]
        if board.entries and board.best.has_model:
            _keep_best(board, folder)
        return board


def _keep_best(board: Leaderboard, folder: Path) -> None:
    """Save the embedder to use in the comparison's folder; a reader sees the former one or the new one."""
    best, partial = Journal(folder).best, folder / ".best.partial"
    embedder = board.best.embedder()
    said = [DESCRIPTION, f"To use: {best_in_words(board)}", *([] if board.gain is None else [str(board.gain)])]
    embedder.card = replace(embedder.card, description=" ".join(said))
    shutil.rmtree(partial, ignore_errors=True)
    embedder.save(partial)
    shutil.rmtree(best, ignore_errors=True)
    partial.rename(best)


def _tables(recipe: Recipe | str | Path | Sequence[str | Path] | None) -> Mapping[str, Any]:
    if isinstance(recipe, Recipe):
        return recipe.model_dump()
    return read_tables(*([recipe] if isinstance(recipe, str | Path) else recipe or []))


def _name(data: str | Path | Dataset) -> str:
    return data.name if isinstance(data, Dataset) else str(data)


def _load(recipe: Recipe) -> Dataset:
    if recipe.data is None:
        raise InputError("What is to be compared on? Give a dataset, its name or its path, or a recipe that names one.")
    return load(recipe.data, skip_bad=recipe.skip_bad)


def _grid(entries: Sequence[Contestant], dims: Sequence[int], backbones: Sequence[str], seeds: int) -> list[Contestant]:
    """Return all runs, such that every loss has its first result before any has its second."""
    first = entries[0].recipe
    count = first.folds or PROTOCOLS[first.protocol]
    folds: Sequence[int | None] = [None] if count is None else range(count)
    sizes: Sequence[int | None] = dims or [first.dim]
    return [
        replace(entry, recipe=entry.recipe.changed(seed=seed, fold=fold, backbone=backbone, dim=dim))
        for seed in range(seeds)
        for fold in folds
        for backbone in backbones or [first.backbone]
        for dim in sizes
        for entry in entries
    ]


def _check(grid: Sequence[Contestant], data: Dataset) -> None:
    """Build every loss on the data before anything runs, and report all that is wrong at once."""
    first = grid[0].recipe
    if first.select_on_test and first.protocol != "default":
        raise InputError(
            f"Choosing steps by the test classes goes with protocol 'default', not {first.protocol!r}, which has "
            "validation classes for it."
        )
    train = first.split(data).train
    wrong: dict[str, None] = {}
    for contestant in {contestant.name: contestant for contestant in grid}.values():
        try:
            build_criterion(contestant.recipe, train, contestant.recipe.dim or 8)
            build_sampler(contestant.recipe, train)
        except VicinalError as error:
            wrong[f"{contestant.name}: {error}"] = None
    if wrong:
        raise InputError("The comparison has mistakes:\n" + "\n".join(f"  - {line}" for line in wrong))


def _tuned(
    grid: Sequence[Contestant], search: TuneContestant, tune: int, execute: Mapping[str, Any], progress: bool
) -> tuple[list[Contestant], list[tuple[Contestant, str]]]:
    """Search for each loss's settings once; return the runs with them, and those whose search failed."""
    first: dict[str, Contestant] = {}
    for contestant in grid:
        first.setdefault(contestant.name, contestant)
    outcomes: dict[str, Tuned | str] = {}
    with Shown("tuning", len(first), progress) as shown:
        for ended in _ended(list(first.values()), search, shown.started, execute):
            outcomes[ended.task.name] = ended.result if ended.result is not None else ended.error
            shown.ended(ended.task)
    ready, broken = [], []
    for contestant in grid:
        found, own = outcomes[contestant.name], contestant.recipe
        if isinstance(found, str):
            broken.append((contestant, f"The search for its settings failed: {found}"))
            continue
        best, former = found.recipe, needs(own)  # the search may have changed what these say
        demands = (*needs(best), *(word for word in contestant.demands if word not in former))
        recipe = best.changed(seed=own.training.seed, fold=own.fold, backbone=own.backbone, dim=own.dim)
        spent = contestant.tuning_images + found.steps * own.classes_per_batch * own.samples_per_class
        ready.append(replace(contestant, recipe=recipe, demands=demands, tuning_trials=tune, tuning_images=spent))
    return ready, broken


def _run(
    what: str,
    grid: Sequence[Contestant],
    run: RunContestant,
    execute: Mapping[str, Any],
    retry_failed: bool,
    progress: bool,
    later: int = 0,
) -> dict[str, Record]:
    """Run what the journal lacks and say how long it takes, with as many `later`; return all records by their keys."""
    journal = Journal(run.out)
    known = {record.key: record for record in journal.records() if record.status == "done" or not retry_failed}
    for contestant in grid:
        key = run.key(contestant)
        if contestant.role == "run" and key in known and known[key].role == "rung":
            known[key] = run.again(contestant, known[key])
            journal.append(known[key])
    missing = [contestant for contestant in grid if run.key(contestant) not in known]
    if progress and missing:
        pace = {name: execute[name] for name in ("jobs", "threads")}
        seconds = runs_seconds([contestant.recipe for contestant in missing], run.data, run.cache, later, **pace)
        _say(time_in_words(len(missing) + later, seconds))
    with Shown(what, len(grid), progress, completed=len(grid) - len(missing), log_of=run.log_of) as shown:
        for ended in _ended(missing, run, shown.started, execute):
            record = ended.result or run.failed(ended.task, ended.error)
            journal.append(record)
            known[record.key] = record
            shown.ended(ended.task, record)
    return known


def _say(*lines: str) -> None:
    """Show lines where progress is shown."""
    for line in lines:
        Console(stderr=True).print(line, highlight=False, markup=False)


def _ended(tasks: Sequence[Any], work: Any, started: Any, execute: Mapping[str, Any]) -> Iterator[Ended[Any, Any]]:
    if execute["ray"] is not None:
        from vicinal.comparing.ray_executor import run_on_ray

        return run_on_ray(tasks, work, started, address=execute["ray"], threads=execute["threads"])
    if execute["jobs"] == 1:
        return run_here(tasks, work, started)
    return run_in_processes(tasks, work, started, jobs=execute["jobs"], threads=execute["threads"])


@contextmanager
def _stoppable(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one message that says how to go on."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        former = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, where signals cannot be caught
        former = None
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(
            f"The comparison was stopped. Finished runs are in {Journal(folder).path}: give the same command to go on."
        ) from None
    finally:
        if former is not None:
            signal.signal(signal.SIGTERM, former)
