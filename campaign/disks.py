"""Full disks and places that cannot be written to: told in words, what was there stays, nothing half is left.

    python campaign/disks.py --trials 300

A full disk is a limit on the size of files, which the system reports as it reports a disk that is full.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from common import WRONG, Tally, finish, options, timed
from matplotlib.figure import Figure

from vicinal._util.files import write_atomically
from vicinal.cli.output import save_figure
from vicinal.embedder import Embedder
from vicinal.errors import VicinalError
from vicinal.evaluation import evaluate
from vicinal.index import Index
from vicinal.runs import Journal, Record, Run
from vicinal.runs.recipe import Recipe
from vicinal.runs.run import EmbeddedItems
from vicinal.training.checkpoint import save_checkpoint
from vicinal.training.feature_cache import ArrivingRows

Writer = Callable[[Path], object]


def writers() -> dict[str, Writer]:
    """Return what writes each kind of file into a folder."""
    recipe = Recipe(data="digits").model_dump(mode="json")
    record = Record(key="a", name="n", status="done", recipe=recipe)
    embedder = Embedder("convnet", dim=4, options={"widths": [4], "size": 8})
    scores = evaluate([[1.0], [2.0], [-1.0], [-2.0]], [0, 0, 1, 1], intervals=None)
    items = EmbeddedItems(np.ones((9, 9), dtype=np.float32), np.zeros(9, dtype=np.int64), None)
    return {
        "text": lambda folder: write_atomically(folder / "a.txt", "a" * 3000),
        "checkpoint": lambda folder: save_checkpoint(folder / "last.ckpt", {"weights": torch.ones(900)}),
        "model": lambda folder: embedder.save(folder / "model"),
        "journal": lambda folder: Journal(folder).append(record),
        "figure": lambda folder: save_figure(Figure(), folder / "a.png"),
        "scores": lambda folder: scores.to_json(folder / "a.json"),
        "test items": lambda folder: Run(record, folder).save_test_items(items),
        "features": lambda folder: ArrivingRows(folder / "f.npy", (3, 900), "float32").put(
            [0, 1, 2], np.ones((3, 900))
        ),
    }


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder but locks, and what is kept of features so far."""
    kept = (".lock", ".part", ".rows")
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(kept))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


CHANGES: dict[str, Callable[[Index], object]] = {
    "add": lambda index: index.add(vectors=np.ones((200, 8)), ids=list(range(100, 300))),
    "update": lambda index: index.update("id < 9", {"label": "other"}),
    "remove": lambda index: index.remove("id < 9"),
    "compact": lambda index: index.compact(),
}


def held(index: Index) -> tuple[str, bytes]:
    """All that is in an index, which must be sound."""
    assert index.verify() == []
    items, vectors = index.get()
    return repr(items), vectors.tobytes()


def one_full_index(folder: Path, change: Callable[[Index], object], trial: int, tally: Tally, name: str) -> None:
    """Change an index on a disk that is full; it then holds what it held or what was asked for, and goes on."""
    room = int(np.random.default_rng([trial, 15]).integers(60_000))
    rows = np.random.default_rng(0).normal(size=(40, 8))
    for place in ("tried", "clean"):
        Index.of_vectors(folder / place, rows).close()
    with Index.open(folder / "clean") as index:
        before = held(index)
        change(index)
        after = held(index)
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Index.open(folder / "tried") as index:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, allowed[1]))
        try:
            tally.attempt(name, trial, lambda: change(index))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    with Index.open(folder / "tried") as index:
        assert held(index) in (before, after), "neither what was there nor what was asked for"
        change(index)  # with room again everything goes on
        assert held(index) == after


def full_indexes(trials: int, seed: int) -> Tally:
    """Change an index on a disk that is full."""
    tally = Tally("full disks of an index")
    with timed(tally):
        for name, change in CHANGES.items():
            for trial in range(seed, seed + trials):
                with tempfile.TemporaryDirectory() as place:
                    try:
                        one_full_index(Path(place), change, trial, tally, name)
                    except (AssertionError, VicinalError) as error:
                        tally.note(name, WRONG, f"seed {trial}: {error}")
    return tally


def every(trials: int, seed: int) -> list[Tally]:
    """Write everything to disks that are full or not to be written to."""
    full, closed = Tally("full disks"), Tally("closed places")
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name, write in writers().items():
        for trial in range(seed, seed + trials):
            with tempfile.TemporaryDirectory() as place, timed(full):
                folder, clean = Path(place) / "tried", Path(place) / "clean"
                folder.mkdir()
                clean.mkdir()
                write(clean)
                if trial % 2:
                    write(folder)
                    write(clean)
                before, intact = content(folder), content(clean)
                room = int(np.random.default_rng([trial, 3]).integers(4000))
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, allowed[1]))
                try:
                    full.attempt(name, trial, lambda write=write, folder=folder: write(folder))  # type: ignore[misc]
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
                after = content(folder)
                lost = [path for path in before if path not in after]
                half = [path for path, data in after.items() if data not in (before.get(path), intact.get(path))]
                if lost or half:
                    full.note(name, WRONG, f"seed {trial}: lost {lost}, half-written {half}")
                write(folder)  # with room again everything goes on
        with tempfile.TemporaryDirectory() as place, timed(closed):
            (Path(place) / "file").touch()
            for folder in (Path(place) / "file" / "below", Path("/proc/none"), Path(place) / ("n" * 300)):
                closed.attempt(name, seed, lambda write=write, folder=folder: write(folder))  # type: ignore[misc]
    return [full, closed, full_indexes(trials, seed)]


if __name__ == "__main__":
    os.umask(0o022)
    torch.set_num_threads(1)
    flags = options(__doc__ or "", usual=300)
    finish(every(flags.trials, flags.seed))
