"""The store that needs no server: items.sqlite beside a file of vectors, in one folder."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Real
from numpy.typing import NDArray

from vicinal._util.text import counted
from vicinal.errors import DataError, InputError
from vicinal.index.filters import Condition, Kind, Value
from vicinal.index.item import Header, Id, Item, check_dim
from vicinal.index.stores.catalogue import Block, Catalogue, State, problems_of
from vicinal.index.stores.store import Answer, Store
from vicinal.index.stores.vectors import WORTHWHILE, FastCodes, LayoutFile, append_rows, damaged_blocks, map_rows
from vicinal.neighbours.rounding import as_int8, unpack_rows
from vicinal.neighbours.searcher import Searcher
from vicinal.neighbours.similarity import rounding_error, similarities

__all__ = ["EmbeddedStore"]


# The nearest rows of a vector file that grows: searchers of its parts propose, float64 decides, ids break ties.
#
# Rows are prepared for search once, in parts. New rows form a part of their own, and parts are joined when the last is
# half as large as the one before: so adding a row to a million costs next to nothing, and there are never many parts.
#
# Why the result is exact: a searcher's values are within a proven error of the real ones, and so is float64. If the
# last candidate that a part proposed is worse than the k-th best of all by more than both errors, what the part has
# not proposed is, too. If it is not, the part is asked for more.

SPARE = 6  # candidates beyond k: ties at the end of a list are rare, and more candidates cheaper than a second search
FEW = 4096  # rows that are prepared anew rather than kept as a part
GROWTH = 2  # a part is at least so many times as large as the next
NUMBERS = 1 << 22  # of candidates' vectors that are held in float64 at a time

Ids = Callable[[Sequence[int]], Mapping[int, Id]]


@dataclass(frozen=True)
class Part:
    """Some consecutive rows, prepared for search."""

    first: int
    searcher: Searcher

    @property
    def finish(self) -> int:
        """The row after the last."""
        return self.first + len(self.searcher)


class RowSearch:
    """Searches the rows of a file that may grow between searches; several threads may search at once.

    Args:
        distance: "cosine" or "euclidean".
        kept: Where the layout of the first part outlives the process.
    """

    def __init__(self, distance: str, kept: LayoutFile) -> None:
        self.distance, self.kept = distance, kept
        self._parts: list[Part] = []
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes that are held in memory, on top of the file."""
        return sum(part.searcher.nbytes for part in self._parts)

    def nearest(
        self,
        rows: Real[np.ndarray, "m d"],
        queries: Float32[np.ndarray, "n d"],
        k: int,
        longest: float,
        ids: Ids,
        blocks: Callable[[], Sequence[Block]],
        allowed: Bool[np.ndarray, " m"] | None = None,
    ) -> tuple[Int64[np.ndarray, "n k"], Float64[np.ndarray, "n k"]]:
        """Find the k nearest rows of each query, nearest first, ties by id.

        Args:
            rows: The whole file; what was there at the last call is the same.
            queries: Finite.
            k: At most the number of rows that are allowed.
            longest: At least the length of every row.
            ids: Gives the ids of some rows.
            blocks: Gives the checksums of all rows.
            allowed: The rows that may be found.

        Returns:
            Rows, and their similarities in float64.
        """
        parts = self._prepared(rows, blocks)
        longest = max(longest, float(np.sqrt(np.square(queries, dtype=np.float64).sum(axis=1).max())))
        wanted = k + SPARE
        found, values = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
        left = np.arange(len(queries))
        while len(left):
            candidates, last = _propose(parts, queries[left], wanted, allowed)
            some_rows, some_values, kth = by_similarity(rows, queries[left], candidates, k, self.distance, ids)
            sure = (self._clearly_worse(last, kth[:, None], longest, rows.shape[1])).all(axis=1)
            found[left[sure]], values[left[sure]] = some_rows[sure], some_values[sure]
            left, wanted = left[~sure], 4 * wanted
        return found, values

    def _prepared(self, rows: Real[np.ndarray, "m d"], blocks: Callable[[], Sequence[Block]]) -> list[Part]:
        with self._lock:
            parts = [part for part in self._parts if part.finish <= len(rows)]
            if not self._parts and len(rows) >= WORTHWHILE and (saved := self.kept.read(blocks())) is not None:
                many, layout = saved
                parts = [Part(0, Searcher.from_layout(rows[:many], self.distance, layout))]
            first = parts[-1].finish if parts else 0
            if first < len(rows):
                while parts and (len(rows) - first) * GROWTH > len(parts[-1].searcher):
                    first = parts.pop().first
                while parts and len(parts[-1].searcher) < FEW:
                    first = parts.pop().first
                parts.append(Part(first, Searcher(rows[first:], self.distance)))
                if not first and len(rows) >= WORTHWHILE and (made := parts[0].searcher.layout()) is not None:
                    self.kept.write(blocks(), made)
            if len(rows) >= sum(len(part.searcher) for part in self._parts):
                self._parts = parts  # a reader of an older state must not undo the work of others
            return parts

    def _clearly_worse(
        self, last: Float64[np.ndarray, "n p"], kth: Float64[np.ndarray, "n 1"], longest: float, dim: int
    ) -> Bool[np.ndarray, "n p"]:
        """Whether the last candidate of each part is surely farther than the k-th nearest of all."""
        error = 4 * rounding_error(dim)  # of a searcher's key and of float64, each at most half of it
        if self.distance == "cosine":
            return last < kth - 2 * error
        # Keys are minus half the squared distances of vectors that a power of two brings to a length of 1/2 to 1.
        return np.square(last) > np.square(kth) + 4 * error * (2 * longest) ** 2


