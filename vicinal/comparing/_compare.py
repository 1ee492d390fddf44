"""Compare losses: the grid of runs, side by side, one journal, one leaderboard."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from filelock import FileLock, Timeout

from vicinal._util.code import Trust
from vicinal._util.files import write_atomically
from vicinal._util.machine import cores
from vicinal._util.reading import read_json
from vicinal.comparing.baselines import UntrainedNetworks, run_baselines
from vicinal.comparing.contestants import DEMANDS, OF_THE_LOSS
from vicinal.comparing.executor import Processes
from vicinal.comparing.features import compute_features
from vicinal.comparing.grid import (
    Execution,
    RunContestant,
    TuneContestant,
    climb_rates,
    get_ready,
    run_grid,
    rungs_of,
    say,
    search_settings,
)
from vicinal.comparing.plan import Access, Method, as_names, plan
from vicinal.comparing.progress import opening_words
from vicinal.embedder.folder import DESCRIPTION, FORMER_BEST
from vicinal.errors import DataError, InputError, Interrupted, look_up
from vicinal.leaderboard import Leaderboard
from vicinal.leaderboard.leaderboard import boards_of
from vicinal.leaderboard.text import best_in_words
from vicinal.runs import Journal
from vicinal.runs.draft import Budget, read_budget
from vicinal.runs.journal import OpenJournal
from vicinal.runs.recipe import Recipe, flat
from vicinal.tuning.ladder import RUNGS
from vicinal.tuning.samplers import SAMPLERS

__all__ = ["compare"]


# The folder of a comparison: one set of conditions, one process at a time.

CONDITIONS, LOCK = "conditions.json", ".lock"
# What may differ between the trials of one comparison.
VARIED = (*OF_THE_LOSS, *DEMANDS, "backbone", "backbone_options", "dim", "seed", "fold", "data")


def conditions(recipe: Recipe, data: str, same_batches: bool, rates: int, tune: int, sampler: str) -> dict[str, Any]:
    """Return all that the runs of a comparison have in common.

    Args:
        recipe: Of any of them.
        data: Hash of the dataset's content.
        same_batches: Whether batches are composed alike for all losses.
        rates: Learning rates that each loss tries.
        tune: Trials of the search for each loss's settings.
        sampler: Which sampler chooses in it.
    """
    values = recipe.model_dump(mode="json")
    if values["weights"] is not None:
        values["weights"] = Path(values["weights"]).name
    shared = {name: value for name, value in flat(values).items() if name not in VARIED}
    shared |= {"images per batch": recipe.classes_per_batch * recipe.samples_per_class, "same batches": same_batches}
    shared |= {"learning rates tried": rates if rates > 1 else None}
    return {"data": data, **shared, "tune": tune, "sampler of the search": sampler if tune else None}


@contextmanager
def comparison_folder(folder: Path, stated: dict[str, Any]) -> Iterator[None]:
    """Hold a comparison's folder: made if need be, with the conditions in it, and locked against a second process.

    Raises:
        InputError: Where the folder holds a comparison under other conditions, or is in use.
        DataError: Where it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        raise InputError(
            f"Another process is at work on the comparison in {folder}: wait for it, or choose another --out."
        ) from None
    except OSError as error:
        raise DataError(
            f"Cannot write to the comparison's folder {folder}: {error.strerror}.",
            hint="Choose another one with --out.",
        ) from None
    try:
        _agree(folder, stated)
        yield
    finally:
        lock.release()


def _agree(folder: Path, stated: dict[str, Any]) -> None:
    path = folder / CONDITIONS
    if not path.exists():
        write_atomically(path, json.dumps(stated, indent=2) + "\n")
        return
    former = read_json(path)
    if not isinstance(former, dict):
        raise DataError(f"{path} does not state the conditions of a comparison.", hint="Choose another --out.")
    names = [name for name in {**former, **stated} if former.get(name) != stated.get(name)]
    if names:
        listed = "\n".join(f"  - {name} was {former.get(name)!r} and is now {stated.get(name)!r}" for name in names)
        raise InputError(
            f"{folder} holds a comparison under other conditions:\n{listed}\nGive the same ones to go on with it "
            "(losses, dims, backbones and seeds may be added), or choose another --out."
        )


