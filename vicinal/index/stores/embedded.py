"""The store that needs no server: items.sqlite and a file of vectors, in one folder."""

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


# Exact search in a vector file that grows: searchers of its parts propose candidates, float64 ranks them, ids break
# ties.
#
# Rows are prepared for search once, in parts. New rows form a new part, and parts are merged when the last is half as
# large as the one before. So adding a row to a million costs next to nothing, and there are never many parts.
#
# Why the result is exact: a searcher's values are within a proven error of the real ones, and so is float64. If the
# last candidate of a part is worse than the k-th best of all by more than both errors, so are all rows that the part
# did not propose. Otherwise the part is asked for more candidates.

SPARE = 6  # candidates beyond k: ties at the end of a list are rare, and extra candidates cheaper than a second search
FEW = 4096  # rows below which a part is prepared again rather than kept
GROWTH = 2  # a part is at least this many times as large as the next
NUMBERS = 1 << 22  # numbers of candidate vectors held in float64 at a time

Ids = Callable[[Sequence[int]], Mapping[int, Id]]


@dataclass(frozen=True)
class Part:
    """Consecutive rows, prepared for search."""

    first: int
    searcher: Searcher

    @property
    def finish(self) -> int:
        """The row after the last."""
        return self.first + len(self.searcher)


class RowSearch:
    """Searches the rows of a file that may grow between searches; thread-safe.

    Args:
        distance: "cosine" or "euclidean".
        kept: File that caches the layout of the first part across processes.
    """

    def __init__(self, distance: str, kept: LayoutFile) -> None:
        self.distance, self.kept = distance, kept
        self._parts: list[Part] = []
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Memory used in addition to the file, in bytes."""
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
            rows: All rows of the file; those of the last call must be unchanged.
            queries: Queries, all finite.
            k: Number of neighbours; at most the number of allowed rows.
            longest: Upper bound on the length of all rows.
            ids: Function that returns the ids of some rows.
            blocks: Function that returns the blocks of all rows, with their checksums.
            allowed: Mask of the rows that may be returned; None for all.

        Returns:
            Row numbers, and their similarities in float64.
        """
        parts = self._prepared(rows, blocks)
        longest = max(longest, float(np.sqrt(np.square(queries, dtype=np.float64).sum(axis=1).max())))
        wanted = k + SPARE
        neighbours, values = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
        left = np.arange(len(queries))
        while len(left):
            candidates, last = _propose(parts, queries[left], wanted, allowed)
            some_rows, some_values, kth = by_similarity(rows, queries[left], candidates, k, self.distance, ids)
            sure = (self._clearly_worse(last, kth[:, None], longest, rows.shape[1])).all(axis=1)
            neighbours[left[sure]], values[left[sure]] = some_rows[sure], some_values[sure]
            left, wanted = left[~sure], 4 * wanted
        return neighbours, values

    def _prepared(self, rows: Real[np.ndarray, "m d"], blocks: Callable[[], Sequence[Block]]) -> list[Part]:
        with self._lock:
            parts = [part for part in self._parts if part.finish <= len(rows)]
            if not self._parts and len(rows) >= WORTHWHILE and (saved := self.kept.read(blocks())) is not None:
                count, layout = saved
                parts = [Part(0, Searcher.from_layout(rows[:count], self.distance, layout))]
            first = parts[-1].finish if parts else 0
            if first < len(rows):
                while parts and (len(rows) - first) * GROWTH > len(parts[-1].searcher):
                    first = parts.pop().first
                while parts and len(parts[-1].searcher) < FEW:
                    first = parts.pop().first
                parts.append(Part(first, Searcher(rows[first:], self.distance)))
                if not first and len(rows) >= WORTHWHILE and (layout_to_save := parts[0].searcher.layout()) is not None:
                    self.kept.write(blocks(), layout_to_save)
            if len(rows) >= sum(len(part.searcher) for part in self._parts):
                self._parts = parts  # a reader of an older state must not discard newer parts
            return parts

    def _clearly_worse(
        self, last: Float64[np.ndarray, "n p"], kth: Float64[np.ndarray, "n 1"], longest: float, dim: int
    ) -> Bool[np.ndarray, "n p"]:
        """Return whether the last candidate of each part is certainly farther than the k-th nearest of all."""
        error = 4 * rounding_error(dim)  # covers a searcher's key and float64, each at most half of it
        if self.distance == "cosine":
            return last < kth - 2 * error
        # Keys are minus half the squared distances of vectors scaled by a power of two to a length of 1/2 to 1.
        return np.square(last) > np.square(kth) + 4 * error * (2 * longest) ** 2


