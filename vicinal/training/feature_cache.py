"""Frozen features: computed once, kept on disk by content, so that what comes behind them trains in seconds."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal, final

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock, Timeout
from rich.console import Console
from torch import Tensor, nn

from vicinal._util.files import sync_folder
from vicinal._util.machine import cache_folder
from vicinal.backbones import cut
from vicinal.data import Dataset, describe
from vicinal.data.loader import open_items
from vicinal.embedder import Embedder, Head
from vicinal.embedder.encode import BatchOptions, embed_in_batches, evaluating, usual_workers
from vicinal.embedder.engines import EngineName, device_of, outline
from vicinal.errors import DataError, InputError, UnknownName

__all__ = [
    "ArrivingRows",
    "OneOf",
    "frozen_features",
    "missing_features",
    "read_rows",
    "usual_precision",
    "with_features",
]


# Rows of features in a file that is filled as they arrive: it survives a kill, and damage is noticed.
#
# A finished file is a NumPy array with the SHA-256 of all its bytes behind it: `numpy.load` reads it, mapped or not.
# While it is filled its name ends in `.part`, and beside it a `.rows` file says which rows are there: for each its
# number and the checksum of its bytes, so that a row counts only if it arrived whole.

ENTRY = struct.Struct("<II")  # number of the row, checksum of its bytes
DIGEST = hashlib.sha256().digest_size
Rows = npt.NDArray[np.floating[Any]]


def read_rows(path: Path, shape: tuple[int, int], dtype: npt.DTypeLike) -> Rows | None:
    """Return a finished file's rows, mapped into memory; None if it is absent, damaged or of another shape."""
    head, size = _layout(shape, dtype)
    try:
        if path.stat().st_size != size + DIGEST:
            return None
        with path.open("rb") as file:
            if file.read(len(head)) != head or _digest(file, size) != file.read(DIGEST):
                return None
        rows = np.memmap(path, dtype=dtype, mode="r", offset=len(head), shape=shape)
    except OSError:
        return None
    with suppress(OSError):  # of a process that was killed when the file had its name already
        path.with_suffix(".rows").unlink(missing_ok=True)
    return rows


