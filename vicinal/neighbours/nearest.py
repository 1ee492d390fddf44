"""Exact nearest neighbours of every item."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.exact import BLOCK, Progress, search
from vicinal.neighbours.inputs import ArrayLike, Exclusion, Labels, as_embeddings, checked_count, exclusion
from vicinal.neighbours.references import PreparedReferences
from vicinal.neighbours.similarity import Vectors, exact_pairs, readable, vectors

__all__ = ["Neighbours", "check_k", "collect", "find_neighbours"]

MOST = 1000  # neighbours that may be requested even if there are fewer references


@dataclass(frozen=True)
class Neighbours:
    """The nearest references of each query, nearest first.

    Args:
        indices: Positions in the gallery; -1 if there are fewer than k references.
        values: Cosine similarities or Euclidean distances; NaN where the index is -1.
    """

    indices: Int64[Tensor, "n k"]
    values: Float64[Tensor, "n k"]


def find_neighbours(
    embeddings: ArrayLike,
    k: int,
    *,
    gallery: ArrayLike | None = None,
    distance: str = "cosine",
    sequences: Labels | None = None,
    gallery_sequences: Labels | None = None,
    precision: str | None = None,
    block: int = BLOCK,
    progress: Progress = lambda fraction: None,
) -> Neighbours:
    """Find the k nearest references of each item, exactly, without ever holding all similarities in memory.

    Without a gallery the items are searched among themselves: an item never finds itself, but it may find its
    duplicates. Equally near references come in the order of their index. The result is bit for bit the same on every
    run, for every block size, number of threads and precision.

    Args:
        embeddings: One row per query.
        k: Number of neighbours.
        gallery: One row per reference.
        distance: "cosine" or "euclidean".
        sequences: One entry per query; references with the same entry are ignored, such as the frames of the
            query's own video in re-identification.
        gallery_sequences: One entry per reference.
        precision: Precision of the products that propose candidates: "float32", "bfloat16" or "int8"; by default the
            fastest on this CPU. Only the speed depends on it.
        block: Rows and columns of the products computed at a time. Only speed and memory depend on it.
        progress: Called with the fraction done so far, between 0 and 1.

    Example:
        >>> found = find_neighbours([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]], k=2)
        >>> found.indices.tolist()
        [[3, 2], [2, 0], [0, 1], [0, 2]]
        >>> round(float(found.values[0, 1]), 4)
        0.7071
    """
    items = as_embeddings(embeddings)
    others = None if gallery is None else as_embeddings(gallery, "gallery embeddings")
    queries, references = vectors(items, others, distance=distance)
    check_k(k, len(references))
    ignored = exclusion(len(queries), len(references), gallery is None, sequences, gallery_sequences)
    return collect(queries, references, ignored, k, precision=precision, block=block, progress=progress)


def check_k(k: int, references: int) -> None:
    """Raise if more neighbours are requested than there are references, which would only fill the memory."""
    if checked_count(k, "k") > max(references, MOST):
        raise InputError(f"k = {k:,} neighbours were requested, but there are only {references:,} references.")


def collect(
    queries: Vectors,
    references: Vectors | PreparedReferences,
    ignored: Exclusion,
    k: int,
    *,
    precision: str | None = None,
    block: int = BLOCK,
    progress: Progress = lambda fraction: None,
) -> Neighbours:
    """Search, and return the neighbours with their cosines or distances."""
    exact = references if isinstance(references, Vectors) else references.vectors
    indices = torch.full((len(queries), k), -1)
    values = torch.full((len(queries), k), torch.nan, dtype=torch.float64)

    def consume(rows: Tensor, columns: Tensor) -> None:
        keys = exact_pairs(queries, rows, exact, columns.clamp(min=0))
        width = columns.shape[1]
        indices[rows, :width] = columns
        values[rows, :width] = readable(keys, exact).masked_fill_(columns < 0, torch.nan)

    wanted = min(k, len(exact))
    search(queries, references, ignored, wanted, consume, precision=precision, block=block, progress=progress)
    return Neighbours(indices, values)
