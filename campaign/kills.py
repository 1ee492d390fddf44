"""Kill training, searches and comparisons at random moments, and go on: nothing may be lost or different.

    python campaign/kills.py --trials 40
    python campaign/kills.py --trials 1 --seed 3001 --only tune "compare, 2 jobs"

Each trial starts the work in a process of its own, ends it by KILL, TERM or INT, starts it again, and so on until it
comes to its end; then all that it left is compared with the work that was never disturbed. It is ended after a random
time, or when it touches its folder or its database for the n-th time (opens, renames, removes, syncs, executes,
commits: where most can be lost). A signal is sent to the process alone, to all of its group, or to one of its workers
alone. A trial counts once; the number of kills is in the name of its row.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from common import SOUND, WRONG, Tally, finish, options, timed
from sqlalchemy import Engine, event

from vicinal.comparing import compare
from vicinal.data import Split, arrays, digits, split
from vicinal.errors import Interrupted, VicinalError
from vicinal.runs import Run, read_journals
from vicinal.runs._train import fit
from vicinal.runs.recipe import Recipe
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.log import read_log
from vicinal.tuning import tune

forks = multiprocessing.get_context("fork")  # a new interpreter would take seconds to import torch
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EXPLAINED, INTERRUPTED = 2, 130  # the exit codes of the command line; 1 is a traceback, and a fault
CLOCKS = {"seconds", "finished", "peak_memory_mib", "images_per_second", "command", "sha256"}
SHARE = 0.15  # of the time, and of the touches, of undisturbed work: a kill comes before so much is done
MOST = 40  # kills of one trial
PATIENCE = 300  # seconds after which work that nobody disturbs hangs
Work = Callable[[Path], None]


def blobs() -> Split:
    """Feature vectors of classes that lie apart."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 6)
    vectors = rng.normal(size=(72, 5)) + rng.normal(size=(12, 5))[labels]
    return split(arrays(vectors.astype(np.float32), labels, name="blobs"), "fixed-validation", validation=0.4)


def train(folder: Path, workers: int = 0) -> None:
    """Train a small network."""
    fit(
        split(digits(), "fixed-validation", validation=0.4),
        folder=folder / "run",
        resume=True,
        workers=workers,
        progress=False,
        loss="proxy_anchor",
        memory=50,
        memory_start=10,
        backbone_options={"widths": [4, 8], "size": 16},
        dim=8,
        classes_per_batch=3,
        steps=40,
        evaluate_every=10,
        checkpoint_every=4,
        log_every=5,
    )


def train_with_workers(folder: Path) -> None:
    """Train with processes that decode."""
    train(folder, workers=2)


def search(folder: Path) -> None:
    """Search for the settings of a loss."""
    recipe = Recipe(loss="triplet", backbone="linear", dim=4, classes_per_batch=3).changed(steps=4, evaluate_every=2)
    tuned = tune(blobs(), recipe, trials=9, storage=folder / "search.db", progress=False)
    told = [(trial.number, trial.state, dict(trial.values), dict(trial.curve)) for trial in tuned.trials]
    (folder / "found.json").write_text(json.dumps(told))


def contest(folder: Path, **how: Any) -> None:
    """Compare two losses."""
    compare(
        "digits",
        ["triplet", "proxy_anchor"],
        out=folder,
        steps=10,
        evaluate_every=5,
        dim=8,
        classes_per_batch=2,
        backbone_options={"widths": [4, 8], "size": 16},
        progress=False,
        **{"jobs": 1, **how},
    )


def contest_in_processes(folder: Path) -> None:
    """Compare two losses side by side, in processes that are started anew."""
    contest(folder, jobs=2)


WORKS: dict[str, tuple[Work, float]] = {  # and how many trials of each there are for one of training
    "train": (train, 1.0),
    "train, 2 workers": (train_with_workers, 0.5),
    "tune": (search, 1.0),
    "compare": (contest, 0.5),
    "compare, 2 jobs": (contest_in_processes, 0.05),
}


