"""Clustering scores: how well k-means with one cluster per class recovers the classes."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError, MissingExtra, look_up
from vicinal.neighbours.inputs import ArrayLike, Labels, as_codes, as_embeddings
from vicinal.neighbours.similarity import vectors

__all__ = ["cluster_scores", "k_means", "pairwise_f1"]

ITERATIONS = 20


def cluster_scores(
    embeddings: ArrayLike,
    labels: Labels,
    *,
    distance: str = "cosine",
    seed: int = 0,
    backend: str = "auto",
) -> dict[str, float]:
    """Cluster by k-means and compare with the labels: NMI, AMI and pairwise F1, each 1 at best.

    NMI rises with the number of clusters even for random labels; AMI is corrected for that.

    Args:
        embeddings: One row per item.
        labels: One label per item.
        distance: "cosine" clusters the normalised embeddings.
        seed: Seed of the initial centres.
        backend: "faiss", "sklearn", or "auto" for faiss where it is installed.

    Example:
        >>> cluster_scores([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0], [0.1, 1.0]], ["a", "a", "b", "b"])
        {'NMI': 1.0, 'AMI': 1.0, 'F1': 1.0}
    """
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score  # slow to import

    items = as_embeddings(embeddings)
    classes, (codes,) = as_codes(labels, sizes=[len(items)])
    clusters = k_means(items, len(classes), distance=distance, seed=seed, backend=backend).numpy()
    truth = codes.numpy()
    return {
        "NMI": float(normalized_mutual_info_score(truth, clusters)),
        "AMI": float(adjusted_mutual_info_score(truth, clusters)),
        "F1": pairwise_f1(truth, clusters),
    }


def k_means(
    embeddings: ArrayLike,
    clusters: int,
    *,
    distance: str = "cosine",
    seed: int = 0,
    backend: str = "auto",
) -> Int64[Tensor, " n"]:
    """Assign each item to one of `clusters` clusters.

    Example:
        >>> first, second = k_means([[1.0, 0.0], [0.0, 1.0]], 2).tolist()
        >>> first != second
        True
    """
    items = as_embeddings(embeddings)
    if not 1 <= clusters <= len(items):
        raise InputError(f"Between 1 and {len(items)} clusters are possible for {len(items)} items; got {clusters}.")
    automatic = _faiss if find_spec("faiss") else _sklearn
    run = look_up("k-means backend", backend, {"auto": automatic, "faiss": _faiss, "sklearn": _sklearn})
    prepared, _ = vectors(items, distance=distance)
    return torch.from_numpy(run(prepared.scaled(slice(None)).float().numpy(), clusters, seed))


def pairwise_f1(truth: NDArray[np.int64], found: NDArray[np.int64]) -> float:
    """F1 of the question "are these two items together?", over all pairs of items.

    Example:
        >>> pairwise_f1(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
        0.4
    """
    from sklearn.metrics.cluster import contingency_matrix  # slow to import

    table = contingency_matrix(truth, found, sparse=True, dtype=np.int64)
    together, classes, clusters = (
        int((sizes * (sizes - 1)).sum()) // 2
        for sizes in (table.data, np.asarray(table.sum(axis=1)), np.asarray(table.sum(axis=0)))
    )
    return 2 * together / (classes + clusters) if classes + clusters else 1.0


def _faiss(items: NDArray[np.float32], clusters: int, seed: int) -> NDArray[np.int64]:
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss", "clustering with faiss") from None
    means = faiss.Kmeans(
        items.shape[1],
        clusters,
        niter=ITERATIONS,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=len(items),
    )
    means.train(items)
    return means.index.search(items, 1)[1][:, 0].astype(np.int64)


def _sklearn(items: NDArray[np.float32], clusters: int, seed: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans  # slow to import

    return KMeans(clusters, n_init=1, max_iter=ITERATIONS, random_state=seed).fit_predict(items).astype(np.int64)
