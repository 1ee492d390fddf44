"""Better neighbours without training: query expansion, k-reciprocal re-ranking and whitening."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.inputs import ArrayLike, as_embeddings
from vicinal.neighbours.nearest import Neighbours, find_neighbours

__all__ = [
    "ALPHA",
    "Reranker",
    "Reranking",
    "Whitening",
    "as_reranking",
    "augment_references",
    "expand_queries",
    "learn_whitening",
]


# Query expansion and database augmentation: vectors are moved towards their nearest neighbours.

ALPHA = 3.0


def expand_queries(
    queries: ArrayLike, references: ArrayLike | None = None, *, count: int = 5, alpha: float = ALPHA
) -> Float64[Tensor, "n d"]:
    """Move each query towards its nearest references (alpha query expansion), to search again with the result.

    This costs one more exact search. Vectors are compared by their cosine.

    Formula:
        q' = q + sum over the count nearest references r of max(0, q . r)^alpha r,    all normalised, and so is q'

    Args:
        queries: One row per query.
        references: One row per reference; by default the queries themselves, none of which finds itself.
        count: Number of references to add.
        alpha: Exponent of the weights: the larger, the less distant references count; 0 is a plain mean.

    Reference:
        Radenovic, Tolias and Chum: Fine-tuning CNN image retrieval with no human annotation. PAMI 2018.

    Example:
        >>> expand_queries([[1.0, 0.0]], [[0.6, 0.8], [0.0, 1.0]], count=1, alpha=1.0)
        tensor([[0.9430, 0.3328]], dtype=torch.float64)
    """
    rows = as_embeddings(queries)
    gallery = None if references is None else as_embeddings(references, "references")
    among = rows if gallery is None else gallery
    if count < 1 or alpha < 0:
        raise InputError(f"count must be at least 1 and alpha at least 0; got {count} and {alpha}.")
    near = find_neighbours(rows, count, gallery=gallery)
    return drawn_towards(_unit(rows), _unit(among), near.indices, near.values, alpha)


def augment_references(references: ArrayLike, *, count: int = 5, alpha: float = ALPHA) -> Float64[Tensor, "n d"]:
    """Move each reference towards its nearest neighbours, once, before any search: `expand_queries` for references.

    Reference:
        Gordo, Almazan, Revaud and Larlus: End-to-end learning of deep visual representations for image retrieval.
        IJCV 2017.

    Example:
        >>> augment_references([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], count=1).tolist()
        [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    return expand_queries(references, count=count, alpha=alpha)


def drawn_towards(
    rows: Float64[Tensor, "n d"],
    references: Float64[Tensor, "m d"],
    indices: Int64[Tensor, "n k"],
    cosines: Float64[Tensor, "n k"],
    alpha: float,
) -> Float64[Tensor, "n d"]:
    """Add to each row its weighted neighbours, and normalise it; an index of -1 means no neighbour."""
    shares = torch.where(indices < 0, 0.0, cosines.nan_to_num(0.0).clamp(min=0.0) ** alpha)
    result = rows.clone()
    for column in range(indices.shape[1]):
        result += shares[:, column, None] * references[indices[:, column].clamp(min=0)]
    return _unit(result)


def _unit(rows: Float[Tensor, "n d"]) -> Float64[Tensor, "n d"]:
    wide = rows.double()
    return wide / wide.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)


@dataclass(frozen=True)
class Reranking:
    """Settings of k-reciprocal re-ranking; the defaults are those of the paper.

    Args:
        near: Number of nearest neighbours among which reciprocal ones are looked for (the paper's k1).
        shared: Number of neighbours, including the item itself, whose sets are averaged (the paper's k2).
        distance_weight: Weight of the original distance (the paper's lambda).
        shortlist: Number of nearest references to re-rank; the others stay behind them.
    """

    near: int = 20
    shared: int = 6
    distance_weight: float = 0.3
    shortlist: int = 100

    def __post_init__(self) -> None:
        if min(self.near, self.shared, self.shortlist) < 1 or not 0 <= self.distance_weight <= 1:
            raise InputError(f"Re-ranking needs counts of at least 1 and a weight between 0 and 1; got {self}.")


def as_reranking(rerank: Any) -> Reranking | None:
    """Return settings unchanged, the settings from the paper for True, and None for False or None.

    Example:
        >>> as_reranking(True) == Reranking(), as_reranking(False)
        (True, None)
    """
    if isinstance(rerank, Reranking):
        return rerank
    if rerank is None or isinstance(rerank, bool | np.bool_):
        return Reranking() if rerank else None
    raise InputError(f"rerank must be True, False or Reranking(...) with custom settings; got {rerank!r}.")