# `best/`: the embedder to use, in the comparison's folder, whole at every moment.


def keep_best(board: Leaderboard, folder: Path) -> None:
    """Save the embedder to use in the comparison's folder; where its model was not kept, there is none.

    The former one is put aside before the new one takes its name, and removed after that. Killed in between, a reader
    of the comparison's folder finds the one put aside, which `heal_best` puts back.
    """
    best, partial, former = Journal(folder).best, folder / ".best.partial", folder / FORMER_BEST
    if not board.entries or not board.best.has_model:
        shutil.rmtree(best, ignore_errors=True)  # that of an earlier call is not the best any more
        return
    embedder = board.best.embedder()
    said = [DESCRIPTION, f"To use: {best_in_words(board)}", *([] if board.gain is None else [str(board.gain)])]
    embedder.card = replace(embedder.card, description=" ".join(said))
    shutil.rmtree(partial, ignore_errors=True)
    embedder.save(partial)
    heal_best(folder)
    with suppress(FileNotFoundError):  # of the first call
        best.rename(former)
    partial.rename(best)
    shutil.rmtree(former, ignore_errors=True)


def heal_best(folder: Path) -> None:
    """Finish what a call that was killed while it kept the best embedder has left."""
    best, former = Journal(folder).best, folder / FORMER_BEST
    if best.is_dir():
        shutil.rmtree(former, ignore_errors=True)
    elif former.is_dir():
        former.rename(best)


