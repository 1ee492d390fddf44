"""Clusters of unlabelled items: scikit-learn's HDBSCAN on the exact neighbour graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64, Int64
from scipy.sparse import coo_array, csr_matrix
from scipy.sparse.csgraph import connected_components

from vicinal.errors import InputError
from vicinal.neighbours import find_neighbours
from vicinal.neighbours.inputs import ArrayLike, as_embeddings

__all__ = ["Clusters", "propose_clusters"]

NEIGHBOURS = 30
TOUCHING = 1e-9  # distance of duplicates, since a zero in a sparse graph means no edge


@final
@dataclass(frozen=True)
class Clusters:
    """Clusters of items.

    Attributes:
        codes: Cluster of each item, numbered from 0, the largest first; -1 for items in no cluster.
        centres: Index of the item of each cluster that is nearest to its mean.
        strengths: Strength of each item's membership in its cluster, between 0 and 1.
    """

    codes: Int64[np.ndarray, " n"]
    centres: tuple[int, ...]
    strengths: Float64[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.centres)

    def members(self, cluster: int) -> list[int]:
        """Return the indices of the items of a cluster."""
        return np.flatnonzero(self.codes == cluster).tolist()


def propose_clusters(
    embeddings: ArrayLike, *, least: int = 5, k: int = NEIGHBOURS, distance: str = "cosine"
) -> Clusters:
    """Propose clusters of embeddings; the number of clusters follows from the data.

    The graph contains the exact k nearest neighbours of every item and, between components that these do not connect,
    the shortest edges. So it has a minimum spanning tree over all items, which HDBSCAN cuts.

    Args:
        embeddings: One row per item.
        least: Size of the smallest cluster.
        k: Number of neighbours of each item in the graph.
        distance: "cosine" or "euclidean".

    Reference:
        Campello, Moulavi and Sander: Density-based clustering based on hierarchical density estimates. PAKDD 2013.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> items = np.repeat([[1.0, 0.0], [0.0, 1.0]], 10, axis=0) + 0.05 * rng.normal(size=(20, 2))
        >>> propose_clusters(items).codes.tolist()
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    from sklearn.cluster import HDBSCAN

    items = as_embeddings(embeddings)
    if not 2 <= least <= len(items):
        raise InputError(f"The smallest cluster must have 2 to {len(items)} items; got {least}.")
    graph = _connected_graph(items, min(max(k, least), len(items) - 1), distance)
    clustering = HDBSCAN(min_cluster_size=least, metric="precomputed", copy=True).fit(graph)
    sizes = np.bincount(clustering.labels_[clustering.labels_ >= 0])
    order = np.argsort(-sizes, kind="stable")
    new = np.empty(len(sizes) + 1, dtype=np.int64)
    new[order], new[-1] = np.arange(len(sizes)), -1
    codes = new[clustering.labels_]
    rows = items.double().numpy()
    if distance == "cosine":
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    centres = []
    for cluster in range(len(sizes)):
        members = np.flatnonzero(codes == cluster)
        away = np.square(rows[members] - rows[members].mean(axis=0)).sum(axis=1)
        centres.append(int(members[away.argmin()]))
    return Clusters(codes, tuple(centres), np.nan_to_num(clustering.probabilities_))


def _connected_graph(items: ArrayLike, k: int, distance: str) -> csr_matrix:
    near = find_neighbours(items, k, distance=distance)
    count = len(near.indices)
    ends = np.stack([np.repeat(np.arange(count), k), near.indices.numpy().ravel()])
    lengths = _lengths(near.values.numpy().ravel(), distance)
    while True:
        parts, components = connected_components(coo_array((lengths, ends), shape=(count, count)), directed=False)
        if parts == 1:
            break
        part_of = components.astype(np.int64)
        # The shortest edge that leaves a component is in the minimum spanning tree (Boruvka, 1926).
        out = find_neighbours(items, 1, distance=distance, sequences=part_of)
        leaving = _lengths(out.values.numpy()[:, 0], distance)
        first = np.array([members[leaving[members].argmin()] for members in _members(part_of, parts)])
        ends = np.concatenate([ends, np.stack([first, out.indices.numpy()[first, 0]])], axis=1)
        lengths = np.concatenate([lengths, leaving[first]])
    # Both directions, once each: an edge found from both ends has the same length twice.
    both = np.concatenate([ends, ends[::-1]], axis=1)
    _, once = np.unique(both[0] * count + both[1], return_index=True)
    return csr_matrix((np.concatenate([lengths, lengths])[once], both[:, once]), shape=(count, count))


def _lengths(values: Float64[np.ndarray, " e"], distance: str) -> Float64[np.ndarray, " e"]:
    chords = np.sqrt(np.maximum(2.0 - 2.0 * values, 0.0)) if distance == "cosine" else values
    return np.maximum(chords, TOUCHING)


def _members(part_of: Int64[np.ndarray, " n"], parts: int) -> list[Int64[np.ndarray, " m"]]:
    order = np.argsort(part_of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(part_of, minlength=parts))[:-1])
