"""The head of an embedder: pool feature maps, map them linearly, and normalise."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from vicinal.errors import InputError, UnknownName
from vicinal.pairs import to_ball, to_sphere, widen

__all__ = [
    "Head",
    "Normalisation",
    "Pooling",
    "PrincipalAxes",
    "first_numbers",
    "normalise",
    "pool",
    "principal_axes",
    "principal_head",
]


Pooling = Literal["average", "max", "both"]
Normalisation = Literal["sphere", "ball", "softmax", "none"]


def pool(maps: Float[Tensor, "n c *hw"], pooling: Pooling = "average") -> Float[Tensor, "n c"]:
    """Reduce feature maps to vectors; vectors are returned as they are.

    Args:
        maps: Feature maps [n, c, h, w], or vectors [n, c].
        pooling: "average", "max", or "both" for the sum of the two.

    Example:
        >>> maps = torch.tensor([[[[1.0, 3.0], [0.0, 0.0]]]])
        >>> pool(maps, "average").item(), pool(maps, "max").item(), pool(maps, "both").item()
        (1.0, 3.0, 4.0)
    """
    if maps.ndim == 2:
        return maps
    if pooling == "average":
        return maps.mean(dim=(2, 3))
    if pooling == "max":
        return maps.amax(dim=(2, 3))
    return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))


def normalise(vectors: Float[Tensor, "n d"], normalisation: Normalisation = "sphere") -> Float[Tensor, "n d"]:
    """Map vectors onto the unit sphere, into the unit ball or onto the probability simplex, or leave them unchanged.

    Formula:
        sphere: v / ||v||
        ball: v if ||v|| <= 1, else v / ||v||; no two points move apart (1-Lipschitz)
        softmax: e^v / sum e^v

    A zero vector has no direction and stays zero. Lengths are computed in at least float32, so half-precision vectors
    are returned as float32.

    Reference:
        The ball: the projection onto a convex set, hence 1-Lipschitz (Boyd and Vandenberghe, 2004, ch. 8).

    Example:
        >>> normalise(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), "ball")
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    vectors = widen(vectors)
    if normalisation == "none":
        return vectors
    if normalisation == "softmax":
        return vectors.softmax(dim=1)
    return to_ball(vectors) if normalisation == "ball" else to_sphere(vectors)


