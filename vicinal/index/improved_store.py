"""Search by improved vectors: those of all items, computed once for each state of a store and kept beside it.

improved.f32 is a cache: improved.json names the state and the improvement that it was made of, and its checksum. What
is missing, damaged or of another state is made anew by the first search that needs it.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float32
from numpy.typing import NDArray

from vicinal.atomic import replacing, write_atomically
from vicinal.errors import DataError, InputError
from vicinal.index.improvement import Improvement, KeptImprovement
from vicinal.index.item import Header, Id, Item
from vicinal.index.store import Answer, Store
from vicinal.index.vector_file import map_rows
from vicinal.index.where import Condition
from vicinal.neighbours import Searcher

__all__ = ["ImprovedStore", "ImprovedStores"]

ROWS, ABOUT = "improved.f32", "improved.json"
VERSION = 1
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
    """The rows that were kept of this state; None if there are none, or others, or damaged ones."""
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if (about["version"], about["state"]) != (VERSION, state):
            return None
        rows = map_rows(folder / ROWS, int(about["rows"]), int(about["dim"]))
        return rows if _checksum(rows) == about["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError, DataError):
        return None


def _write(folder: Path, state: str, rows: NDArray[np.float32]) -> None:
    if isinstance(rows, np.memmap):  # as it was read
        return
    about = {"version": VERSION, "state": state, "rows": len(rows), "dim": rows.shape[1], "sha256": _checksum(rows)}
    with suppress(DataError):  # a folder that cannot be written to: the next process makes them anew
        with replacing(folder / ROWS) as file:
            file.write(np.ascontiguousarray(rows, dtype="<f4").data)
        write_atomically(folder / ABOUT, json.dumps(about) + "\n")


def _checksum(rows: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<f4").data).hexdigest()