def compare(
    data: Any,
    losses: Sequence[Method] | None = None,
    *,
    out: str | Path = "runs/comparison",
    recipe: Recipe | str | Path | Sequence[str | Path] | None = None,
    dims: Sequence[int] = (),
    backbones: Sequence[str | Callable[..., Any]] = (),
    seeds: int = 1,
    budget: str | None = None,
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
    allow_code: Sequence[str] = (),
    **changes: Any,
) -> Leaderboard:
    """Train every loss under the same conditions, on every seed and fold, and compare what comes out.

    The untrained network is always compared with: its features as they are, reduced to the compared length by their
    principal axes, and chance.

    Killed at any moment and called again with the same arguments, it runs only what is missing. Every run is a line of
    `journal.jsonl` in the folder `out`; one that fails is recorded with its error, and the rest go on.

    Args:
        data: A dataset (ours, torch's of (x, y), a DataLoader, a Hugging Face one), its name or its path, or a function
            that returns one; None for that of the recipe.
        losses: Functions of (matrix, positive, negative), tuples of a loss and a miner, or names: "triplet",
            "triplet+semi_hard" (with a miner), "contrastive+memory" (with past batches), "contrastive+ccp" (with
            chance-constrained proxies), "my_module:my_loss", "mine.py:my_loss", a recipe by its name or path, or a
            folder of them; by default `vicinal.comparing.plan.PANEL`, ways that differ in kind.
        out: Folder of the comparison.
        recipe: Conditions that all share: a recipe, or the name or path of one; several are laid over each other. Where
            neither this nor a loss is a recipe, network and budget are those that suit the data (`vicinal.runs.draft`).
        dims: Lengths of embeddings to compare at, by default the recipe's.
        backbones: Networks to compare with, by default the recipe's.
        seeds: How often all of it is repeated.
        budget: Of each run, the same for all: "500" (steps), "64000images" or "64kimages" (each loss takes as many
            steps as see them in its own batches), "90s", "5m" or "1h" (of training); by default the steps of the
            recipe, or as many images as suit the data. Without a recipe, a run of 20 evaluations or more ends early
            where half of them in a row bring nothing; `patience=` says otherwise.
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
        allow_code: Modules or files whose code recipes may name.
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
    if min(seeds, jobs or 1, rates) < 1 or tune < 0:
        raise InputError(
            f"seeds, jobs and rates must be at least 1 and tune at least 0; got {seeds}, {jobs}, {rates} and {tune}."
        )
    if budget is not None and {"steps", "seconds"} & flat(changes).keys():
        raise InputError("budget says how long runs train, and so do steps and seconds: give one of them.")
    if tune:
        look_up("sampler", sampler, SAMPLERS)
    named = as_names(losses)
    typed = [name for name, way in zip(named, losses or named, strict=True) if not isinstance(way, Path)]
    trust = Trust.of(allow_code) | Trust.typed([*typed, *backbones, *changes.values(), data])
    planned = plan(
        data,
        named,
        recipe=recipe,
        dims=dims,
        backbones=backbones,
        seeds=seeds,
        same_batches=same_batches,
        budget=Budget() if budget is None else read_budget(budget),
        changes=changes,
        access=Access(trust, check="looks" if progress else "content"),  # looks are for the note on leaks
    )
    whole, splits, grid = planned.data, planned.splits, planned.grid
    how = _execution(planned.stays_here, jobs, ray, retry_failed=retry_failed, progress=progress)
    if progress:
        first = grid[0].recipe
        for line in opening_words(first, whole, splits.of(first), planned.notes, panel=losses is None):
            say(line)  # one by one: looking for the same picture on both sides of the split takes a while
    if "learning_rate" in changes or not planned.can_choose:
        rates = 1
    rungs = rungs_of(grid, min(rates, tune) if tune else rates) if rates > 1 else []
    folder, data_hash = Path(out), whole.hash()
    run = RunContestant(
        data=whole,
        data_hash=data_hash,
        out=folder,
        cache=cache,
        workers=workers,
        keep_models=keep_models,
        command=command,
        notes=planned.notes,
        same_batches=same_batches,
    )
    with (
        comparison_folder(folder, conditions(planned.shared, data_hash, same_batches, rates, tune, sampler)),
        _stoppable(folder),
        how.processes or nullcontext(),
    ):
        heal_best(folder)
        journal = OpenJournal(folder)
        get_ready(rungs or grid, run, how, journal)
        networks = UntrainedNetworks(whole, cache, workers)
        recipes = [contestant.recipe for contestant in grid]
        compute_features(recipes, whole, networks, splits, cache=cache, workers=workers, say=say if progress else None)
        baselines = run_baselines(grid, run, networks, splits, journal, retry_failed=retry_failed, progress=progress)
        del networks  # whose features are on disk, or not needed any more
        if rungs:
            grid = climb_rates(grid, rungs, run, how, journal)
        if any(contestant.tuning_trials < tune for contestant in grid):
            search = TuneContestant(data=whole, out=folder, trials=tune, sampler=sampler, cache=cache)
            grid, broken = search_settings(grid, search, how)
            for contestant, reason in broken:
                journal.append(run.failed(contestant, reason))
        tried = [record.key for record in journal.records if record.role == "rung"]
        run_grid("runs", grid, run, how, journal)
        for key in tried:  # whose settings a search has changed
            run.forget(key)
        asked_for = {*baselines, *(run.key(contestant) for contestant in grid)}
        boards = boards_of(journal.runs(grid[0].recipe.trust), [folder], progress=progress)
        # The runs of earlier calls are rows, too: a folder has one leaderboard, whoever reads it.
        board = max(boards, key=lambda board: sum(each.record.key in asked_for for each in board.runs))
        board = replace(board, data=whole)
        keep_best(board, folder)
        return board


def _execution(
    stays_here: Sequence[str], jobs: int | None, ray: str | None, *, retry_failed: bool, progress: bool
) -> Execution:
    """Return how runs are carried out; functions that other processes cannot import keep all of them in this one."""
    if stays_here and (ray is not None or (jobs or 1) > 1):
        raise InputError(
            f"Other processes cannot import {', '.join(stays_here)}: put it into a file under a name of its own "
            "(def my_loss(...) in mine.py) and give mine.my_loss or 'mine.py:my_loss'; or compare with jobs=1."
        )
    if jobs is None:
        jobs = 1 if stays_here or torch.cuda.is_available() else min(4, cores())
    threads = max(1, cores() // jobs)
    processes = Processes(jobs, threads) if jobs > 1 and ray is None else None
    return Execution(jobs, threads, ray, retry_failed, progress, processes)


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
