"""What keeps a metric simple: functions of A with their derivatives."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.classical.solvers import Regulariser
from vicinal.errors import InputError, UnknownName

__all__ = ["RegulariserName", "frobenius", "regulariser_for", "spread", "trace"]

RegulariserName = Literal["frobenius", "trace", "identity", "none"]


def frobenius(strength: float = 1.0) -> Regulariser:
    """Return strength times half the squared Frobenius norm of A, whose derivative is A.

    Example:
        >>> frobenius()(torch.eye(2))[0]
        1.0
    """
    return lambda matrix: (0.5 * strength * float(matrix.square().sum()), strength * matrix)


def trace(weights: Float[Tensor, "d d"]) -> Regulariser:
    """Return tr(A C), whose derivative is C.

    Example:
        >>> trace(torch.eye(2))(2 * torch.eye(2))[0]
        4.0
    """
    return lambda matrix: (float((matrix * weights).sum()), weights)


def spread(points: Float[Tensor, "n d"], positive: Bool[Tensor, "n n"]) -> Float[Tensor, "d d"]:
    """Return the mean of (x_i - x_j)(x_i - x_j)^T over the positive pairs.

    Example:
        >>> spread(torch.tensor([[0.0, 0.0], [2.0, 1.0]]), torch.tensor([[False, True], [False, False]]))
        tensor([[4., 2.],
                [2., 1.]])
    """
    pairs = positive.to(points.dtype)
    degree = pairs.sum(0) + pairs.sum(1)
    half = points.T @ pairs @ points
    return ((points.T * degree) @ points - half - half.T) / pairs.sum().clamp_min(1)


def regulariser_for(
    name: str, weight: float, points: Float[Tensor, "n d"], positive: Bool[Tensor, "n n"]
) -> Regulariser | None:
    """Return a regulariser by name, divided by the weight of the cost that it is added to."""
    if not weight > 0:
        raise InputError(f"weight must be above 0; got {weight!r}.")
    if name == "none":
        return None
    if name == "frobenius":
        return frobenius(1.0 / weight)
    if name == "trace":
        return trace(spread(points, positive) / weight)
    if name == "identity":
        return trace(torch.eye(points.shape[1], dtype=points.dtype) / weight)
    raise UnknownName("regulariser", name, ("frobenius", "trace", "identity", "none"))