class Reranker:
    """Re-ranks search results by shared neighbours (k-reciprocal encoding), with references prepared once.

    Items that share neighbours rank above items that are merely close.

    Formula:
        R(p, k) = {g in N(p, k): p in N(g, k)},    N(p, k) = p and its k nearest
        R*(p) = R(p, k1) and every R(q, k1 / 2), q in R(p, k1), of which at least 2/3 are in R(p, k1)
        V_p[g] = e^-d(p, g) for g in R*(p), else 0,    averaged over p and its k2 - 1 nearest
        d*(p, g) = (1 - weight) (1 - sum min(V_p, V_g) / sum max(V_p, V_g)) + weight d(p, g)

    d is the squared distance; for cosines, that of the unit vectors. Euclidean distances have no natural scale and are
    divided by the median squared distance of a k1-th neighbour. A query that is not a reference is added to the
    references alone: their own sets are those without it. Preparation costs a search for the exact k1 nearest
    neighbours of all references, and memory of about 100 numbers per reference.

    Args:
        references: One row per reference.
        distance: "cosine" or "euclidean".
        settings: Settings of the re-ranking; by default those of the paper.

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
        nearest_others = find_neighbours(self._rows, near, distance=distance)
        squares = _squares(nearest_others.values.numpy(), distance)
        self._unit = 1.0 if distance == "cosine" else float(np.median(squares[:, -1])) or 1.0
        squares /= self._unit
        self._half = min(int(np.around(self.settings.near / 2)), near)
        self._farthest = squares[:, -1]
        itself = np.arange(count)[:, None]
        self._lists = np.concatenate([itself, nearest_others.indices.numpy()], axis=1)
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
        """Re-rank the shortlists of queries that are not references.

        Args:
            queries: One row per query.
            found: Nearest references of each query, nearest first.

        Returns:
            The same references with the same similarities in a new order.
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
        """Re-rank the shortlists of queries that are themselves references."""
        return self._sorted(self._averaged[items.numpy()], found)

    def _expanded(self, mutual: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the mutual neighbours, extended by the mutual neighbours of each one that mostly overlap with them."""
        members, parts = set(mutual.tolist()), [mutual]
        for other in mutual:
            candidates = self._lists[other, : self._half + 1][self._mutual_half[other]]
            if sum(index in members for index in candidates.tolist()) >= 2 / 3 * len(candidates):
                parts.append(candidates)
        return np.unique(np.concatenate(parts))

    def _encoded(self, rows: Tensor, sets: list[NDArray[np.int64]]) -> csr_array:
        """Return e^-d of each row to the members of its set."""
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
            left, right = rows[owners[block]].double(), self._rows[members[block]].double()
            if self.distance == "cosine":
                left, right = torch.nn.functional.normalize(left), torch.nn.functional.normalize(right)
            values[block] = (left - right).square().sum(dim=1).numpy()
        return values / self._unit

    def _sorted(self, averaged: csr_array, found: Neighbours) -> Neighbours:
        indices, values = found.indices.clone(), found.values.clone()
        weight, count = self.settings.distance_weight, min(self.settings.shortlist, indices.shape[1])
        squares = _squares(values[:, :count].numpy(), self.distance) / self._unit
        candidates = indices[:, :count].numpy()
        dense = np.zeros(len(self))
        for row in range(len(indices)):
            shortlist = candidates[row][candidates[row] >= 0]
            if not len(shortlist):
                continue
            span = slice(averaged.indptr[row], averaged.indptr[row + 1])
            dense[averaged.indices[span]] = averaged.data[span]
            least = _least(self._averaged, shortlist, dense)
            dense[averaged.indices[span]] = 0.0
            most = averaged.data[span].sum() + self._sums[shortlist] - least
            apart = 1.0 - least / np.maximum(most, np.finfo(np.float64).tiny)
            order = np.argsort((1.0 - weight) * apart + weight * squares[row, : len(shortlist)], kind="stable")
            indices[row, : len(shortlist)] = indices[row, : len(shortlist)][order]
            values[row, : len(shortlist)] = values[row, : len(shortlist)][order]
        return Neighbours(indices, values)


def _squares(values: Float64[np.ndarray, "n k"], distance: str) -> Float64[np.ndarray, "n k"]:
    return np.maximum(2.0 - 2.0 * values, 0.0) if distance == "cosine" else np.square(values)


def _mutual(lists: Int64[np.ndarray, "n k"], near: int) -> Bool[np.ndarray, "n m"]:
    """Return which items of each list (the owner first) have the owner in their own list."""
    cut = lists[:, : near + 1]
    mutual = np.empty(cut.shape, dtype=bool)
    for column in range(cut.shape[1]):
        mutual[:, column] = (cut[cut[:, column]] == cut[:, :1]).any(axis=1)
    return mutual


def _picked(sets: csr_array, lists: Int64[np.ndarray, "n k"]) -> csr_array:
    """Return the sum of the rows that each list names."""
    owners = np.repeat(np.arange(len(lists)), lists.shape[1])
    chooser = coo_array((np.ones(lists.size), (owners, lists.ravel())), shape=(len(lists), sets.shape[0]))
    return csr_array(chooser.tocsr() @ sets)


def _least(sets: csr_array, rows: NDArray[np.int64], dense: Float64[np.ndarray, " m"]) -> Float64[np.ndarray, " r"]:
    """Return the sum of the elementwise minimum of each of some rows and one dense row."""
    sizes = sets.indptr[rows + 1] - sets.indptr[rows]
    owners = np.repeat(np.arange(len(rows)), sizes)
    before = np.cumsum(sizes) - sizes
    positions = np.arange(sizes.sum()) + (sets.indptr[rows] - before)[owners]
    smaller = np.minimum(sets.data[positions], dense[sets.indices[positions]])
    return np.bincount(owners, smaller, minlength=len(rows))


# PCA whitening: the directions in which embeddings vary most, each scaled to the same variance.


class Whitening(NamedTuple):
    """Linear map that decorrelates the embeddings it was learned from.

    Attributes:
        mean: Mean that is subtracted first.
        axes: One row per retained direction, divided by the standard deviation along it.
    """

    mean: Float64[np.ndarray, " d"]
    axes: Float64[np.ndarray, "e d"]

    def apply(self, rows: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n e"]:
        """Return whitened rows, normalised to length 1.

        Example:
            >>> learn_whitening([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).apply(np.array([[2.0, 1.0]]))
            array([[0.70710678, 0.70710678]])
        """
        if rows.shape[1] != len(self.mean):
            raise InputError(f"The whitening was learned from {len(self.mean)} dimensions; got {rows.shape[1]}.")
        whitened = (rows.astype(np.float64) - self.mean) @ self.axes.T
        return whitened / np.maximum(np.linalg.norm(whitened, axis=1, keepdims=True), np.finfo(np.float64).tiny)


def learn_whitening(rows: ArrayLike, dim: int | None = None, *, shrinkage: float = 0.0) -> Whitening:
    """Learn a whitening from embeddings, such as those of the training classes; labels are not used.

    Args:
        rows: One row per item; more rows than retained directions.
        dim: Number of retained directions, those with the highest variance; by default all that vary.
        shrinkage: Shrinkage of the variances towards their mean, between 0 and 1; 1 is PCA alone.

    Reference:
        Jegou and Chum: Negative evidences and co-occurences in image retrieval: the benefit of PCA and whitening.
        ECCV 2012.
    """
    items = as_embeddings(rows).double().numpy()
    if not 0 <= shrinkage <= 1:
        raise InputError(f"shrinkage must be between 0 and 1; got {shrinkage}.")
    if len(items) < 2:
        raise InputError(f"A whitening needs at least 2 rows; got {len(items)}.")
    mean = items.mean(axis=0)
    variances, axes = np.linalg.eigh((items - mean).T @ (items - mean) / (len(items) - 1))
    variances, axes = variances[::-1], axes[:, ::-1].T
    varying = int((variances > 1e-10 * max(variances[0], 1e-300)).sum())
    count = min(varying, len(items) - 1) if dim is None else dim
    if not 1 <= count <= varying:
        raise InputError(f"{len(items):,} rows vary in {varying} directions; cannot keep {count}.")
    spread = (1.0 - shrinkage) * variances[:count] + shrinkage * variances[:count].mean()
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    signed = (axes * np.where(largest < 0, -1.0, 1.0))[:count]  # the sign of an eigenvector is arbitrary: fix it
    return Whitening(mean, signed / np.sqrt(spread)[:, None])
