"""First maps for solvers that improve one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from vicinal.classical.relations import Relations
from vicinal.errors import InputError, UnknownName

__all__ = ["first_map"]


def first_map(points: Float[Tensor, "n d"], relations: Relations, dim: int | None, start: Any) -> Float[Tensor, "k d"]:
    """Return the map to begin with.

    Args:
        points: One row each.
        relations: What is known of them.
        dim: Rows of the map; None for as many as columns.
        start: "identity", "pca", "lda", an array, or "auto": the identity for a full map, otherwise LDA where classes
            are known and there are enough of them, PCA where not.

    Example:
        >>> points = torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.1, 4.0]])
        >>> known = Relations(torch.zeros(3, 3) > 0, torch.zeros(3, 3) > 0)
        >>> first_map(points, known, 1, "pca").abs().round(decimals=2)
        tensor([[0.0200, 1.0000]])
    """
    features = points.shape[1]
    rows = features if dim is None else dim
    if not 1 <= rows <= features:
        raise InputError(f"dim must be from 1 to the {features} features, or None for all of them; got {dim}.")
    if not isinstance(start, str):
        given = torch.tensor(np.asarray(start), dtype=points.dtype)
        if given.shape != (rows, features):
            raise InputError(f"start must be an array of shape [{rows}, {features}]; got {list(given.shape)}.")
        return given
    classes = 0 if relations.labels is None else int(relations.labels.max()) + 1
    if start == "auto":
        start = "identity" if rows == features else "lda" if rows < classes else "pca"
    if start == "identity":
        return torch.eye(rows, features, dtype=points.dtype)
    if start == "pca":
        directions = torch.linalg.svd(points - points.mean(0), full_matrices=True).Vh
        return directions[:rows].contiguous()
    if start == "lda":
        if rows >= classes:
            raise InputError(
                f"LDA gives at most {max(classes - 1, 0)} dimensions here; got dim={rows}: use start='pca'."
            )
        lda = LinearDiscriminantAnalysis(n_components=rows).fit(points.numpy(), relations.labels)
        return torch.from_numpy(np.ascontiguousarray(lda.scalings_.T[:rows]))
    raise UnknownName("start", start, ("auto", "identity", "pca", "lda"))
