"""Distance of a probability from the 0 or 1 of a label, in one coordinate and over all classes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from vicinal.errors import InputError

__all__ = ["CONCAVE", "LARGEST", "SMALLEST", "label_gap", "max_classes", "power_of_gap"]

# Rounding would make the loss of a confident mistake infinite; between these limits it is finite and has a gradient.
SMALLEST, LARGEST = 1e-30, 1.0 - 2.0**-23
# The gradient of a plain square root would be unbounded for an item that has reached its label.
ROOT_SMOOTHING = 1e-4


def _root(total: Tensor) -> Tensor:
    return (total + ROOT_SMOOTHING).sqrt() - ROOT_SMOOTHING**0.5


def _saturating(total: Tensor) -> Tensor:
    return -torch.expm1(-total)


# All are 0 at 0, increasing and concave, hence subadditive: F(a + b) <= F(a) + F(b).
CONCAVE: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda total: total,
    "logarithm": torch.log1p,
    "root": _root,
    "saturating": _saturating,
}


def power_of_gap(gap: Float[Tensor, "*shape"], p: float, smoothing: float = 0.0) -> Float[Tensor, "*shape"]:
    """Return the p-th power of numbers in [0, 1], without its cusp at 0 if smoothing is above 0.

    Formula:
        ((u + s)^p - s^p) / ((1 + s)^p - s^p), which is 0 at 0 and 1 at 1 for any s

    Args:
        gap: Numbers u in [0, 1].
        p: Power, above 0; below 1 the slope of u^p at 0 is infinite.
        smoothing: Smoothing s, at least 0.

    Example:
        >>> power_of_gap(torch.tensor([0.0, 0.25, 1.0]), 0.5)
        tensor([0.0000, 0.5000, 1.0000])
    """
    if smoothing == 0:
        return gap**p
    return ((gap + smoothing) ** p - smoothing**p) / ((1.0 + smoothing) ** p - smoothing**p)


def label_gap(gap: Float[Tensor, "*shape"], *, k: float, p: float, smoothing: float = 0.0) -> Float[Tensor, "*shape"]:
    """Return the distance of two coordinates that differ by a gap.

    Formula:
        -log(1 - k u^p), with the power smoothed as in `power_of_gap`

    Args:
        gap: Differences u in [0, 1].
        k: Factor in (0, 1]; at 1 the distance of 0 and 1 is infinite.
        p: Power, above 0.
        smoothing: Smoothing of the power, at least 0, and 0 if k is 1.

    Example:
        >>> label_gap(torch.tensor([0.1, 1.0]), k=0.5, p=0.75)
        tensor([0.0931, 0.6931])
    """
    if not (0 < k <= 1 and p > 0 and smoothing >= 0) or (k == 1 and smoothing > 0):
        raise InputError(
            f"A label gap needs 0 < k <= 1, p above 0 and smoothing of at least 0 (0 for k = 1); got k={k!r}, p={p!r}, "
            f"smoothing={smoothing!r}."
        )
    return -torch.log1p(-k * power_of_gap(gap, p, smoothing))


def max_classes(k: float, p: float, smoothing: float = 0.0) -> float:
    """Return the number of classes up to which an undecided item is nearer to its label than a confidently wrong one.

    With more classes, a loss that is this distance is smaller if all items are assigned to any one class than if they
    are spread over all classes. Training from random weights then converges to that and stays there.

    Formula:
        the largest C with f(1 - 1/C) + (C - 1) f(1/C) <= 2 f(1), where f is `label_gap`; infinity if it holds for all C

    Example:
        >>> max_classes(0.5, 0.75), max_classes(0.9, 1.0)
        (8.0, inf)
    """

    def far(classes: int) -> float:
        gaps = torch.tensor([1 - 1 / classes, 1 / classes, 1.0], dtype=torch.float64)
        own, other, wrong = label_gap(gaps, k=k, p=p, smoothing=smoothing).tolist()
        return own + (classes - 1) * other - 2 * wrong

    low, high = 1, 1 << 40
    if far(high) <= 0:
        return math.inf
    while high - low > 1:  # the sum over the other classes increases with their number
        middle = (low + high) // 2
        low, high = (middle, high) if far(middle) <= 0 else (low, middle)
    return float(low)