class Head(nn.Module):
    """Pool, map linearly to `dim`, normalise: from a backbone's output to embeddings.

    Args:
        channels: Number of channels of the backbone's output.
        dim: Length of the embeddings; None leaves out the linear map.
        pooling: "average", "max", or "both" for the sum of the two.
        normalisation: "sphere", "ball", "softmax" or "none".
        bias: Whether the linear map has a bias.
        kaiming: Whether to initialise the map by He's normal distribution (fan-out) with zero bias, instead
            of PyTorch's uniform default.

    Example:
        >>> Head(512, dim=64)(torch.ones(2, 512, 7, 7)).shape
        torch.Size([2, 64])
    """

    def __init__(
        self,
        channels: int,
        dim: int | None = 128,
        *,
        pooling: Pooling = "average",
        normalisation: Normalisation = "sphere",
        bias: bool = True,
        kaiming: bool = False,
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise UnknownName("pooling", pooling, get_args(Pooling))
        if normalisation not in get_args(Normalisation):
            raise UnknownName("normalisation", normalisation, get_args(Normalisation))
        if dim is not None and dim < 1:
            raise InputError(f"dim must be at least 1, or None for no linear map; got {dim}.")
        self.pooling = pooling
        self.normalisation = normalisation
        self.dim = channels if dim is None else dim
        self.linear = None if dim is None else nn.Linear(channels, dim, bias=bias)
        if self.linear is not None and kaiming:
            nn.init.kaiming_normal_(self.linear.weight, mode="fan_out")
            if self.linear.bias is not None:
                nn.init.zeros_(self.linear.bias)

    def forward(self, features: Float[Tensor, "n c *hw"]) -> Float[Tensor, "n d"]:
        """Return the embeddings of feature maps, or of vectors that are already pooled."""
        return normalise(self.unnormalised(features), self.normalisation)

    def unnormalised(self, features: Float[Tensor, "n c *hw"]) -> Float[Tensor, "n d"]:
        """Return the embeddings before normalisation."""
        vectors = pool(features, self.pooling)
        return vectors if self.linear is None else self.linear(vectors)


def first_numbers(head: Head, dim: int) -> Head:
    """Return a head whose embeddings, before normalisation, are the first numbers of those of another head.

    Example:
        >>> first_numbers(Head(3, None), 2)(torch.tensor([[3.0, 4.0, 5.0]])).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """
    if not 1 <= dim <= head.dim:
        raise InputError(f"dim must be from 1 to {head.dim}; got {dim}.")
    if dim == head.dim:
        return head
    whole = head.linear
    channels = head.dim if whole is None else whole.in_features
    bias = whole is not None and whole.bias is not None
    short = Head(channels, dim, pooling=head.pooling, normalisation=head.normalisation, bias=bias)
    assert short.linear is not None
    with torch.no_grad():
        short.linear.weight.copy_(torch.eye(dim, channels) if whole is None else whole.weight[:dim])
        if whole is not None and bias:
            short.linear.bias.copy_(whole.bias[:dim])
    return short if whole is None else short.to(whole.weight.device)


# Principal axes: a head that keeps the directions in which features vary most, without training.

ROWS = 4096  # rows converted to float64 at a time


class PrincipalAxes(NamedTuple):
    """Mean of features, and the directions in which they vary.

    Attributes:
        mean: Mean of the features.
        axes: One direction per row, orthonormal, by descending variance.
    """

    mean: Float64[np.ndarray, " c"]
    axes: Float64[np.ndarray, "k c"]


def principal_axes(features: Float[np.ndarray, "n c"], count: int | None = None) -> PrincipalAxes:
    """Return the first principal axes of features.

    Beyond the number of rows features do not vary: further axes are random directions orthogonal to the others.

    Args:
        features: Features of items, one row each.
        count: Number of axes; None for all.

    Example:
        >>> principal = principal_axes(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]], np.float32))
        >>> principal.mean.tolist(), principal.axes[0].tolist()
        ([2.0, 1.0], [1.0, 0.0])
    """
    if not len(features):
        raise InputError("Principal axes need at least one row of features, got none.")
    mean = features.mean(axis=0, dtype=np.float64)
    count = len(mean) if count is None else count
    if len(features) < len(mean):
        axes = _completed(np.linalg.svd(features - mean, full_matrices=False)[2][: len(features) - 1], count)
    else:
        scatter = np.zeros((len(mean), len(mean)))
        for start in range(0, len(features), ROWS):
            rows = features[start : start + ROWS] - mean
            scatter += rows.T @ rows
        axes = np.linalg.eigh(scatter)[1][:, ::-1].T[:count]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return PrincipalAxes(mean, axes * np.where(largest < 0, -1.0, 1.0))  # fix the sign, which is arbitrary


def _completed(axes: Float64[np.ndarray, "r c"], count: int) -> Float64[np.ndarray, "k c"]:
    """Return `count` orthonormal rows: the given ones, followed by random directions if there are fewer."""
    if len(axes) >= count:
        return axes[:count]
    drawn = np.random.default_rng(0).standard_normal((count - len(axes), axes.shape[1]))
    for _ in range(2):  # the second time removes what rounding has left
        drawn -= (drawn @ axes.T) @ axes
        drawn = np.linalg.qr(drawn.T)[0].T
    return np.concatenate([axes, drawn])


def principal_head(principal: PrincipalAxes, dim: int, *, pooling: Pooling = "average") -> Head:
    """Return a head that centres features, projects them onto the first principal axes, and normalises to the sphere.

    Args:
        principal: Principal axes of the features that the head will be applied to.
        dim: Number of axes to keep.
        pooling: Pooling of the feature maps.

    Example:
        >>> principal = principal_axes(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]], np.float32))
        >>> principal_head(principal, 1).unnormalised(torch.tensor([[5.0, 7.0]])).tolist()
        [[3.0]]
    """
    if not 1 <= dim <= len(principal.axes):
        raise InputError(f"dim must be from 1 to {len(principal.axes)} axes; got {dim}.")
    head = Head(len(principal.mean), dim, pooling=pooling)
    assert head.linear is not None
    axes = principal.axes[:dim]
    with torch.no_grad():
        head.linear.weight.copy_(torch.from_numpy(axes.copy()))
        head.linear.bias.copy_(torch.from_numpy(-axes @ principal.mean))
    return head