def left(folder: Path) -> dict[str, Any]:
    """All that matters of what work has left: weights, scores, logs and settings, without what clocks say."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix in (".safetensors", ".npz", ".toml"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.name == "metrics.jsonl":
            found[name] = [_timeless(line) for line in read_log(path)]
        elif path.name == "record.json":
            found[name] = _timeless(Run.open(path.parent).record.model_dump(mode="json"))
        elif path.name == "found.json":
            found[name] = _timeless(json.loads(path.read_text()))
        elif path.suffix == ".ckpt":
            state = load_checkpoint(path)
            found[name] = repr(
                _timeless({**state, "run": None, "progress": {**state.get("progress", {}), "run": None}})
            )
        elif path.suffix == ".partial":
            found[name] = "left behind"
    if (folder / "journal.jsonl").exists():
        runs = read_journals([folder])
        found["journal"] = {run.record.key: _timeless(run.record.model_dump(mode="json")) for run in runs}
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items() if name not in CLOCKS}
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


@dataclass
class Undisturbed:
    """What work leaves that nobody ends, how long it takes, and how often it touches its folder."""

    expected: dict[str, Any]
    seconds: float
    touches: int


def _in_process(work: Work, folder: Path, touched: Callable[[], None] | None = None, notes: Path | None = None) -> Any:
    """Start work in a process and a group of its own.

    Args:
        work: To be done.
        folder: In which.
        touched: Called whenever the work is about to open, rename, remove or list something in its folder, or to sync.
        notes: Of a file that takes the names of the modules which the work has imported.
    """

    def child() -> None:
        os.setpgid(0, 0)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        if touched is not None:
            _watch(str(folder), touched)
        try:
            work(folder)
        except (Interrupted, KeyboardInterrupt):
            os._exit(INTERRUPTED)
        except VicinalError as error:  # explained, as the command line does
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(EXPLAINED)
        if notes is not None:
            notes.write_text("\n".join(sys.modules))

    process = forks.Process(target=child)
    process.start()
    return process


def _watch(folder: str, touched: Callable[[], None]) -> None:
    """Call a function before this process touches a folder or a database, and before and after each of its syncs."""
    sync = os.fsync

    def syncing(file: int) -> None:
        touched()
        sync(file)
        touched()

    def heard(_: str, words: tuple[Any, ...]) -> None:
        if any(isinstance(word, str) and word.startswith(folder) for word in words[:2]):
            touched()

    os.fsync = syncing
    sys.addaudithook(heard)
    for moment in ("before_cursor_execute", "commit"):  # SQLite opens and syncs its files by itself
        event.listen(Engine, moment, lambda *_: touched())


def _ending(chosen: signal.Signals, after: int, group: bool, struck: Any) -> Callable[[], None]:
    """What ends the process that calls it for the n-th time, alone or with all of its group, and notes that it does."""
    calls = itertools.count(1)

    def touched() -> None:
        if next(calls) == after:
            struck.value = 1
            os.kill(0 if group else os.getpid(), chosen)

    return touched


def undisturbed(work: Work) -> Undisturbed:
    """Do work to its end, twice: the first time tells what it imports, which need not be done again after each kill."""
    with tempfile.TemporaryDirectory() as place, tempfile.NamedTemporaryFile(mode="r") as notes:
        _in_process(work, Path(place), notes=Path(notes.name)).join()
        imported = notes.read().split()
    for name in imported:
        with contextlib.suppress(Exception):  # some can be imported by others only
            importlib.import_module(name)
    with tempfile.TemporaryDirectory() as place:
        touches = forks.RawValue("i", 0)

        def touched() -> None:
            touches.value += 1

        began = time.perf_counter()
        process = _in_process(work, Path(place), touched)
        process.join()
        seconds = time.perf_counter() - began
        assert process.exitcode == 0, f"work that nobody disturbs ends with exit code {process.exitcode}"
        return Undisturbed(left(Path(place)), seconds, touches.value)


def _workers(process: Any) -> list[psutil.Process]:
    """The processes that another has started; none if it has just ended."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def _end(process: Any, chosen: signal.Signals, rng: np.random.Generator) -> None:
    """Send a signal to a process alone, to all of its group as Ctrl-C does, or to one of its workers alone."""
    whom, workers = int(rng.integers(3)), _workers(process)
    if whom == 0 and workers:
        with contextlib.suppress(psutil.Error):
            workers[int(rng.integers(len(workers)))].send_signal(chosen)
    elif whom == 1:
        os.killpg(process.pid, chosen)
    else:
        os.kill(process.pid, chosen)


def disturbed(work: Work, folder: Path, usual: Undisturbed, rng: np.random.Generator) -> tuple[int, str]:
    """Do work with interruptions until it is done; return how many there were, and what went wrong."""
    kills, share = 0, SHARE
    for _ in range(3 * MOST):
        chosen, struck = SIGNALS[int(rng.integers(3))], forks.RawValue("i", 0)
        if kills >= MOST:
            process = _in_process(work, folder)
        elif rng.integers(2):
            after = 1 + int(rng.integers(1 + int(share * usual.touches)))
            process = _in_process(work, folder, _ending(chosen, after, bool(rng.integers(2)), struck))
        else:
            process = _in_process(work, folder)
            process.join(float(rng.uniform(0.0, share * usual.seconds)))
            if process.exitcode is None:
                struck.value = 1
                _end(process, chosen, rng)
        process.join(PATIENCE)
        kills += struck.value
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
            return kills, "it hangs"
        if process.exitcode == 0:
            return kills, ""
        if process.exitcode not in {EXPLAINED, INTERRUPTED, *([-chosen] if struck.value else [])}:
            return kills, f"exit code {process.exitcode}"
        share *= 1.15  # so that a slow machine comes to its next checkpoint sooner or later
    return kills, "it does not come to its end"


def every(trials: int, seed: int, names: tuple[str, ...] = tuple(WORKS)) -> list[Tally]:
    """Disturb all kinds of work."""
    tally = Tally("kills")
    with timed(tally):
        for name in names:
            work, share = WORKS[name]
            usual = undisturbed(work)
            kills, outcomes = 0, []
            for trial in range(seed, seed + max(1, round(trials * share))):
                with tempfile.TemporaryDirectory() as place:
                    rng = np.random.default_rng([trial, 4])
                    count, fault = disturbed(work, Path(place), usual, rng)
                    found = left(Path(place))
                different = [key for key in {**usual.expected, **found} if usual.expected.get(key) != found.get(key)]
                kills += count
                outcomes.append((WRONG if fault or different else SOUND, f"seed {trial}: {fault} {different}"))
                print(f"{name}: {kills:,} kills, {outcomes[-1]}", file=sys.stderr, flush=True)
            for outcome, detail in outcomes:
                tally.note(f"{name}: {kills:,} kills", outcome, detail)
    return [tally]


if __name__ == "__main__":
    flags = options(__doc__ or "", usual=40, only=tuple(WORKS))
    finish(every(flags.trials, flags.seed, tuple(flags.only)))