def _propose(
    parts: Sequence[Part], queries: Float32[np.ndarray, "n d"], wanted: int, allowed: Bool[np.ndarray, " m"] | None
) -> tuple[Int64[np.ndarray, "n c"], Float64[np.ndarray, "n p"]]:
    """Candidates of every part, and the last similarity of each part that has more of them."""
    proposed, last = [], []
    for part in parts:
        among = None if allowed is None else allowed[part.first : part.finish]
        many = len(part.searcher) if among is None else int(among.sum())
        if not many:
            continue
        found = part.searcher.search(queries, min(wanted, many), among=among)
        proposed.append(found.indices.numpy() + part.first)
        if many > wanted:
            worst = found.values[:, -1].numpy()
            last.append(worst if part.searcher.distance == "cosine" else -worst)
    none = np.empty((len(queries), 0))
    return np.concatenate(proposed, axis=1), np.stack(last, axis=1) if last else none


def by_similarity(
    rows: Real[np.ndarray, "m d"],
    queries: Float32[np.ndarray, "n d"],
    candidates: Int64[np.ndarray, "n c"],
    k: int,
    distance: str,
    ids: Ids,
) -> tuple[Int64[np.ndarray, "n k"], Float64[np.ndarray, "n k"], Float64[np.ndarray, " n"]]:
    """The best k of some candidates by float64 similarity, then by id; -1 is none, and every query has k others.

    Returns:
        Rows, similarities, and the last of these.
    """
    step = max(1, NUMBERS // max(1, candidates.shape[1] * rows.shape[1]))
    values = np.concatenate(
        [
            similarities(queries[start : start + step], rows[candidates[start : start + step]], distance)
            for start in range(0, len(queries), step)
        ]
    )
    values[candidates < 0] = -np.inf
    order = np.argsort(-values, axis=1, kind="stable")
    best, chosen = np.take_along_axis(values, order, axis=1), np.take_along_axis(candidates, order, axis=1)
    tied = np.flatnonzero((best[:, 1:] == best[:, :-1])[:, : max(k, 1)].any(axis=1)).tolist()
    if tied:
        clearing = best[tied] >= best[tied, k - 1 : k]
        names = ids(np.unique(chosen[tied][clearing]).tolist())
        for query, inside in zip(tied, clearing, strict=True):
            many = int(inside.sum())
            keys = [(-value, names[row]) for value, row in zip(best[query, :many], chosen[query, :many], strict=True)]
            again: NDArray[np.int64] = np.array(sorted(range(many), key=keys.__getitem__), dtype=np.int64)
            best[query, :many], chosen[query, :many] = best[query, again], chosen[query, again]
    return chosen[:, :k], best[:, :k], best[:, k - 1]


CATALOGUE, VECTORS = "items.sqlite", {"float32": "vectors.f32", "int8": "vectors.i8"}
KEPT_FILTERS = 8


@final
class EmbeddedStore(Store):
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
        self.header = self._catalogue.header
        self._rows = RowSearch(self.header.distance, LayoutFile(folder))
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
