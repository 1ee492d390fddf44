"""k-reciprocal re-ranking: who has the same neighbours is nearer than who is merely near."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.checked_inputs import ArrayLike, as_embeddings
from vicinal.neighbours.nearest import Neighbours, find_neighbours

__all__ = ["Reranker", "Reranking", "as_reranking"]


@dataclass(frozen=True)
class Reranking:
    """Settings of k-reciprocal re-ranking, by default the paper's.

    Args:
        near: Neighbours that have to be mutual (the paper's k1).
        shared: Neighbours, the item itself among them, whose sets are averaged (the paper's k2).
        distance_weight: What is left of the distance itself (the paper's lambda).
        shortlist: Nearest references that are put in a new order; the others stay behind them.
    """

    near: int = 20
    shared: int = 6
    distance_weight: float = 0.3
    shortlist: int = 100

    def __post_init__(self) -> None:
        if min(self.near, self.shared, self.shortlist) < 1 or not 0 <= self.distance_weight <= 1:
            raise InputError(f"Re-ranking needs counts of at least 1 and a weight between 0 and 1; got {self}.")


def as_reranking(rerank: Any) -> Reranking | None:
    """Settings as they are, those of the paper for True, and None for False or None.

    Example:
        >>> as_reranking(True) == Reranking(), as_reranking(False)
        (True, None)
    """
    if isinstance(rerank, Reranking):
        return rerank
    if rerank is None or isinstance(rerank, bool | np.bool_):
        return Reranking() if rerank else None
    raise InputError(f"rerank must be True, False or Reranking(...) with settings of your own; got {rerank!r}.")


class Reranker:
    """Prepares the neighbour sets of references once, and orders what a search found for any query anew.

    Formula:
        R(p, k) = {g in N(p, k): p in N(g, k)},    N(p, k) = p and its k nearest
        R*(p) = R(p, k1) and every R(q, k1 / 2), q in R(p, k1), of which at least 2/3 are in R(p, k1)
        V_p[g] = e^-d(p, g) for g in R*(p), else 0,    averaged over p and its k2 - 1 nearest
        d*(p, g) = (1 - weight) (1 - sum min(V_p, V_g) / sum max(V_p, V_g)) + weight d(p, g)

    d is the squared distance, for cosines that of vectors of length 1; distances off the sphere, which have no unit,
    are counted in the median squared distance of a k1-th neighbour. A query that is no reference itself is put among
    them alone: the references' own sets are those without it. Preparing costs the exact k1 nearest neighbours of all
    references, and memory of about 100 numbers for each.

    Args:
        references: One row per reference.
        distance: "cosine" or "euclidean".
        settings: See `Reranking`.

    Reference:
        Zhong, Zheng, Cao and Li: Re-ranking person re-identification with k-reciprocal encoding. CVPR 2017.

    Example:
        >>> references = [[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0], [0.1, 1.0]]
        >>> reranker = Reranker(references, settings=Reranking(near=2, shared=1))
        >>> found = find_neighbours([[0.8, 0.6]], 3, gallery=references)
        >>> reranker.reordered([[0.8, 0.6]], found).indices.tolist()
        [[2, 1, 0]]
    """

    def __init__(self, references: ArrayLike, distance: str = "cosine", *, settings: Reranking | None = None) -> None:
        self.settings = settings or Reranking()
        self.distance = distance
        self._rows = as_embeddings(references, "references")
        count = len(self._rows)
        near = min(self.settings.near, count - 1)
        if near < 1:
            raise InputError(f"Re-ranking needs at least 2 references, got {count}.")
        found = find_neighbours(self._rows, near, distance=distance)
        squares = _squares(found.values.numpy(), distance)
        self._unit = 1.0 if distance == "cosine" else float(np.median(squares[:, -1])) or 1.0
        squares /= self._unit
        self._half = min(int(np.around(self.settings.near / 2)), near)
        self._farthest = squares[:, -1]
        itself = np.arange(count)[:, None]
        self._lists = np.concatenate([itself, found.indices.numpy()], axis=1)
        self._mutual_half = _mutual(self._lists, self._half)
        mutual = _mutual(self._lists, near)
        sets = [self._expanded(row[mask]) for row, mask in zip(self._lists, mutual, strict=True)]
        self._sets = self._encoded(self._rows, sets)
        nearest = self._lists[:, : self.settings.shared]
        self._averaged = csr_array(_picked(self._sets, nearest) / nearest.shape[1])
        self._sums = self._averaged.sum(axis=1)

    def __len__(self) -> int:
        return len(self._rows)

    def reordered(self, queries: ArrayLike, found: Neighbours) -> Neighbours:
        """Return what was found for queries that are no references, the shortlist of each in its new order.

        Args:
            queries: One row per query.
            found: Their nearest references, nearest first.

        Returns:
            The same references with the same similarities in another order.
        """
        rows = as_embeddings(queries, "queries")
        first = find_neighbours(rows, min(self.settings.near, len(self)), gallery=self._rows, distance=self.distance)
        squares = _squares(first.values.numpy(), self.distance) / self._unit
        lists = first.indices.numpy()
        sets = [self._expanded(row[length <= self._farthest[row]]) for row, length in zip(lists, squares, strict=True)]
        own = self._encoded(rows, sets)
        shared = self.settings.shared
        averaged = (own + _picked(self._sets, lists[:, : shared - 1])) / min(shared, 1 + lists.shape[1])
        return self._sorted(csr_array(averaged), found)

    def reordered_items(self, items: Int64[Tensor, " n"], found: Neighbours) -> Neighbours:
        """Return what was found for references that are searched for themselves, in the new order."""
        return self._sorted(self._averaged[items.numpy()], found)

    def _expanded(self, mutual: NDArray[np.int64]) -> NDArray[np.int64]:
        """The mutual neighbours, and theirs where most of them are the same."""
        known, parts = set(mutual.tolist()), [mutual]
        for other in mutual:
            theirs = self._lists[other, : self._half + 1][self._mutual_half[other]]
            if sum(place in known for place in theirs.tolist()) >= 2 / 3 * len(theirs):
                parts.append(theirs)
        return np.unique(np.concatenate(parts))

    def _encoded(self, rows: Tensor, sets: list[NDArray[np.int64]]) -> csr_array:
        """e^-d of each row to the members of its set."""
        sizes = [len(members) for members in sets]
        owners = np.repeat(np.arange(len(sets)), sizes)
        members = np.concatenate(sets) if sets else np.empty(0, dtype=np.int64)
        values = np.exp(-self._between(rows, owners, members))
        ends = np.concatenate([[0], np.cumsum(sizes)])
        return csr_array((values, members, ends), shape=(len(sets), len(self)))

    def _between(self, rows: Tensor, owners: NDArray[np.int64], members: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.empty(len(owners))
        for start in range(0, len(owners), 1 << 16):
            block = slice(start, start + (1 << 16))
            mine, theirs = rows[owners[block]].double(), self._rows[members[block]].double()
            if self.distance == "cosine":
                mine, theirs = torch.nn.functional.normalize(mine), torch.nn.functional.normalize(theirs)
            values[block] = (mine - theirs).square().sum(dim=1).numpy()
        return values / self._unit

    def _sorted(self, averaged: csr_array, found: Neighbours) -> Neighbours:
        indices, values = found.indices.clone(), found.values.clone()
        weight, many = self.settings.distance_weight, min(self.settings.shortlist, indices.shape[1])
        squares = _squares(values[:, :many].numpy(), self.distance) / self._unit
        places = indices[:, :many].numpy()
        dense = np.zeros(len(self))
        for row in range(len(indices)):
            kept = places[row][places[row] >= 0]
            if not len(kept):
                continue
            span = slice(averaged.indptr[row], averaged.indptr[row + 1])
            dense[averaged.indices[span]] = averaged.data[span]
            least = _least(self._averaged, kept, dense)
            dense[averaged.indices[span]] = 0.0
            most = averaged.data[span].sum() + self._sums[kept] - least
            apart = 1.0 - least / np.maximum(most, np.finfo(np.float64).tiny)
            order = np.argsort((1.0 - weight) * apart + weight * squares[row, : len(kept)], kind="stable")
            indices[row, : len(kept)] = indices[row, : len(kept)][order]
            values[row, : len(kept)] = values[row, : len(kept)][order]
        return Neighbours(indices, values)


def _squares(values: Float64[np.ndarray, "n k"], distance: str) -> Float64[np.ndarray, "n k"]:
    return np.maximum(2.0 - 2.0 * values, 0.0) if distance == "cosine" else np.square(values)


def _mutual(lists: Int64[np.ndarray, "n k"], near: int) -> Bool[np.ndarray, "n m"]:
    """Which of an item's list (itself first) have the item in theirs."""
    cut = lists[:, : near + 1]
    mutual = np.empty(cut.shape, dtype=bool)
    for column in range(cut.shape[1]):
        mutual[:, column] = (cut[cut[:, column]] == cut[:, :1]).any(axis=1)
    return mutual


def _picked(sets: csr_array, lists: Int64[np.ndarray, "n k"]) -> csr_array:
    """The sum of the rows that each list names."""
    owners = np.repeat(np.arange(len(lists)), lists.shape[1])
    chooser = coo_array((np.ones(lists.size), (owners, lists.ravel())), shape=(len(lists), sets.shape[0]))
    return csr_array(chooser.tocsr() @ sets)


def _least(sets: csr_array, rows: NDArray[np.int64], dense: Float64[np.ndarray, " m"]) -> Float64[np.ndarray, " r"]:
    """The sum of the smaller entries of some rows and one dense row."""
    sizes = sets.indptr[rows + 1] - sets.indptr[rows]
    owners = np.repeat(np.arange(len(rows)), sizes)
    before = np.cumsum(sizes) - sizes
    places = np.arange(sizes.sum()) + (sets.indptr[rows] - before)[owners]
    smaller = np.minimum(sets.data[places], dense[sets.indices[places]])
    return np.bincount(owners, smaller, minlength=len(rows))
