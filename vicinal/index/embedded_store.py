"""The store that needs no server: items.sqlite beside a file of vectors, in one folder."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float32, Int64, Real
from numpy.typing import NDArray

from vicinal.errors import DataError, InputError
from vicinal.index.catalogue import Catalogue, State
from vicinal.index.catalogue_check import problems_of
from vicinal.index.columns import Kind
from vicinal.index.fast_codes import FastCodes
from vicinal.index.item import Header, Id, Item, check_dim
from vicinal.index.layout_file import LayoutFile
from vicinal.index.row_search import RowSearch, by_similarity
from vicinal.index.store import Answer
from vicinal.index.vector_file import append_rows, damaged_blocks, map_rows
from vicinal.index.where import Condition, Value
from vicinal.neighbours.rounded_rows import as_int8, unpack_rows
from vicinal.phrasing import counted

__all__ = ["EmbeddedStore"]

CATALOGUE, VECTORS = "items.sqlite", {"float32": "vectors.f32", "int8": "vectors.i8"}
KEPT_FILTERS = 8


@final
class EmbeddedStore:
    """Items and vectors in one folder; one process writes, any number read, each sees whole transactions.

    Vectors are written past the end that is committed and synced; then one transaction makes them exist. Whoever is
    killed, at any moment, leaves what was committed and nothing else.

    Args:
        folder: Of the store; made by `create`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = threading.local()
        self._catalogues: list[Catalogue] = []
        weakref.finalize(self, _close_all, self._catalogues)
        self._rows = RowSearch(self._catalogue.header.distance, LayoutFile(folder))
        self._codes = FastCodes(folder, self.header.distance)
        self._filters: OrderedDict[tuple[int, str], Bool[np.ndarray, " m"] | None] = OrderedDict()
        self._filters_lock = threading.Lock()

    @classmethod
    def create(cls, folder: Path, header: Header) -> EmbeddedStore:
        """Make an empty store."""
        folder.mkdir(parents=True, exist_ok=True)
        if header.numbers not in VECTORS:
            raise InputError(f"An index keeps numbers as {' or '.join(VECTORS)}; got {header.numbers!r}.")
        (folder / VECTORS[header.numbers]).touch()
        Catalogue.create(folder / CATALOGUE, header).close()
        return cls(folder)

    @classmethod
    def open_or_create(cls, folder: Path, header: Header) -> EmbeddedStore:
        """Go on with a store that was begun for the same vectors, or begin anew."""
        try:
            store = cls(folder)
            if store.header == header:
                return store
            store.close()
        except DataError:  # nothing there, or killed before it was complete
            pass
        for path in [*folder.glob(f"{CATALOGUE}*"), *folder.glob("vectors.*")]:
            path.unlink()
        return cls.create(folder, header)

    @property
    def header(self) -> Header:
        """What all vectors have in common."""
        return self._catalogue.header

    def close(self) -> None:
        """Close the connections of all threads."""
        _close_all(self._catalogues)
        self._threads = threading.local()

    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Keep items, in place of those of the same id: all or none, and on the disk by the time that it returns."""
        catalogue = self._catalogue
        if not len(items):
            return
        check_dim(vectors, self.header.dim)
        with catalogue.writing() as state:  # nobody else writes past the end meanwhile
            catalogue.insert(state, items, append_rows(self._file, self._packed(vectors), state.finish))

    def declare(self, columns: Mapping[str, Kind | None]) -> None:
        """Have columns, though no item has a value in them yet: filters may ask for them."""
        catalogue = self._catalogue
        with catalogue.writing() as state:
            catalogue.declare(state, columns)

    def delete(self, where: Condition) -> int:
        """Remove the items that pass a filter; their vectors stay in the file until the index is compacted."""
        catalogue = self._catalogue
        with catalogue.writing() as state:
            return catalogue.delete(state, where)

    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """The items that pass a filter in the order of their ids, and their vectors (or none of them)."""
        return self.page(where, vectors=vectors)

    def page(
        self, where: Condition | None = None, *, vectors: bool = True, limit: int = -1, offset: int = 0
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """The same, from the offset on and at most as many as the limit says; -1 for all."""
        catalogue = self._catalogue
        with catalogue.reading() as state:
            found = list(catalogue.ordered(where, limit, offset))
        items = [item for _, item in found]
        if not vectors:
            return items, np.empty((0, self.header.dim), np.float32)
        positions = np.array([position for position, _ in found], dtype=np.int64)
        return items, self._unpacked(self._mapped(state)[positions])

    def search(
        self,
        queries: Float32[np.ndarray, "n d"],
        k: int,
        where: Condition | None = None,
        *,
        fast: bool = False,
        items: bool = True,
    ) -> Answer:
        """The k nearest of the items that pass a filter; fewer only if fewer pass it."""
        check_dim(queries, self.header.dim)
        catalogue = self._catalogue
        with catalogue.reading() as state:
            allowed = self._allowed(catalogue, state, where)
            k = min(k, state.finish if allowed is None else int(allowed.sum()))
            if not k or not len(queries):
                return Answer(np.empty((len(queries), k), dtype=object), np.empty((len(queries), k)))
            rows = self._mapped(state)
            longest = catalogue.longest()
            if fast:
                alive = self._allowed(catalogue, state, None)

                def exactly(some: Float32[np.ndarray, "n d"], many: int) -> Int64[np.ndarray, "n k"]:
                    return self._rows.nearest(rows, some, many, longest, catalogue.ids, catalogue.blocks, alive)[0]

                proposed = self._codes.candidates(rows, queries, k, allowed, alive, exactly, catalogue.blocks)
                if proposed is not None:
                    candidates, recall = proposed
                    distance = self.header.distance
                    found, values, _ = by_similarity(rows, queries, candidates, k, distance, catalogue.ids)
                    answer = self._answer(catalogue, found, values, items)
                    return replace(answer, recall=recall.share, measured=recall.when)
            found, values = self._rows.nearest(rows, queries, k, longest, catalogue.ids, catalogue.blocks, allowed)
            return self._answer(catalogue, found, values, items)

    def count(self, where: Condition | None = None) -> int:
        """How many items there are, or pass a filter."""
        catalogue = self._catalogue
        with catalogue.reading():
            return catalogue.count(where)

    def version(self) -> int:
        """Rises with every change."""
        catalogue = self._catalogue
        with catalogue.reading() as state:
            return state.version

    def labels(self, most: int) -> list[Value]:
        """The labels that items have, in order, and at most so many."""
        catalogue = self._catalogue
        with catalogue.reading():
            return catalogue.labels(most)

    def path_range(self) -> tuple[str, str] | None:
        """The first and the last path of items in the order of texts; None if no item has one."""
        catalogue = self._catalogue
        with catalogue.reading():
            return catalogue.path_range()

    def columns(self) -> Mapping[str, Kind | None]:
        """What each column holds."""
        catalogue = self._catalogue
        with catalogue.reading():
            return catalogue.columns()

    def dead(self) -> int:
        """Rows of the vector file that no item has any longer."""
        catalogue = self._catalogue
        with catalogue.reading():
            return len(catalogue.dead())

    def sample(self, many: int, seed: int = 0) -> Float32[np.ndarray, "n d"]:
        """The vectors of some items, drawn at random."""
        catalogue = self._catalogue
        with catalogue.reading() as state:
            rows = np.setdiff1d(np.arange(state.finish), catalogue.dead())
            chosen = np.random.default_rng(seed).choice(rows, min(many, len(rows)), replace=False)
            return self._unpacked(np.array(self._mapped(state)[np.sort(chosen)]))

    def space(self) -> tuple[int, int, int]:
        """Bytes of memory that exact search holds on top of the files, that fast search adds, and of all files."""
        disk = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        return self._rows.nbytes, self._codes.nbytes, disk

    def verify(self) -> list[str]:
        """Everything in the two files that is not as it was written, one sentence each."""
        catalogue = self._catalogue
        with catalogue.reading() as state:
            problems = problems_of(catalogue)
            try:
                rows = self._mapped(state)
                for block in damaged_blocks(rows, catalogue.blocks()):
                    last = min(block.first + block.many, state.finish)  # a damaged block may claim any number of rows
                    hurt = catalogue.ids(range(max(block.first, 0), last))
                    problems.append(
                        f"{self._file.name}: rows {block.first} to {block.first + block.many - 1} are not what was "
                        f"written; {counted(len(hurt), 'item has its vector', 'items have their vectors')} there, such "
                        f"as {next(iter(hurt.values()), 'none')!r}"
                    )
            except Exception as error:  # whatever a damaged file brings about is what was asked for
                problems.append(f"{self._file.name} cannot be checked: {error}")
        return problems

    @property
    def _catalogue(self) -> Catalogue:
        """The connection of this thread."""
        mine: Catalogue | None = getattr(self._threads, "catalogue", None)
        if mine is None:
            mine = self._threads.catalogue = Catalogue(self.folder / CATALOGUE)
            self._catalogues.append(mine)
        return mine

    @property
    def _file(self) -> Path:
        return self.folder / VECTORS[self.header.numbers]

    def _packed(self, vectors: Float32[np.ndarray, "n d"]) -> NDArray[Any]:
        return as_int8(vectors) if self.header.numbers == "int8" else vectors

    def _unpacked(self, rows: NDArray[Any]) -> Float32[np.ndarray, "n d"]:
        return unpack_rows(rows, "int8", self.header.dim) if rows.dtype == np.int8 else rows

    def _mapped(self, state: State) -> Real[np.ndarray, "m d"]:
        kind = np.dtype(np.int8 if self.header.numbers == "int8" else "<f4")
        return map_rows(self._file, state.finish, self.header.dim, kind)

    def _allowed(self, catalogue: Catalogue, state: State, where: Condition | None) -> Bool[np.ndarray, " m"] | None:
        """The rows that may be found; None for all. The last few filters are remembered."""
        key = state.version, repr(where)
        with self._filters_lock:
            if key in self._filters:
                self._filters.move_to_end(key)
                return self._filters[key]
        allowed: Bool[np.ndarray, " m"] | None
        if where is not None:
            allowed = np.zeros(state.finish, dtype=bool)
            allowed[catalogue.positions(where)] = True
        else:
            dead = catalogue.dead()
            allowed = None
            if len(dead):
                allowed = np.ones(state.finish, dtype=bool)
                allowed[dead] = False
        with self._filters_lock:
            self._filters[key] = allowed
            while len(self._filters) > KEPT_FILTERS:
                self._filters.popitem(last=False)
        return allowed

    def _answer(
        self,
        catalogue: Catalogue,
        found: Int64[np.ndarray, "n k"],
        values: NDArray[np.float64],
        items: bool,
    ) -> Answer:
        distinct, places = np.unique(found, return_inverse=True)
        by_row: Mapping[int, Any] = (catalogue.items if items else catalogue.ids)(distinct.tolist())
        names: list[Id] = [by_row[row].id if items else by_row[row] for row in distinct.tolist()]
        ids = np.array(names)[places.reshape(found.shape)]
        return Answer(ids, values, {item.id: item for item in by_row.values()} if items else {})


def _close_all(catalogues: list[Catalogue]) -> None:
    for catalogue in catalogues:
        catalogue.close()
    catalogues.clear()
