"""Frozen features: computed once and cached on disk by content, so that the rest of a network trains in seconds."""

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


# Rows of features in a file that is written row by row; a killed process loses no rows, and corruption is detected.
#
# A finished file is a NumPy array followed by the SHA-256 of all its bytes: `numpy.load` reads it, mapped or not. While
# it is incomplete, its name ends in `.part`, and a `.rows` file next to it lists the rows that are present: the number
# of each and the checksum of its bytes, so that incomplete rows are ignored.

ENTRY = struct.Struct("<II")  # number of the row, checksum of its bytes
DIGEST = hashlib.sha256().digest_size
Rows = npt.NDArray[np.floating[Any]]


def read_rows(path: Path, shape: tuple[int, int], dtype: npt.DTypeLike) -> Rows | None:
    """Return a finished file's rows, memory-mapped; None if it is missing, corrupted or of another shape."""
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
    with suppress(OSError):  # left by a process that was killed after renaming the file
        path.with_suffix(".rows").unlink(missing_ok=True)
    return rows


@contextmanager
def explaining(folder: Path) -> Iterator[None]:
    """Replace errors of writing to a folder of features by a message with a hint."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Could not cache features in {folder}: {error}.",
            hint="Free some space, or set VICINAL_CACHE to another folder; stored features are kept.",
        ) from error


def _layout(shape: tuple[int, int], dtype: npt.DTypeLike) -> tuple[bytes, int]:
    """Return the header of a NumPy file with such an array, and the length of the file."""
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
    """An incomplete file of rows, written by one process at a time; rows of a killed process are reused.

    Args:
        path: Path of the finished file.
        shape: Number of rows, and of numbers per row.
        dtype: Type of the numbers.
    """

    def __init__(self, path: Path, shape: tuple[int, int], dtype: npt.DTypeLike) -> None:
        self.path, self.shape, self.dtype = path, shape, np.dtype(dtype)
        self._part, self._entries = path.with_suffix(".part"), path.with_suffix(".rows")
        self._head, self._size = _layout(shape, dtype)
        self._row_size = shape[1] * self.dtype.itemsize
        self.present = self._present_rows()
        if self.present.all():  # a process was killed between the last row and the renaming
            with explaining(path.parent):
                self._finish()

    def _present_rows(self) -> npt.NDArray[np.bool_]:
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
        """Numbers of the missing rows."""
        return np.flatnonzero(~self.present)

    def put(self, numbers: Sequence[int] | npt.NDArray[np.int64], rows: Rows) -> None:
        """Store some rows, which survive if the process is killed afterwards. The last ones complete the file."""
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
                part.flush()  # rows first: an entry without its row would be detected, and the row computed again
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


Precision = Literal["float32", "float16"]
Features = npt.NDArray[np.floating[Any]]

BATCH_SIZE = 32  # items per forward pass, at most; a batch may hold items of many classes
IN_MEMORY = 1 << 28  # bytes; larger arrays are memory-mapped


@final
@dataclass(frozen=True)
class _Part:
    """File with the features of one copy of one class."""

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
    precision: Precision = "float32",
    engine: EngineName = "auto",
    progress: bool = True,
) -> Features:
    """Return the pooled features of every item, or the maps before the last stages, for one or several copies.

    The features of a class are in a file named by the hash of everything that they depend on (items, weights,
    transform, pooling), so that every loss, seed and split of the same data reuses them. Rows are stored one by one: a
    killed run resumes with the next row. A corrupted file is computed again. If several processes need the same
    features, one computes them and the others wait.

    Args:
        embedder: Embedder whose backbone and pooling are used, but not its head.
        data: Items.
        transform: Function that turns an item into a tensor.
        copies: Number of random versions of each item.
        train_stages: Number of the backbone's last stages to leave out; 0 returns pooled features.
        cache: Folder of the cache, by default `cache_folder()`.
        workers: Number of threads that open items and run the network; at least one per core.
        precision: Number format, on disk and in the returned array; "float16" takes half the space.
        engine: Engine that runs the network, as in `Embedder.encode`.
        progress: Whether to show a bar.

    Returns:
        Features of shape [items, copies, channels], or maps of shape [items, copies, channels, height, width]; a large
        array is memory-mapped.
    """
    if precision not in ("float32", "float16"):
        raise UnknownName("precision", precision, ("float32", "float16"))
    folder = (cache or cache_folder()) / "features"
    with explaining(folder):
        folder.mkdir(parents=True, exist_ok=True)
    network, about = _frozen_part(embedder, transform, train_stages, precision)
    shape = _shape(network[0], data, transform) if train_stages else (embedder.backbone.channels,)
    features = _room_for((len(data), copies, math.prod(shape)), precision, folder)
    left = _fill(features, _parts(data, copies, about, folder))
    if left:
        with _alone(folder / f"{_hash(about)}.lock", data.name, progress):
            left = _fill(features, left)  # another process may have computed them meanwhile
            _compute(network, data, transform, left, features, workers, engine, progress)
            left = _fill(features, left)
    if left:
        raise DataError(
            f"{left[0].path} was corrupted or removed immediately after it was written.", hint="Run this again."
        )
    return features.reshape(len(data), copies, *shape)


def usual_precision(train_stages: int) -> Precision:
    """Return the precision of cached features: float32 for vectors, and float16 for maps, which are large.

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
    precision: Precision = "float32",
) -> npt.NDArray[np.int64]:
    """Return the positions of the items whose features `frozen_features` would compute, once for each copy.

    Features are cached per class, so all items of a class are missing or none. The arguments are those of
    `frozen_features`.
    """
    _, about = _frozen_part(embedder, transform, train_stages, precision)
    parts = _parts(data, copies, about, (cache or cache_folder()) / "features")
    return np.concatenate([np.empty(0, np.int64), *(part.items for part in parts if not part.path.exists())])


