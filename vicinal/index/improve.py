"""Improvement of an index: whitening and augmentation that every search applies, stored in improvement.npz."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float32, Float64
from numpy.typing import NDArray

from vicinal._util.files import CachedFile, replacing
from vicinal._util.reading import reading
from vicinal.errors import DataError, InputError
from vicinal.index.filters import Condition
from vicinal.index.item import Header, Id, Item
from vicinal.index.stores.store import Answer, Store
from vicinal.neighbours import Searcher, Whitening, augment_references, learn_whitening

__all__ = ["ImprovedStore", "ImprovedStores", "Improvement", "as_improvement", "carry_over"]


FILE = "improvement.npz"
MOST = 1000  # largest number of neighbours for augmentation


@final
@dataclass(frozen=True, eq=False)
class Improvement:
    """Transformation of the vectors before search.

    Attributes:
        whitening: Whitening of queries and items, applied first; None for none.
        augment: Number of nearest items that each item is then averaged with; 0 for none.
    """

    whitening: Whitening | None = None
    augment: int = 0

    def __str__(self) -> str:
        parts = [] if self.whitening is None else [f"whitened to {len(self.whitening.axes)} dimensions"]
        if self.augment:
            parts.append(f"augmented by {self.augment}")
        return ", ".join(parts)

    def of_queries(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n e"]:
        """Return the transformed queries."""
        return self._whitened(rows).astype(np.float32)

    def of_items(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n e"]:
        """Return the transformed items. It takes all items, since augmentation depends on the others."""
        better = self._whitened(rows)
        if self.augment and len(better):
            better = augment_references(better, count=self.augment).numpy()
        return better.astype(np.float32)

    def content(self) -> bytes:
        """Return the content of the file."""
        arrays: dict[str, Any] = {"augment": np.array(self.augment)}
        if self.whitening is not None:
            arrays |= self.whitening._asdict()
        written = io.BytesIO()
        np.savez(written, **arrays)
        return written.getvalue()

    def _whitened(self, rows: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n e"]:
        return rows.astype(np.float64) if self.whitening is None else self.whitening.apply(rows)


def as_improvement(whiten: Any, augment: int, dim: int, distance: str) -> Improvement | None:
    """Check the arguments of `Index.improve` and return the improvement.

    Args:
        whiten: A whitening, or the vectors to learn one from; None for none.
        augment: Number of neighbours that each item is averaged with.
        dim: Dimension of the index's vectors.
        distance: Distance of the index.

    Returns:
        The improvement, or None if none is requested.
    """
    if not 0 <= augment <= MOST:
        raise InputError(f"augment must be from 0 to {MOST:,}; got {augment}.")
    whitening = whiten if whiten is None or isinstance(whiten, Whitening) else learn_whitening(whiten)
    if whitening is None and not augment:
        return None
    if whitening is not None and len(whitening.mean) != dim:
        raise InputError(f"The whitening was learned from {len(whitening.mean)} dimensions; the index has {dim}.")
    if whitening is None and distance != "cosine":
        raise InputError("augment needs the cosine distance, or whiten.")
    return Improvement(whitening, augment)


def carry_over(generation: Path, building: Path) -> None:
    """Copy the improvement to the next generation, whose vectors are the same."""
    if (generation / FILE).is_file():
        shutil.copyfile(generation / FILE, building / FILE)


@final
class CachedImprovement:
    """Caches the improvement of the current generation; reads it again after another process has written it."""

    def __init__(self) -> None:
        self._read: tuple[Path, tuple[int, int], tuple[Improvement, str]] | None = None

    def of(self, generation: Path) -> tuple[Improvement, str] | None:
        """Return the improvement and its checksum; None if the original vectors are searched."""
        path, cached = generation / FILE, self._read
        try:
            file = path.stat()
        except FileNotFoundError:
            return None
        written = file.st_mtime_ns, file.st_ino
        if cached is None or cached[:2] != (path, written):
            cached = self._read = path, written, _from_file(path)
        return cached[2]

    def keep(self, generation: Path, improvement: Improvement | None) -> None:
        """Write an improvement; None goes back to the original vectors."""
        if improvement is None:
            (generation / FILE).unlink(missing_ok=True)
            return
        with replacing(generation / FILE) as file:
            file.write(improvement.content())

    def problems(self, generation: Path) -> list[str]:
        """Return what is wrong with the file, one sentence per problem."""
        try:
            if os.path.isfile(generation / FILE):
                _from_file(generation / FILE)
        except DataError as error:
            return [str(error).splitlines()[0]]
        return []


def _from_file(path: Path) -> tuple[Improvement, str]:
    hint = (
        "Restore it from a copy, or say again what searches should do: index.improve(...), vicinal index improve "
        "FOLDER, or vicinal index plain FOLDER."
    )
    with reading(path, "what searches do for better neighbours", hint):
        content = path.read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            whitening = Whitening(arrays["mean"], arrays["axes"]) if "mean" in arrays else None
            improvement = Improvement(whitening, int(arrays["augment"]))
        if whitening is not None and (whitening.axes.ndim, whitening.mean.shape) != (2, whitening.axes.shape[1:]):
            raise ValueError("mean and axes do not fit each other")
    return improvement, hashlib.sha256(content).hexdigest()


# Search by improved vectors. They are computed for all items once per state of a store and cached next to it:
# improved.f32 holds the vectors, improved.json the state and the improvement that they were made from.

ROWS = "improved.f32"
VERSION = 2
ATTEMPTS = 5


@final
class ImprovedStore:
    """Store as a search sees it when its vectors are improved; search among the improved vectors is exact.

    Args:
        store: Store of the items, with their original vectors.
        improvement: Improvement of the vectors.
        state: Name of the state of the store and the improvement.
        version: Version of the store.
        ids: Ids of all items, in order.
        rows: Improved vectors of all items.
    """

    def __init__(
        self,
        store: Store,
        improvement: Improvement,
        state: str,
        version: int | str,
        ids: list[Id],
        rows: Float32[np.ndarray, "n e"],
    ) -> None:
        self.improvement, self.state = improvement, state
        self.header = Header(rows.shape[1], "cosine", store.header.embedder)
        self._store, self._version, self._ids, self._rows = store, version, ids, rows
        self._place_of = {key: position for position, key in enumerate(ids)}
        self._searcher = Searcher(rows) if len(rows) else None
        self._filter: tuple[str, Bool[np.ndarray, " n"]] | None = None

    def is_current(self) -> bool:
        """Return whether the store is unchanged."""
        return self._store.version() == self._version

    def search(
        self,
        queries: Float32[np.ndarray, "n e"],
        k: int,
        where: Condition | None = None,
        *,
        fast: bool = False,
        items: bool = True,
    ) -> Answer:
        """Return the ids of the k nearest items that pass a filter, by improved vectors; exact even if fast is set."""
        among = None if where is None else self._passing(where)
        k = min(k, len(self._ids) if among is None else int(among.sum()))
        if self._searcher is None or not k or not len(queries):
            return Answer(np.empty((len(queries), k), dtype=object), np.empty((len(queries), k)))
        nearest = self._searcher.search(queries, k, among=among)
        ids = np.array([self._ids[position] for position in nearest.indices.ravel().tolist()])
        return Answer(ids.reshape(nearest.indices.shape), nearest.values.numpy())

    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n e"]]:
        """Return the items that pass a filter, ordered by id, and their improved vectors if `vectors` is True."""
        items, _ = self._store.get(where, vectors=False)
        # An item added since then has no row. `is_current` then returns False, and the search is retried.
        positions = [self._place_of[item.id] for item in items if item.id in self._place_of] if vectors else []
        return items, self._rows[positions]

    def _passing(self, where: Condition) -> Bool[np.ndarray, " n"]:
        """Return a mask of the items that pass a filter; the last filter is cached."""
        cached = self._filter
        if cached is None or cached[0] != repr(where):
            passing, _ = self._store.get(where, vectors=False)
            mask = np.zeros(len(self._ids), dtype=bool)
            mask[[self._place_of[item.id] for item in passing if item.id in self._place_of]] = True
            cached = self._filter = repr(where), mask
        return cached[1]


@final
class ImprovedStores:
    """Caches the improved vectors of the current state, in memory and next to the store."""

    def __init__(self) -> None:
        self.improvement = CachedImprovement()
        self._lock = Lock()
        self._kept: ImprovedStore | None = None

    def of(self, store: Store, generation: Path) -> ImprovedStore | None:
        """Return a store with its improved vectors; None if the original vectors are searched.

        Args:
            store: Store of the generation.
            generation: Folder of the generation.
        """
        current = self.improvement.of(generation)
        if current is None:
            return None
        with self._lock:
            for _ in range(ATTEMPTS):
                version = store.version()
                state = f"{generation.name}, {version}, {current[1]}"
                if self._kept is None or self._kept.state != state:
                    rows = _read(generation, state)
                    items, plain = store.get(vectors=rows is None)
                    if rows is None:
                        rows = current[0].of_items(plain)
                    if store.version() != version:
                        continue
                    _write(generation, state, rows)
                    self._kept = ImprovedStore(store, current[0], state, version, [item.id for item in items], rows)
                return self._kept
        raise InputError("The index kept changing while its vectors were improved; retry when no one is writing.")


def _read(folder: Path, state: str) -> NDArray[np.float32] | None:
    """Return the cached rows of this state; None if they are missing, of another state, or damaged."""
    cached = CachedFile(folder / ROWS, VERSION).read(lambda about: about["state"] == state)
    return None if cached is None else cached[0].view("<f4").reshape(cached[1]["rows"], cached[1]["dim"])


def _write(folder: Path, state: str, rows: NDArray[np.float32]) -> None:
    if not isinstance(rows, np.memmap):  # a memmap was just read from the cache
        content = np.ascontiguousarray(rows, dtype="<f4").data
        about = {"state": state, "rows": len(rows), "dim": rows.shape[1]}
        CachedFile(folder / ROWS, VERSION).write(content, about)
