"""Vectors drawn towards their neighbours: queries before a search, references once and for all."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.checked_inputs import ArrayLike, as_embeddings
from vicinal.neighbours.nearest import find_neighbours

__all__ = ["ALPHA", "augment_references", "expand_queries"]

ALPHA = 3.0


def expand_queries(
    queries: ArrayLike, references: ArrayLike | None = None, *, count: int = 5, alpha: float = ALPHA
) -> Float64[Tensor, "n d"]:
    """Draw each query towards its nearest references; then search again with what comes of it.

    Costs one more exact search. Vectors are compared by their cosine.

    Formula:
        q' = q + sum over the count nearest references r of max(0, q . r)^alpha r,    all of length 1, as is q' again

    Args:
        queries: One row per query.
        references: One row per reference; by default the queries themselves, where none finds itself.
        count: References that are added.
        alpha: The larger, the less do those count that are far; 0 is a plain mean.

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
        raise InputError(f"At least 1 reference and a power of at least 0 are needed; got {count} and {alpha}.")
    near = find_neighbours(rows, count, gallery=gallery)
    return drawn_towards(_unit(rows), _unit(among), near.indices, near.values, alpha)


def augment_references(references: ArrayLike, *, count: int = 5, alpha: float = ALPHA) -> Float64[Tensor, "n d"]:
    """Draw each reference towards its nearest others, once, before anything is searched: `expand_queries` of them.

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
    """Add to each row its neighbours by their weights, and bring it to length 1; an index of -1 is nobody."""
    shares = torch.where(indices < 0, 0.0, cosines.nan_to_num(0.0).clamp(min=0.0) ** alpha)
    result = rows.clone()
    for column in range(indices.shape[1]):
        result += shares[:, column, None] * references[indices[:, column].clamp(min=0)]
    return _unit(result)


def _unit(rows: Float[Tensor, "n d"]) -> Float64[Tensor, "n d"]:
    wide = rows.double()
    return wide / wide.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