def _frozen_part(
    embedder: Embedder, transform: Callable[..., Tensor] | None, train_stages: int, precision: Precision
) -> tuple[nn.Sequential, dict[str, Any]]:
    """Return the frozen part with its pooling or flattening, and everything except items that features depend on."""
    output: dict[str, Any]
    if train_stages == 0:  # a head that only pools
        pooling = Head(embedder.backbone.channels, None, pooling=embedder.head.pooling, normalisation="none")
        network, output = nn.Sequential(embedder.backbone, pooling), {"pooling": embedder.head.pooling}
    else:
        trunk, _ = cut(embedder.backbone, train_stages)
        network, output = nn.Sequential(trunk, nn.Flatten()), {"stages": trunk.names}
    about = {
        "backbone": [embedder.name, embedder.options] if embedder.name else outline(embedder.backbone),
        "weights": _hash_of_weights(network[0]),
        "transform": None if transform is None else describe(transform),  # type: ignore[arg-type]
        **output,
        "precision": precision,
    }
    return network, about


def _shape(trunk: nn.Module, data: Dataset, transform: Callable[..., Tensor] | None) -> tuple[int, ...]:
    """Return the shape of an item's maps, which depends on the transform."""
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
    """Hold a lock, which the system releases if this process is killed."""
    lock = FileLock(path)
    with explaining(path.parent):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if progress:
                Console(stderr=True).print(f"features of {name}: waiting for another process that computes them")
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
    """Compute the missing rows, in batches that may contain several classes."""
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
            raise DataError(f"Features of {data.name} are too large for {like.dtype}.", hint="Use precision='float32'.")
        span = slice(positions.start, positions.stop)
        for part in np.unique(which[span]):
            of_part = which[span] == part
            stores[part].put(rows[span][of_part], features[of_part])


def _room_for(shape: tuple[int, int, int], precision: Precision, folder: Path) -> Features:
    """Return an empty array: in memory, or if it is large in a temporary file, which is removed with the array."""
    size = math.prod(shape) * np.dtype(precision).itemsize
    if size <= IN_MEMORY:
        return np.empty(shape, dtype=precision)
    with explaining(folder), tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # reports a full disk here; a later write would crash the process
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype=precision, mode="r+", shape=shape)


def _fill(features: Features, parts: Iterable[_Part]) -> list[_Part]:
    """Copy the rows of all intact files; return the missing or corrupted ones."""
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
        copies: Number of copies of each item.
        shape: Shape of a copy, if it is not a vector.
    """

    copies: int
    shape: tuple[int, ...] = (-1,)

    def __call__(self, vector: Features, rng: np.random.Generator) -> Tensor:
        """Return one copy."""
        return self.rows(vector[None], np.zeros(1, dtype=np.int64), rng)[0]

    def rows(self, vectors: Features, items: npt.NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """Return one copy of each of several items; other copies in a memory-mapped file are not read."""
        chosen = rng.integers(self.copies, size=len(items))
        of_each = vectors.reshape(len(vectors), self.copies, -1)[items, chosen]
        return torch.from_numpy(of_each).float().reshape(len(items), *self.shape)


def _hash_of_weights(module: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
