"""PCA-whitening: the directions in which embeddings vary most, each with the same spread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64

from vicinal.errors import InputError
from vicinal.neighbours.checked_inputs import ArrayLike, as_embeddings

__all__ = ["Whitening", "learn_whitening"]


class Whitening(NamedTuple):
    """A linear map after which what it was learned from has no correlations.

    Attributes:
        mean: What is taken off first.
        axes: One row per direction that is kept, divided by the spread along it.
    """

    mean: Float64[np.ndarray, " d"]
    axes: Float64[np.ndarray, "e d"]

    def apply(self, rows: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n e"]:
        """Return whitened rows of length 1.

        Example:
            >>> learn_whitening([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).apply(np.array([[2.0, 1.0]]))
            array([[0.70710678, 0.70710678]])
        """
        if rows.shape[1] != len(self.mean):
            raise InputError(f"The whitening was learned from {len(self.mean)} dimensions; got {rows.shape[1]}.")
        found = (rows.astype(np.float64) - self.mean) @ self.axes.T
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.finfo(np.float64).tiny)


def learn_whitening(rows: ArrayLike, dim: int | None = None, *, shrinkage: float = 0.0) -> Whitening:
    """Learn a whitening from embeddings, those of training classes say; the classes themselves are not looked at.

    Args:
        rows: One per item, more than dimensions that are kept.
        dim: Directions that are kept, those of most variance; by default all that vary.
        shrinkage: Between 0 and 1: how far the spreads are taken for equal; at 1 it is PCA alone.

    Reference:
        Jegou and Chum: Negative evidences and co-occurences in image retrieval: the benefit of PCA and whitening.
        ECCV 2012.
    """
    items = as_embeddings(rows).double().numpy()
    if not 0 <= shrinkage <= 1:
        raise InputError(f"shrinkage must be between 0 and 1; got {shrinkage}.")
    if len(items) < 2:
        raise InputError(f"A whitening is learned from at least 2 rows; got {len(items)}.")
    mean = items.mean(axis=0)
    variances, axes = np.linalg.eigh((items - mean).T @ (items - mean) / (len(items) - 1))
    variances, axes = variances[::-1], axes[:, ::-1].T
    varying = int((variances > 1e-10 * max(variances[0], 1e-300)).sum())
    many = min(varying, len(items) - 1) if dim is None else dim
    if not 1 <= many <= varying:
        raise InputError(f"{len(items):,} rows vary in {varying} directions; {many} cannot be kept.")
    spread = (1.0 - shrinkage) * variances[:many] + shrinkage * variances[:many].mean()
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    kept = (axes * np.where(largest < 0, -1.0, 1.0))[:many]  # the sign of an axis is no one's choice
    return Whitening(mean, kept / np.sqrt(spread)[:, None])
