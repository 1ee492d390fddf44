"""The nearest rows of a vector file that grows: searchers of its parts propose, float64 decides, ids break ties.

Rows are prepared for search once, in parts. New rows form a part of their own, and parts are joined when the last is
half as large as the one before: so adding a row to a million costs next to nothing, and there are never many parts.

Why the result is exact: a searcher's values are within a proven error of the real ones, and so is float64. If the last
candidate that a part proposed is worse than the k-th best of all by more than both errors, what the part has not
proposed is, too. If it is not, the part is asked for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Real
from numpy.typing import NDArray

from vicinal.index.catalogue import Block
from vicinal.index.float64_similarity import similarities
from vicinal.index.item import Id
from vicinal.index.layout_file import WORTHWHILE, LayoutFile
from vicinal.neighbours.searcher import Searcher
from vicinal.neighbours.similarity import rounding_error

__all__ = ["RowSearch", "by_similarity"]

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
