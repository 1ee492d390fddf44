"""Compare losses: a grid of parallel runs, one journal, one leaderboard."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from filelock import FileLock, Timeout

from vicinal._util.code import Trust
from vicinal._util.files import write_atomically
from vicinal._util.machine import cores
from vicinal._util.reading import read_json
from vicinal.comparing.baselines import UntrainedNetworks, other_networks, run_baselines
from vicinal.comparing.contestants import DEMANDS, OF_THE_LOSS
from vicinal.comparing.executor import Processes
from vicinal.comparing.features import compute_features
from vicinal.comparing.grid import (
    Execution,
    RunContestant,
    TuneContestant,
    check_searched,
    climb_rates,
    get_ready,
    run_grid,
    rungs_of,
    say,
    search_settings,
    try_twice_the_budget,
)
from vicinal.comparing.networks import choose_network
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


# Folder of a comparison: one set of conditions, one process at a time.

CONDITIONS, LOCK = "conditions.json", ".lock"
# Settings that may differ between the runs of one comparison.
VARIED = (*OF_THE_LOSS, *DEMANDS, "backbone", "backbone_options", "dim", "seed", "fold", "data")


def conditions(recipe: Recipe, data: str, same_batches: bool, rates: int, tune: int, sampler: str) -> dict[str, Any]:
    """Return the settings that all runs of a comparison share.

    Args:
        recipe: Recipe of any of the runs.
        data: Hash of the dataset's content.
        same_batches: Whether batches are composed alike for all losses.
        rates: Number of learning rates that each loss tries.
        tune: Number of trials of the search for each loss's settings.
        sampler: Sampler of that search.
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
    """Lock a comparison's folder against other processes; create it and write its conditions if needed.

    Raises:
        InputError: If the folder holds a comparison under other conditions, or is in use.
        DataError: If it is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        raise InputError(
            f"Another process is using the comparison in {folder}; wait for it, or choose another --out."
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
            f"{folder} holds a comparison under other conditions:\n{listed}\nUse the same settings to resume it "
            "(losses, dims, backbones and seeds may be added), or choose another --out."
        )


# `best/`: the embedder to use, in the comparison's folder; complete at all times.


def keep_best(board: Leaderboard, folder: Path) -> None:
    """Save the embedder to use in the comparison's folder; remove any earlier one if its model was not saved.

    The previous embedder is renamed before the new one takes its place, and removed afterwards. If the process is
    killed in between, readers of the folder find the renamed one, which `heal_best` moves back.
    """
    best, partial, former = Journal(folder).best, folder / ".best.partial", folder / FORMER_BEST
    if not board.entries or not board.best.has_model:
        shutil.rmtree(best, ignore_errors=True)  # the one of an earlier call is no longer the best
        return
    embedder = board.best.embedder()
    sentences = [DESCRIPTION, f"To use: {best_in_words(board)}", *([] if board.gain is None else [str(board.gain)])]
    embedder.card = replace(embedder.card, description=" ".join(sentences))
    shutil.rmtree(partial, ignore_errors=True)
    embedder.save(partial)
    heal_best(folder)
    with suppress(FileNotFoundError):  # on the first call
        best.rename(former)
    partial.rename(best)
    shutil.rmtree(former, ignore_errors=True)


def heal_best(folder: Path) -> None:
    """Repair the folder after a call that was killed while it saved the best embedder."""
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
    backbones: Sequence[Any] = (),
    seeds: int | None = None,
    budget: str | None = None,
    same_batches: bool = False,
    rates: int | None = None,
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
    """Train every loss under the same conditions, on every seed and fold, and compare the results.

    Every comparison includes baselines: the untrained network with all of its features, the same reduced to each
    compared dimension by PCA, and chance.

    If it is killed and called again with the same arguments, it runs only what is missing. Every run is a line of
    `journal.jsonl` in the folder `out`. A run that fails is recorded with its error, and the others continue.

    Args:
        data: A dataset (of vicinal, PyTorch with (x, y) items, a DataLoader, or Hugging Face), its name or path, or a
            function that returns one; None for the dataset of the recipe.
        losses: Functions of (matrix, positive, negative), tuples of a loss and a miner, or names: "triplet",
            "triplet+semi_hard" (with a miner), "contrastive+memory" (with past batches), "contrastive+ccp" (with
            chance-constrained proxies), "my_module:my_loss", "mine.py:my_loss", a recipe by its name or path, or a
            folder of them; by default `vicinal.comparing.plan.PANEL`, losses of different kinds.
        out: Folder of the comparison.
        recipe: Shared conditions: a recipe, or its name or path; later ones of several override earlier ones. If
            neither this nor any loss is a recipe, network and budget are chosen by the data (`vicinal.runs.draft`).
        dims: Embedding dimensions to compare, by default the recipe's.
        backbones: Networks to compare, by name or class, or as tuples of that and their options; by default the
            recipe's, or of the pretrained networks on this machine the one that scores best on the training classes.
        seeds: Number of seeds; by default 3 for heads on fixed features, which are trained in seconds, and otherwise 1.
        budget: Budget of each run, the same for all: "500" (steps), "64000images" or "64kimages" (each loss takes the
            number of steps that its own batches need), "90s", "5m" or "1h" (training time). The default is the steps
            of the recipe, or a number of images that suits the data. Without a recipe, a run of 20 or more evaluations
            stops early after half of them in a row without improvement; `patience=` overrides this.
        same_batches: Whether all losses use the recipe's batches, warm-up and learning rate of proxies. By default
            each loss has the batches of its paper, with the same number of images: losses on proxies need many classes
            with one item each, and fail with other batches.
        rates: Number of learning rates that each loss tries, half an order of magnitude apart around that of its
            recipe. The best one on validation classes is used for all seeds and folds. 1 uses the rates of the recipes;
            so do `learning_rate` among the changes and data without validation classes.
        tune: Number of trials of the search for each loss's settings, the same for all and including the learning
            rates; 0 for no search. After the rates, it searches the composition of batches and the options of the
            loss, on the same validation classes.
        sampler: Sampler of that search.
        jobs: Number of parallel runs, which share the threads; by default one per core up to 4, or one with a GPU.
        ray: Address of a Ray cluster to run on ("local" starts one here); None to run locally.
        workers: Number of processes that decode images, for each run.
        cache: Folder of cached frozen features, by default the user's cache folder.
        keep_models: Whether every run saves its trained embedder.
        retry_failed: Whether to retry runs that failed before.
        progress: Whether to show progress.
        command: Command that repeats the comparison, for the records.
        allow_code: Modules or files whose code recipes may name.
        **changes: Settings of a recipe that override everything: `steps=500, protocol="reality-check", freeze=True`.

    Raises:
        InputError: If any recipe is invalid; lists all problems of all recipes before anything runs.
        DataError: If the folder is not writable.
        Interrupted: After Ctrl-C or SIGTERM; the same call resumes.

    Example:
        >>> import tempfile
        >>> board = compare("digits", ["triplet", "proxy_anchor"], out=tempfile.mkdtemp(), steps=5, dim=8,
        ...                 classes_per_batch=2, jobs=1, progress=False, protocol="k-fold", folds=2)
        >>> len(board.records), [entry.name for entry in board.baselines]
        (4, ['untrained', 'untrained, PCA to 8', 'chance'])
    """
    settings = flat(changes)
    if "seed" in settings:
        raise InputError("A comparison runs the seeds 0, 1, 2, ...: give their number with seeds= (--seeds).")
    if rates is not None and rates > 1 and "learning_rate" in settings:
        raise InputError(
            f"rates = {rates} tries several learning rates, and learning_rate = {settings['learning_rate']} fixes one: "
            "give one of them."
        )
    rates = RUNGS if rates is None else rates
    if min(1 if seeds is None else seeds, 1 if jobs is None else jobs, rates) < 1 or tune < 0:
        raise InputError(
            f"seeds, jobs and rates must be at least 1 and tune at least 0; got {seeds}, {jobs}, {rates} and {tune}."
        )
    if budget is not None and {"steps", "seconds"} & settings.keys():
        raise InputError("budget, steps and seconds set the same limit: give only one of them.")
    if tune:
        look_up("sampler", sampler, SAMPLERS)
    named = as_names(losses)
    typed = [name for name, loss in zip(named, losses or named, strict=True) if not isinstance(loss, Path)]
    names = [backbone[0] if isinstance(backbone, tuple) else backbone for backbone in backbones]
    trust = Trust.of(allow_code) | Trust.typed([*typed, *names, *changes.values(), data])
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
        access=Access(
            trust,
            check="looks" if progress else "content",  # looks are needed for the note on leaks
            choose_network=partial(choose_network, cache=cache, workers=workers),
        ),
    )
    whole, splits, grid = planned.data, planned.splits, planned.grid
    how = _execution(planned.stays_here, jobs, ray, retry_failed=retry_failed, progress=progress)
    if progress:
        first = grid[0].recipe
        for line in opening_words(first, whole, splits.of(first), planned.notes, panel=losses is None):
            say(line)  # one by one: the search for duplicates across the split takes a while
    if "learning_rate" in settings or not planned.can_choose:
        rates = 1
    tries = rates > 1 or planned.shared.cross_validated
    rungs = rungs_of(grid, min(rates, tune) if tune else rates) if tries else []
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
        untrained = [*grid, *other_networks(grid, planned.networks)]
        baselines = run_baselines(
            untrained, run, networks, splits, journal, retry_failed=retry_failed, progress=progress
        )
        del networks  # its features are on disk, or no longer needed
        if rungs:
            grid = climb_rates(grid, rungs, run, how, journal)
        if any(contestant.tuning_trials < tune for contestant in grid):
            search = TuneContestant(data=whole, out=folder, trials=tune, sampler=sampler, cache=cache)
            before = grid
            grid, broken = search_settings(before, search, how)
            if planned.shared.cross_validated:
                grid = check_searched(before, grid, run, how, journal)
            for contestant, reason in broken:
                journal.append(run.failed(contestant, reason))
        if planned.shared.cross_validated:
            grid = try_twice_the_budget(grid, run, how, journal)
        tried = [record.key for record in journal.records if record.role == "rung"]
        run_grid("runs", grid, run, how, journal)
        for key in tried:  # rungs whose settings a search has changed
            run.forget(key)
        asked_for = {*baselines, *(run.key(contestant) for contestant in grid)}
        boards = boards_of(journal.runs(grid[0].recipe.trust), [folder], progress=progress)
        # Runs of earlier calls are rows too: every reader of a folder sees the same leaderboard.
        board = max(boards, key=lambda board: sum(each.record.key in asked_for for each in board.runs))
        board = replace(board, data=whole)
        keep_best(board, folder)
        return board


def _execution(
    stays_here: Sequence[str], jobs: int | None, ray: str | None, *, retry_failed: bool, progress: bool
) -> Execution:
    """Return how to execute runs; functions that other processes cannot import require running in this one."""
    if stays_here and (ray is not None or (jobs or 1) > 1):
        raise InputError(
            f"Other processes cannot import {', '.join(stays_here)}: define it in a file "
            "(def my_loss(...) in mine.py) and give mine.my_loss or 'mine.py:my_loss'; or compare with jobs=1."
        )
    if jobs is None:
        jobs = 1 if stays_here or torch.cuda.is_available() else min(4, cores())
    threads = max(1, cores() // jobs)
    processes = Processes(jobs, threads) if jobs > 1 and ray is None else None
    return Execution(jobs, threads, ray, retry_failed, progress, processes)


@contextmanager
def _stoppable(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one message that says how to resume."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        former = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: signals cannot be caught here
        former = None
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(
            f"The comparison was stopped. Finished runs are in {Journal(folder).path}: run the same command to resume."
        ) from None
    finally:
        if former is not None:
            signal.signal(signal.SIGTERM, former)
