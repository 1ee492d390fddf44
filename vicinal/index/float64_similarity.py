"""The definition of similarity in an index: plain float64 arithmetic, the same for every store and every shortcut."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Real

__all__ = ["similarities"]


def similarities(
    queries: Float32[np.ndarray, "n d"], rows: Real[np.ndarray, "n c d"], distance: str
) -> Float64[np.ndarray, "n c"]:
    """Compare query i with each of the rows i: the cosine, or minus the Euclidean distance; the larger, the nearer.

    A vector of length zero has the cosine 0 with everything. Nothing overflows: float32 squared fits float64.

    Example:
        >>> similarities(np.float32([[3, 4]]), np.float32([[[3, 0], [6, 8], [0, 0]]]), "cosine").tolist()
        [[0.6, 1.0, 0.0]]
        >>> similarities(np.float32([[3, 4]]), np.float32([[[3, 0], [6, 8], [0, 0]]]), "euclidean").tolist()
        [[-4.0, -5.0, -5.0]]
    """
    mine, theirs = queries[:, None, :].astype(np.float64), rows.astype(np.float64)
    if distance == "euclidean":
        return 0.0 - np.sqrt(np.square(mine - theirs).sum(axis=2))  # not -0.0
    products = (mine * theirs).sum(axis=2)
    lengths = np.sqrt(np.square(mine).sum(axis=2)) * np.sqrt(np.square(theirs).sum(axis=2))
    return np.clip(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0), -1.0, 1.0)
