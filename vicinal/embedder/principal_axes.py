"""Principal axes: a head that keeps the directions in which features vary most, without any training."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64

from vicinal.embedder.head import Head, Pooling
from vicinal.errors import InputError

__all__ = ["PrincipalAxes", "principal_axes", "principal_head"]

ROWS = 4096  # that are widened to float64 at a time


class PrincipalAxes(NamedTuple):
    """Where features lie, and the directions in which they vary.

    Attributes:
        mean: Of the features.
        axes: One direction per row, all orthogonal and of length 1, that of most variance first.
    """

    mean: Float64[np.ndarray, " c"]
    axes: Float64[np.ndarray, "c c"]


def principal_axes(features: Float[np.ndarray, "n c"]) -> PrincipalAxes:
    """Return the principal axes of features; where the rows are fewer than the axes, the last ones are any.

    Example:
        >>> found = principal_axes(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]], np.float32))
        >>> found.mean.tolist(), found.axes[0].tolist()
        ([2.0, 1.0], [1.0, 0.0])
    """
    if not len(features):
        raise InputError("Principal axes need at least one row of features, got none.")
    mean = features.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((len(mean), len(mean)))
    for start in range(0, len(features), ROWS):
        rows = features[start : start + ROWS] - mean
        scatter += rows.T @ rows
    axes = np.linalg.eigh(scatter)[1][:, ::-1].T
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return PrincipalAxes(mean, axes * np.where(largest < 0, -1.0, 1.0))  # the sign of an axis is no one's choice


def principal_head(found: PrincipalAxes, dim: int, *, pooling: Pooling = "average") -> Head:
    """Return a head that centres features, projects them on the first principal axes, and brings them on the sphere.

    Args:
        found: Of the features that the head will see.
        dim: How many axes to keep.
        pooling: Of the maps before.

    Example:
        >>> found = principal_axes(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]], np.float32))
        >>> principal_head(found, 1).unnormalised(torch.tensor([[5.0, 7.0]])).tolist()
        [[3.0]]
    """
    if not 1 <= dim <= len(found.mean):
        raise InputError(f"There are 1 to {len(found.mean)} axes to keep; got dim={dim}.")
    head = Head(len(found.mean), dim, pooling=pooling)
    assert head.linear is not None
    axes = found.axes[:dim]
    with torch.no_grad():
        head.linear.weight.copy_(torch.from_numpy(axes.copy()))
        head.linear.bias.copy_(torch.from_numpy(-axes @ found.mean))
    return head