@contextmanager
def explaining(folder: Path) -> Iterator[None]:
    """Say what can be done where a folder of features cannot be written to."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Could not keep features in {folder}: {error}.",
            hint="Free some space, or name another folder in VICINAL_CACHE; what was stored is kept.",
        ) from error


def _layout(shape: tuple[int, int], dtype: npt.DTypeLike) -> tuple[bytes, int]:
    """Return what a NumPy file of this kind begins with, and its length."""
    head = BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    )
    return head.getvalue(), len(head.getvalue()) + shape[0] * shape[1] * np.dtype(dtype).itemsize


def _digest(file: BinaryIO, size: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (chunk := file.read(min(size, 1 << 20))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.digest()


@final
class ArrivingRows:
    """The rows of one file while they arrive, by one process at a time; those of a killed process count.

    Args:
        path: Where the finished file will be.
        shape: Rows and numbers per row.
        dtype: Of the numbers.
    """

    def __init__(self, path: Path, shape: tuple[int, int], dtype: npt.DTypeLike) -> None:
        self.path, self.shape, self.dtype = path, shape, np.dtype(dtype)
        self._part, self._entries = path.with_suffix(".part"), path.with_suffix(".rows")
        self._head, self._size = _layout(shape, dtype)
        self._row_size = shape[1] * self.dtype.itemsize
        self.present = self._found()
        if self.present.all():  # a process was killed after the last row, before the file had its name
            with explaining(path.parent):
                self._finish()

    def _found(self) -> npt.NDArray[np.bool_]:
        present = np.zeros(self.shape[0], dtype=bool)
        with suppress(OSError), self._part.open("rb") as part:
            entries = self._entries.read_bytes()
            if part.read(len(self._head)) != self._head:
                return present
            for row, checksum in ENTRY.iter_unpack(entries[: len(entries) // ENTRY.size * ENTRY.size]):
                if row < len(present):
                    part.seek(len(self._head) + row * self._row_size)
                    present[row] = zlib.crc32(part.read(self._row_size)) == checksum
        return present

    @property
    def missing(self) -> npt.NDArray[np.int64]:
        """The rows that are still to come."""
        return np.flatnonzero(~self.present)

    def put(self, numbers: Sequence[int] | npt.NDArray[np.int64], rows: Rows) -> None:
        """Store some rows; when this returns, a kill does not lose them. The last ones finish the file."""
        with explaining(self.path.parent):
            fresh = not self.present.any()
            with self._part.open("wb" if fresh else "r+b") as part, self._entries.open("wb" if fresh else "ab") as log:
                if fresh:
                    part.write(self._head)
                else:  # a process may have been killed in the middle of an entry
                    log.truncate(log.tell() // ENTRY.size * ENTRY.size)
                entries = b""
                for number, row in zip(numbers, rows, strict=True):
                    content = np.ascontiguousarray(row, dtype=self.dtype).tobytes()
                    part.seek(len(self._head) + int(number) * self._row_size)
                    part.write(content)
                    entries += ENTRY.pack(int(number), zlib.crc32(content))
                part.flush()  # the rows first: an entry without its row would be found out, but cost a computation
                log.write(entries)
            self.present[np.asarray(numbers, dtype=np.int64)] = True
            if self.present.all():
                self._finish()

    def _finish(self) -> None:
        with self._part.open("r+b") as part:
            part.truncate(self._size)
            digest = _digest(part, self._size)
            part.seek(self._size)
            part.write(digest)
            part.flush()
            os.fsync(part.fileno())
        os.replace(self._part, self.path)
        sync_folder(self.path.parent)
        self._entries.unlink(missing_ok=True)


Kept = Literal["float32", "float16"]
Features = npt.NDArray[np.floating[Any]]

BATCH_SIZE = 32  # items per forward pass, at most; a batch may hold items of many classes
IN_MEMORY = 1 << 28  # bytes; larger arrays are mapped from a file, so that they need no memory


@final
@dataclass(frozen=True)
class _Part:
    """The features of one class in one copy: a file."""

    path: Path
    items: npt.NDArray[np.int64]
    copy: int
    seed: int


def frozen_features(
    embedder: Embedder,
    data: Dataset,
    transform: Callable[..., Tensor] | None,
    *,
    copies: int = 1,
    train_stages: int = 0,
    cache: Path | None = None,
    workers: int = 0,
    precision: Kept = "float32",
    engine: EngineName = "auto",
    progress: bool = True,
) -> Features:
    """Return the pooled features of every item, or the maps before its last stages, several times if they are random.

    The features of a class are a file named by the hash of all that they depend on (items, weights, transform,
    pooling), so that every loss, seed and split of the same data finds them. Rows are stored as they arrive: a run that
    was killed goes on with the row it was at. A file that is damaged is computed again. Of several processes that want
    the same features one computes them, and the others wait for it.

    Args:
        embedder: Its backbone and pooling are used, its head is not.
        data: The items.
        transform: From an item to a tensor.
        copies: How many random versions of each item.
        train_stages: How many of the backbone's last stages are left out; 0 gives pooled features.
        cache: Where to keep them, by default `cache_folder()`.
        workers: Threads that open items and run the network, if more than one per core are wanted.
        precision: "float16" takes half the space, on disk and in the array that is returned.
        engine: What runs the network, as in `Embedder.encode`.
        progress: Whether to show a bar.

    Returns:
        Features of shape [items, copies, channels], or maps of shape [items, copies, channels, height, width]; a large
        array is mapped from a file and needs no memory.
    """
    if precision not in ("float32", "float16"):
        raise UnknownName("precision", precision, ("float32", "float16"))
    folder = (cache or cache_folder()) / "features"
    with explaining(folder):
        folder.mkdir(parents=True, exist_ok=True)
    network, about = _standing_still(embedder, transform, train_stages, precision)
    shape = _shape(network[0], data, transform) if train_stages else (embedder.backbone.channels,)
    features = _room_for((len(data), copies, math.prod(shape)), precision, folder)
    left = _fill(features, _parts(data, copies, about, folder))
    if left:
        with _alone(folder / f"{_hash(about)}.lock", data.name, progress):
            left = _fill(features, left)  # another process may have computed them meanwhile
            _compute(network, data, transform, left, features, workers, engine, progress)
            left = _fill(features, left)
    if left:
        raise DataError(f"{left[0].path} was damaged or removed as soon as it was written.", hint="Run this again.")
    return features.reshape(len(data), copies, *shape)


def usual_precision(train_stages: int) -> Kept:
    """Return in what training keeps features: vectors whole, and maps, which are large, in half the space.

    Example:
        >>> usual_precision(0), usual_precision(2)
        ('float32', 'float16')
    """
    return "float16" if train_stages else "float32"


def missing_features(
    embedder: Embedder,
    data: Dataset,
    transform: Callable[..., Tensor] | None,
    *,
    copies: int = 1,
    train_stages: int = 0,
    cache: Path | None = None,
    precision: Kept = "float32",
) -> npt.NDArray[np.int64]:
    """Return the positions of the items whose features `frozen_features` would compute, once for each copy.

    Features are cached per class, so all items of a class are missing or none. The arguments are those of
    `frozen_features`.
    """
    _, about = _standing_still(embedder, transform, train_stages, precision)
    parts = _parts(data, copies, about, (cache or cache_folder()) / "features")
    return np.concatenate([np.empty(0, np.int64), *(part.items for part in parts if not part.path.exists())])


def _standing_still(
    embedder: Embedder, transform: Callable[..., Tensor] | None, train_stages: int, precision: Kept
) -> tuple[nn.Sequential, dict[str, Any]]:
    """Return the part that stands still with what makes rows of its output, and all that rows depend on but items."""
    behind: dict[str, Any]
    if train_stages == 0:  # a head that only pools: the network ends where the features are
        pooling = Head(embedder.backbone.channels, None, pooling=embedder.head.pooling, normalisation="none")
        network, behind = nn.Sequential(embedder.backbone, pooling), {"pooling": embedder.head.pooling}
    else:
        trunk, _ = cut(embedder.backbone, train_stages)
        network, behind = nn.Sequential(trunk, nn.Flatten()), {"stages": trunk.names}
    about = {
        "backbone": [embedder.name, embedder.options] if embedder.name else outline(embedder.backbone),
        "weights": _hash_of_weights(network[0]),
        "transform": None if transform is None else describe(transform),  # type: ignore[arg-type]
        **behind,
        "precision": precision,
    }
    return network, about


def _shape(trunk: nn.Module, data: Dataset, transform: Callable[..., Tensor] | None) -> tuple[int, ...]:
    """Return the shape of an item's maps, which depends on what the transform makes of it."""
    if transform is None:
        raise InputError(f"{data.name} holds {data.kind} without a transform: only images have maps.")
    item = open_items(data, transform, [0], [(0,)]).to(device_of(trunk))
    with evaluating(trunk), torch.inference_mode():
        return tuple(trunk(item).shape[1:])


