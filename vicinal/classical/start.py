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


def first_map(
    points: Float[Tensor, "n d"], relations: Relations, n_components: int | None, init: Any
) -> Float[Tensor, "k d"]:
    """Return the map to begin with.

    Args:
        points: One row each.
        relations: What is known of them.
        n_components: Rows of the map; None for as many as columns.
        init: "identity", "pca", "lda", an array, or "auto": the identity for a full map, otherwise LDA where classes
            are known and there are enough of them, PCA where not.

    Example:
        >>> points = torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.1, 4.0]])
        >>> known = Relations(torch.zeros(3, 3) > 0, torch.zeros(3, 3) > 0)
        >>> first_map(points, known, 1, "pca").abs().round(decimals=2)
        tensor([[0.0200, 1.0000]])
    """
    features = points.shape[1]
    rows = features if n_components is None else n_components
    if not 1 <= rows <= features:
        raise InputError(
            f"n_components must be from 1 to the {features} features, or None for all of them; got {n_components}."
        )
    if not isinstance(init, str):
        given = torch.tensor(np.asarray(init), dtype=points.dtype)
        if given.shape != (rows, features):
            raise InputError(f"init must be an array of shape [{rows}, {features}]; got {list(given.shape)}.")
        return given
    classes = 0 if relations.labels is None else int(relations.labels.max()) + 1
    if init == "auto":
        init = "identity" if rows == features else "lda" if rows < classes else "pca"
    if init == "identity":
        return torch.eye(rows, features, dtype=points.dtype)
    if init == "pca":
        directions = torch.linalg.svd(points - points.mean(0), full_matrices=True).Vh
        return directions[:rows].contiguous()
    if init == "lda":
        if rows >= classes:
            raise InputError(
                f"LDA gives at most {max(classes - 1, 0)} dimensions here; got n_components={rows}: use init='pca'."
            )
        lda = LinearDiscriminantAnalysis(n_components=rows).fit(points.numpy(), relations.labels)
        return torch.from_numpy(np.ascontiguousarray(lda.scalings_.T[:rows]))
    raise UnknownName("init", init, ("auto", "identity", "pca", "lda"))
