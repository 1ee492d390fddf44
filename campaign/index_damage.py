"""The files of an index, damaged one at a time, and what an index is made of: told in words, or nothing is different.

    PYTHONPATH=.:campaign python campaign/index_damage.py --trials 500

What `verify` does not report must be what it was: items, vectors and answers. Files that are only a cache (layout,
codes) must never change an answer.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from common import RAW, WRONG, Tally, finish, little_memory, options, peak_memory, spoilt, timed
from PIL import Image
from pyarrow import parquet

from vicinal.embedder import Embedder
from vicinal.index import Index
from vicinal.index.exchange import read_vectors
from vicinal.index.item import Item
from vicinal.index.review import Review, ReviewFile
from vicinal.index.sources import as_source
from vicinal.index.stores import embedded as row_search
from vicinal.index.stores import open_store

ROWS, DIM = 600, 8
MUCH_MEMORY = 256 << 20


def vectors_index(folder: Path) -> dict[str, Path]:
    """Make an index of vectors with all of its caches; return its files by name."""
    row_search.WORTHWHILE = 1  # a layout is kept for large indexes alone
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, DIM))
    with Index.of_vectors(folder, rows, labels=["ab"[row % 2] for row in range(ROWS)]) as index:
        index.remove("id = 7")
        index.nearest(rows[:2], k=3)
        index.nearest(rows[:2], k=3, fast=True)
    return _files(folder)


def model_index(folder: Path) -> dict[str, Path]:
    """Make an index with an embedder; return its files by name."""
    photos = folder.parent / "photos"
    photos.mkdir()
    for number in range(3):
        Image.new("RGB", (9, 9), (number * 80, 0, 0)).save(photos / f"{number}.png")
    model = Embedder("convnet", dim=DIM, options={"widths": [4], "size": 8})
    Index.build(folder, model, photos).close()
    return {name: path for name, path in _files(folder).items() if "model" in name}


def _files(folder: Path) -> dict[str, Path]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith(".lock"))
    return {str(path.relative_to(folder)): path for path in found}


def read_all(folder: Path, queries: Any) -> tuple[list[str], Any]:
    """Open an index; return what `verify` says, and what is in it and what it answers."""
    with Index.open(folder) as index:
        problems = index.verify()
        items, vectors = index.get()
        exact = index.nearest(queries, k=5)
        if not index.embedder_hash:
            index.nearest(queries, k=5, fast=True)
        else:
            index.embedder()
        return problems, (repr(items), vectors.tobytes(), exact[0].tolist(), exact[1].tolist())


def damaged_folders(trials: int, seed: int) -> Tally:
    """Damage every file of an index."""
    tally = Tally("damaged indexes")
    queries = np.random.default_rng(1).normal(size=(4, DIM)).astype(np.float32)
    for make in (vectors_index, model_index):
        with tempfile.TemporaryDirectory() as place, timed(tally), little_memory():
            sound = Path(place) / "sound.index"
            names = list(make(sound))
            _, intended = read_all(sound, queries)
            for name in names:
                content = (sound / name).read_bytes()
                for trial in range(seed, seed + trials):
                    folder = Path(place) / "x.index"
                    shutil.copytree(sound, folder)
                    (folder / name).write_bytes(spoilt(content, np.random.default_rng([trial, 13])))
                    before = peak_memory()
                    read = tally.attempt(name, trial, lambda folder=folder: read_all(folder, queries))  # type: ignore[misc]
                    if isinstance(read, tuple) and not read[0] and read[1] != intended:
                        tally.note(name, WRONG, f"seed {trial}: other items or answers, and verify says nothing")
                    if peak_memory() - before > MUCH_MEMORY:
                        tally.note(name, RAW, f"seed {trial}: takes {(peak_memory() - before) >> 20:,} MiB of memory")
                    shutil.rmtree(folder)
    return tally


def damaged_inputs(trials: int, seed: int) -> Tally:
    """Damage every kind of file that an index is made of, or that lies beside it."""
    tally = Tally("damaged inputs of an index")
    with tempfile.TemporaryDirectory() as place, timed(tally), little_memory():
        folder = Path(place)
        rows = np.random.default_rng(0).normal(size=(6, DIM)).astype(np.float32)
        (folder / "list.txt").write_text("a.png\tcat\nb.png\tdog\n")
        (folder / "table.csv").write_text("path,label,year\na.png,cat,2020\nb.png,dog,\n")
        parquet.write_table(pyarrow.table({"path": ["a.png", "b.png"], "year": [1, 2]}), folder / "table.parquet")
        with Index.of_vectors(folder / "x.index", rows) as index:
            index.export(folder / "vectors.parquet")
            index.export(folder / "vectors.npz")
        np.save(folder / "vectors.npy", rows)
        ReviewFile(folder / "review.csv").add(Item(1, label="cat"), Review("1", "keep"))
        (folder / "store.json").write_text(json.dumps({"url": "nowhere://127.0.0.1:1", "name": "x"}))
        readers: dict[str, Callable[[Path], object]] = {
            **dict.fromkeys(("list.txt", "table.csv", "table.parquet"), lambda path: as_source(str(path))),
            **dict.fromkeys(("vectors.parquet", "vectors.npz", "vectors.npy"), read_vectors),
            "review.csv": lambda path: ReviewFile(path).latest(),
            "store.json": lambda path: open_store(path.parent),
        }
        for name, reader in readers.items():
            content = (folder / name).read_bytes()
            for trial in range(seed, seed + trials):
                (folder / name).write_bytes(spoilt(content, np.random.default_rng([trial, 14])))
                tally.attempt(name, trial, lambda name=name, reader=reader: reader(folder / name))  # type: ignore[misc]
    return tally


def every(trials: int, seed: int) -> list[Tally]:
    """Both."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return [damaged_folders(trials, seed), damaged_inputs(trials, seed)]


if __name__ == "__main__":
    flags = options(__doc__ or "", usual=500)
    finish(every(flags.trials, flags.seed))