def _parts(data: Dataset, copies: int, about: dict[str, Any], folder: Path) -> Iterator[_Part]:
    every = ((data.members(label), data.of_classes([label])) for label in data.classes.tolist())
    for items, of_class in [(np.arange(len(data)), data)] if data.has_sets else every:  # sets are in several classes
        content = of_class.hash()
        for copy in range(copies):
            name = _hash({**about, "items": content, "copy": copy})
            yield _Part(folder / f"{name}.npy", items, copy, int(content[:8], 16))


def _hash(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]


@contextmanager
def _alone(path: Path, name: str, progress: bool) -> Iterator[None]:
    """Hold a lock, which the system frees if this process is killed."""
    lock = FileLock(path)
    with explaining(path.parent):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if progress:
                Console(stderr=True).print(f"features of {name}: another process computes them; waiting for it")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _compute(
    network: nn.Module,
    data: Dataset,
    transform: Callable[..., Tensor] | None,
    parts: Sequence[_Part],
    like: Features,
    workers: int,
    engine: str,
    progress: bool,
) -> None:
    """Compute the rows that are missing, in batches that take no notice of where a class ends."""
    stores = [ArrivingRows(part.path, (len(part.items), like.shape[2]), like.dtype) for part in parts]
    which = np.repeat(np.arange(len(parts)), [len(store.missing) for store in stores])
    rows = np.concatenate([store.missing for store in stores]) if stores else np.empty(0, dtype=np.int64)

    def load(positions: range) -> Tensor:
        wanted = [(parts[which[i]], int(rows[i])) for i in positions]
        items = [int(part.items[row]) for part, row in wanted]
        if transform is None:
            if data.kind != "vectors":
                raise InputError(f"{data.name} holds {data.kind}; they need a transform, got None.")
            return torch.from_numpy(np.asarray(data.items)[items].astype(np.float32))
        return open_items(data, transform, items, [(part.copy, row, part.seed) for part, row in wanted])

    computed = embed_in_batches(
        network,
        len(rows),
        load,
        options=BatchOptions(
            BATCH_SIZE,
            max(workers, usual_workers()),
            engine,
            progress=progress,
            label=f"features of {data.name}",
        ),
    )
    for positions, features in computed:
        if np.abs(features).max(initial=0) > np.finfo(like.dtype).max:
            raise DataError(f"Features of {data.name} are too large for {like.dtype}.", hint="Keep them in float32.")
        span = slice(positions.start, positions.stop)
        for part in np.unique(which[span]):
            of_part = which[span] == part
            stores[part].put(rows[span][of_part], features[of_part])