def _propose(
    parts: Sequence[Part], queries: Float32[np.ndarray, "n d"], wanted: int, allowed: Bool[np.ndarray, " m"] | None
) -> tuple[Int64[np.ndarray, "n c"], Float64[np.ndarray, "n p"]]:
    """Return the candidates of every part, and the last similarity of each part that has more candidates."""
    proposed, last = [], []
    for part in parts:
        among = None if allowed is None else allowed[part.first : part.finish]
        count = len(part.searcher) if among is None else int(among.sum())
        if not count:
            continue
        nearest = part.searcher.search(queries, min(wanted, count), among=among)
        proposed.append(nearest.indices.numpy() + part.first)
        if count > wanted:
            worst = nearest.values[:, -1].numpy()
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
    """Return the best k candidates by float64 similarity, then by id.

    A candidate of -1 stands for none; every query must have at least k others.

    Returns:
        Row numbers, similarities, and the k-th similarity.
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
            count = int(inside.sum())
            keys = [(-value, names[row]) for value, row in zip(best[query, :count], chosen[query, :count], strict=True)]
            again: NDArray[np.int64] = np.array(sorted(range(count), key=keys.__getitem__), dtype=np.int64)
            best[query, :count], chosen[query, :count] = best[query, again], chosen[query, again]
    return chosen[:, :k], best[:, :k], best[:, k - 1]


CATALOGUE, VECTORS = "items.sqlite", {"float32": "vectors.f32", "int8": "vectors.i8"}
KEPT_FILTERS = 8


@final
class EmbeddedStore(Store):
    """Items and vectors in one folder; one process writes, any number read, and each sees complete transactions.

    Vectors are written past the committed end and synced; then one transaction commits them. A process killed at any
    moment leaves exactly what was committed.

    Args:
        folder: Folder of the store; created by `create`.
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
        """Create an empty store."""
        folder.mkdir(parents=True, exist_ok=True)
        if header.numbers not in VECTORS:
            raise InputError(f"An index keeps numbers as {' or '.join(VECTORS)}; got {header.numbers!r}.")
        (folder / VECTORS[header.numbers]).touch()
        Catalogue.create(folder / CATALOGUE, header).close()
        return cls(folder)

    @classmethod
    def open_or_create(cls, folder: Path, header: Header) -> EmbeddedStore:
        """Open a store that was started for the same vectors, or create a new one."""
        try:
            store = cls(folder)
            if store.header == header:
                return store
            store.close()
        except DataError:  # it does not exist, or its creation was interrupted
            pass
        for path in [*folder.glob(f"{CATALOGUE}*"), *folder.glob("vectors.*")]:
            path.unlink()
        return cls.create(folder, header)

    def close(self) -> None:
        """Close the connections of all threads."""
        _close_all(self._catalogues)
        self._threads = threading.local()

    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Add items atomically; they replace those with the same ids, and are on disk when this returns."""
        catalogue = self._catalogue
        if not len(items):
            return
        check_dim(vectors, self.header.dim)
        with catalogue.writing() as state:  # no other process can write past the end meanwhile
            catalogue.insert(state, items, append_rows(self._file, self._packed(vectors), state.finish))

    def declare(self, columns: Mapping[str, Kind | None]) -> None:
        """Declare columns before any item uses them, so that filters may name them."""
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
        """Return the items that pass a filter, ordered by id, and their vectors if `vectors` is True."""
        return self.page(where, vectors=vectors)

    def page(
        self, where: Condition | None = None, *, vectors: bool = True, limit: int = -1, offset: int = 0
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """Return a page of what `get` returns: at most `limit` items (-1 for all), from `offset` on."""
        catalogue = self._catalogue
        with catalogue.reading() as state:
            numbered = list(catalogue.ordered(where, limit, offset))
        items = [item for _, item in numbered]
        if not vectors:
            return items, np.empty((0, self.header.dim), np.float32)
        positions = np.array([position for position, _ in numbered], dtype=np.int64)
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
        """Return the k nearest of the items that pass a filter; fewer only if fewer pass it."""
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
                    neighbours, values, _ = by_similarity(rows, queries, candidates, k, distance, catalogue.ids)
                    answer = self._answer(catalogue, neighbours, values, items)
                    return replace(answer, recall=recall.share, measured=recall.when)
            neighbours, values = self._rows.nearest(rows, queries, k, longest, catalogue.ids, catalogue.blocks, allowed)
            return self._answer(catalogue, neighbours, values, items)

    def count(self, where: Condition | None = None) -> int:
        """Return the number of items, or of those that pass a filter."""
        catalogue = self._catalogue
        with catalogue.reading():
            return catalogue.count(where)

    def version(self) -> int:
        """Return the version of the content, which increases with every change."""
        catalogue = self._catalogue
        with catalogue.reading() as state:
            return state.version

    def labels(self, most: int) -> list[Value]:
        """Return the distinct labels, sorted, at most `most` of them."""
        catalogue = self._catalogue
        with catalogue.reading():
            return catalogue.labels(most)

    def path_range(self) -> tuple[str, str] | None:
        """Return the first and the last path in string order; None if no item has one."""
        catalogue = self._catalogue
        with catalogue.reading():
            return catalogue.path_range()

    def columns(self) -> Mapping[str, Kind | None]:
        """Return the kind of value that each column holds."""
        catalogue = self._catalogue
        with catalogue.reading():
            return catalogue.columns()

    def dead(self) -> int:
        """Return the number of rows of the vector file that no item uses any longer."""
        catalogue = self._catalogue
        with catalogue.reading():
            return len(catalogue.dead())

    def sample(self, many: int, seed: int = 0) -> Float32[np.ndarray, "n d"]:
        """Return the vectors of some items, drawn at random."""
        catalogue = self._catalogue
        with catalogue.reading() as state:
            rows = np.setdiff1d(np.arange(state.finish), catalogue.dead())
            chosen = np.random.default_rng(seed).choice(rows, min(many, len(rows)), replace=False)
            return self._unpacked(np.array(self._mapped(state)[np.sort(chosen)]))

    def space(self) -> tuple[int, int, int]:
        """Return the bytes that exact search holds in memory, that fast search adds, and that all files take."""
        disk = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        return self._rows.nbytes, self._codes.nbytes, disk

    def verify(self) -> list[str]:
        """Return all problems of the two files, one sentence each."""
        catalogue = self._catalogue
        with catalogue.reading() as state:
            problems = problems_of(catalogue)
            try:
                rows = self._mapped(state)
                for block in damaged_blocks(rows, catalogue.blocks()):
                    last = min(block.first + block.many, state.finish)  # a damaged block may claim any number of rows
                    hurt = catalogue.ids(range(max(block.first, 0), last))
                    problems.append(
                        f"{self._file.name}: rows {block.first} to {block.first + block.many - 1} are corrupted; "
                        f"{counted(len(hurt), 'item has its vector', 'items have their vectors')} there, such "
                        f"as {next(iter(hurt.values()), 'none')!r}"
                    )
            except Exception as error:  # a damaged file may raise anything, and each such error is a problem to report
                problems.append(f"{self._file.name} cannot be checked: {error}")
        return problems

    @property
    def _catalogue(self) -> Catalogue:
        """Connection of this thread."""
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
        """Return a mask of the rows that pass a filter; None for all. The last few filters are cached."""
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
        distinct, positions = np.unique(found, return_inverse=True)
        by_row: Mapping[int, Any] = (catalogue.items if items else catalogue.ids)(distinct.tolist())
        names: list[Id] = [by_row[row].id if items else by_row[row] for row in distinct.tolist()]
        ids = np.array(names)[positions.reshape(found.shape)]
        return Answer(ids, values, {item.id: item for item in by_row.values()} if items else {})


def _close_all(catalogues: list[Catalogue]) -> None:
    for catalogue in catalogues:
        catalogue.close()
    catalogues.clear()
