"""improvement.npz: what every search of an index does for better neighbours, without being told each time."""

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
MOST = 1000  # neighbours that may be asked for of any number of items


@final
@dataclass(frozen=True, eq=False)
class Improvement:
    """What vectors go through before they are searched.

    Attributes:
        whitening: First, queries and items alike; None for none.
        augment: Then each item is drawn towards so many of its nearest others; 0 for none.
    """

    whitening: Whitening | None = None
    augment: int = 0

    def __str__(self) -> str:
        parts = [] if self.whitening is None else [f"whitened to {len(self.whitening.axes)} dimensions"]
        if self.augment:
            parts.append(f"augmented by {self.augment}")
        return ", ".join(parts)

    def of_queries(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n e"]:
        """Return what is sought."""
        return self._whitened(rows).astype(np.float32)

    def of_items(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n e"]:
        """Return what it is sought among: all items, since each looks at the others."""
        better = self._whitened(rows)
        if self.augment and len(better):
            better = augment_references(better, count=self.augment).numpy()
        return better.astype(np.float32)

    def content(self) -> bytes:
        """Return the file."""
        arrays: dict[str, Any] = {"augment": np.array(self.augment)}
        if self.whitening is not None:
            arrays |= self.whitening._asdict()
        written = io.BytesIO()
        np.savez(written, **arrays)
        return written.getvalue()

    def _whitened(self, rows: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n e"]:
        return rows.astype(np.float64) if self.whitening is None else self.whitening.apply(rows)


def as_improvement(whiten: Any, augment: int, dim: int, distance: str) -> Improvement | None:
    """Check what an index is asked to do with its vectors.

    Args:
        whiten: A whitening, or the vectors that one is learned from; None for none.
        augment: Neighbours that each item is drawn towards.
        dim: Of the index's vectors.
        distance: By which they are compared.

    Returns:
        None where nothing is asked for.
    """
    if not 0 <= augment <= MOST:
        raise InputError(f"augment must be from 0 to {MOST:,}; got {augment}.")
    whitening = whiten if whiten is None or isinstance(whiten, Whitening) else learn_whitening(whiten)
    if whitening is None and not augment:
        return None
    if whitening is not None and len(whitening.mean) != dim:
        raise InputError(f"The whitening was learned from {len(whitening.mean)} dimensions; the index has {dim}.")
    if whitening is None and distance != "cosine":
        raise InputError("Items are drawn towards their neighbours on the sphere: augment needs cosines, or whiten.")
    return Improvement(whitening, augment)


def carry_over(generation: Path, building: Path) -> None:
    """Keep the same improvement in the next generation, whose vectors are the same."""
    if (generation / FILE).is_file():
        shutil.copyfile(generation / FILE, building / FILE)


@final
class KeptImprovement:
    """Reads the improvement of the generation that serves, and again when another process has written it."""

    def __init__(self) -> None:
        self._read: tuple[Path, tuple[int, int], tuple[Improvement, str]] | None = None

    def of(self, generation: Path) -> tuple[Improvement, str] | None:
        """The improvement and a checksum of it; None if the vectors are searched as they are."""
        path, kept = generation / FILE, self._read
        try:
            file = path.stat()
        except FileNotFoundError:
            return None
        written = file.st_mtime_ns, file.st_ino
        if kept is None or kept[:2] != (path, written):
            kept = self._read = path, written, _from_file(path)
        return kept[2]

    def keep(self, generation: Path, improvement: Improvement | None) -> None:
        """Write it; None goes back to the vectors as they are."""
        if improvement is None:
            (generation / FILE).unlink(missing_ok=True)
            return
        with replacing(generation / FILE) as file:
            file.write(improvement.content())

    def problems(self, generation: Path) -> list[str]:
        """What is wrong with it, one sentence each."""
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


# Search by improved vectors: those of all items, computed once for each state of a store and kept beside it.
#
# improved.f32 is a cache: improved.json names the state and the improvement that it was made of.

ROWS = "improved.f32"
VERSION = 2
ATTEMPTS = 5


@final
class ImprovedStore:
    """What a search sees of a store whose vectors are improved; exact among these.

    Args:
        store: Of the items, with their vectors as they are.
        improvement: Of the vectors.
        state: Of the store and the improvement, by name.
        version: Of the store.
        ids: Of all items, in order.
        rows: Their improved vectors.
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
        self._place_of = {key: place for place, key in enumerate(ids)}
        self._searcher = Searcher(rows) if len(rows) else None
        self._filter: tuple[str, Bool[np.ndarray, " n"]] | None = None

    def is_current(self) -> bool:
        """Whether the store is what it was."""
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
        """The k nearest improved vectors of the items that pass a filter; exact whether fast or not, and ids alone."""
        among = None if where is None else self._passing(where)
        k = min(k, len(self._ids) if among is None else int(among.sum()))
        if self._searcher is None or not k or not len(queries):
            return Answer(np.empty((len(queries), k), dtype=object), np.empty((len(queries), k)))
        found = self._searcher.search(queries, k, among=among)
        ids = np.array([self._ids[place] for place in found.indices.ravel().tolist()])
        return Answer(ids.reshape(found.indices.shape), found.values.numpy())

    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n e"]]:
        """The items that pass a filter in the order of their ids, and their improved vectors (or none of them)."""
        items, _ = self._store.get(where, vectors=False)
        # One that came since then has no place: `is_current` tells, and the search is done again.
        places = [self._place_of[item.id] for item in items if item.id in self._place_of] if vectors else []
        return items, self._rows[places]

    def _passing(self, where: Condition) -> Bool[np.ndarray, " n"]:
        """The items that pass a filter; the last one is remembered."""
        kept = self._filter
        if kept is None or kept[0] != repr(where):
            passing, _ = self._store.get(where, vectors=False)
            mask = np.zeros(len(self._ids), dtype=bool)
            mask[[self._place_of[item.id] for item in passing if item.id in self._place_of]] = True
            kept = self._filter = repr(where), mask
        return kept[1]


@final
class ImprovedStores:
    """Keeps the improved vectors of the present state, in memory and beside the store."""

    def __init__(self) -> None:
        self.improvement = KeptImprovement()
        self._lock = Lock()
        self._kept: ImprovedStore | None = None

    def of(self, store: Store, generation: Path) -> ImprovedStore | None:
        """The improved vectors of a store; None if it is searched as it is.

        Args:
            store: Of the generation.
            generation: Its folder.
        """
        known = self.improvement.of(generation)
        if known is None:
            return None
        with self._lock:
            for _ in range(ATTEMPTS):
                version = store.version()
                state = f"{generation.name}, {version}, {known[1]}"
                if self._kept is None or self._kept.state != state:
                    rows = _read(generation, state)
                    items, plain = store.get(vectors=rows is None)
                    if rows is None:
                        rows = known[0].of_items(plain)
                    if store.version() != version:
                        continue
                    _write(generation, state, rows)
                    self._kept = ImprovedStore(store, known[0], state, version, [item.id for item in items], rows)
                return self._kept
        raise InputError("The index changes faster than its vectors can be improved; search when it is at rest.")


def _read(folder: Path, state: str) -> NDArray[np.float32] | None:
    """The rows that are cached for this state; None if there are none, or others, or damaged ones."""
    cached = CachedFile(folder / ROWS, VERSION).read(lambda about: about["state"] == state)
    return None if cached is None else cached[0].view("<f4").reshape(cached[1]["rows"], cached[1]["dim"])


def _write(folder: Path, state: str, rows: NDArray[np.float32]) -> None:
    if not isinstance(rows, np.memmap):  # as it was read
        content = np.ascontiguousarray(rows, dtype="<f4").data
        about = {"state": state, "rows": len(rows), "dim": rows.shape[1]}
        CachedFile(folder / ROWS, VERSION).write(content, about)