def _room_for(shape: tuple[int, int, int], precision: Kept, folder: Path) -> Features:
    """Return an array to be filled: in memory, or if it is large in a file without a name, which goes when it does."""
    size = math.prod(shape) * np.dtype(precision).itemsize
    if size <= IN_MEMORY:
        return np.empty(shape, dtype=precision)
    with explaining(folder), tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # a full disk is told here; later it would end the process
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype=precision, mode="r+", shape=shape)


def _fill(features: Features, parts: Iterable[_Part]) -> list[_Part]:
    """Copy the rows of all files that are there and whole; return the other files."""
    left = []
    for part in parts:
        rows = read_rows(part.path, (len(part.items), features.shape[2]), features.dtype)
        if rows is None:
            left.append(part)
        else:
            features[part.items, part.copy] = rows
    return left


def with_features(data: Dataset, features: Features) -> Dataset:
    """Return the dataset with the items replaced by their features, all copies of an item side by side."""
    return replace(data, items=features.reshape(len(features), -1), boxes=None)


@final
@dataclass(frozen=True)
class OneOf:
    """Picks one of an item's copies at random: the transform of a dataset made by `with_features`.

    Attributes:
        copies: Of each item.
        shape: Of a copy, where it is no vector.
    """

    copies: int
    shape: tuple[int, ...] = (-1,)

    def __call__(self, vector: Features, rng: np.random.Generator) -> Tensor:
        """Return one copy."""
        return self.rows(vector[None], np.zeros(1, dtype=np.int64), rng)[0]

    def rows(self, vectors: Features, items: npt.NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """Return one copy of each of several items; of vectors mapped from a file no other copy is read."""
        chosen = rng.integers(self.copies, size=len(items))
        of_each = vectors.reshape(len(vectors), self.copies, -1)[items, chosen]
        return torch.from_numpy(of_each).float().reshape(len(items), *self.shape)


def _hash_of_weights(module: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
