"""Values of k and p for which the label distance is a metric, in closed form, also for the smoothed power.

The distance of two coordinates that differ by u is f(u) = -log(1 - k g(u)), where g(u) is u^p or its smoothed form
((u + s)^p - s^p) / ((1 + s)^p - s^p). Since f increases from f(0) = 0, the triangle inequality on [0, 1] says that f is
subadditive: f(u + v) <= f(u) + f(v) whenever u + v <= 1. **This holds if and only if 2 f(1/2) >= f(1)**, that is

    k <= (2 g - 1) / g^2    with g = g(1/2),

which without smoothing becomes k <= 2^(p+1) - 2^(2p), or p <= log2(1 + sqrt(1 - k)).

Proof. The slope is f'(u) = c p / q(u + s), with a constant c > 0 and q(t) = a t^(1-p) - c t, where a > 0. For p >= 1, q
decreases, so f is convex and not subadditive, and the condition fails as it must: g(1/2) <= 1/2. Let p < 1.

1. *Only halves matter.* Fix u + v = w and let m(u) = f(u) + f(w - u) - f(w), so m(0) = 0. For u < w/2 the sign of m'(u)
   is that of r(u) = q(w - u + s) - q(u + s). As q''(t) = -a p (1-p) t^(-p-1) increases with t, r'' > 0: r is convex and
   r(w/2) = 0, so on [0, w/2] r is first at least 0 and then at most 0. Hence m increases, then decreases, and is
   smallest at 0, where it is 0, or at w/2.
2. *Only w = 1 matters.* Let h(w) = 2 f(w/2) - f(w), so h(0) = 0. The sign of h'(w) is that of
   r(w) = q(w + s) - q(w/2 + s), r(0) = 0, and r''(w) = q''(w + s) - q''(w/2 + s) / 4 < 0, because w/2 + s >= (w + s)/2
   makes the second term less than 2^(p-1) < 1 of the first in size. So r is first at least 0 and then at most 0; h
   increases, then decreases, and is smallest at 0 or at 1.

Sums over coordinates preserve the inequality, and so does every F that is increasing and concave with F(0) = 0. The
converse needs F to be the identity: take two labels and the point half-way between them on the edge of the simplex.
"""

from __future__ import annotations

import math

from vicinal.errors import InputError
from vicinal.objectives.label_gap import max_classes

__all__ = ["k_max", "options_for", "p_max"]


def k_max(p: float, smoothing: float = 0.0) -> float:
    """Return the largest k for which the label distance is a metric; 0 if there is none.

    Args:
        p: Power, above 0.
        smoothing: Smoothing of the power at 0.

    Example:
        >>> round(k_max(0.5), 4), k_max(1.0)
        (0.8284, 0.0)
    """
    _check(smoothing)
    if not p > 0:
        raise InputError(f"p must be above 0; got {p!r}.")
    return _k_of(_half(p, smoothing))


def p_max(k: float, smoothing: float = 0.0) -> float:
    """Return the largest p for which the label distance is a metric; 0 if there is none, only possible with smoothing.

    Args:
        k: Factor, above 0 and at most 1.
        smoothing: Smoothing of the power at 0.

    Example:
        >>> [round(p_max(k), 4) for k in (0.1, 0.5, 0.9)]
        [0.9625, 0.7716, 0.3964]
        >>> round(p_max(0.5, smoothing=1e-3), 4)
        0.7676
    """
    _check(smoothing)
    if not 0 < k <= 1:
        raise InputError(f"k must be above 0 and at most 1; got {k!r}.")
    if smoothing == 0:
        return math.log2(1 + math.sqrt(1 - k))
    low, high = 1e-12, 1.0
    if k > _k_of(_half(low, smoothing)):
        return 0.0
    for _ in range(60):  # g(1/2) decreases as p increases: the mass of t^(p-1) moves to the right
        middle = (low + high) / 2
        low, high = (middle, high) if k <= _k_of(_half(middle, smoothing)) else (low, middle)
    return low


def options_for(classes: int, smoothing: float = 1e-4) -> dict[str, float]:
    """Return options of `metric_cross_entropy` that make it a metric that can be trained from random weights.

    A metric needs p below 1, and then many small gaps outweigh one large gap: with more than `max_classes(k, p)`
    classes, the loss is lower if all items are assigned to any one class. The smaller k is, the more classes are
    possible. This function returns the largest k for the number of classes, at most the default 0.5, and its largest p.

    Args:
        classes: Number of classes to learn.
        smoothing: Smoothing of the power at 0.

    Example:
        >>> {name: round(value, 4) for name, value in options_for(100).items()}
        {'k': 0.0173, 'p': 0.9937, 'smoothing': 0.0001}
    """
    _check(smoothing)
    if classes < 2:
        raise InputError(f"classes must be at least 2; got {classes!r}.")
    low, high = 1e-12, 0.5
    for _ in range(60):
        middle = math.sqrt(low * high)
        enough = max_classes(middle, p_max(middle, smoothing), smoothing) >= classes
        low, high = (middle, high) if enough else (low, middle)
    return {"k": low, "p": p_max(low, smoothing), "smoothing": smoothing}


def _half(p: float, smoothing: float) -> float:
    """Return the smoothed power of one half."""
    if smoothing == 0:
        return 0.5**p
    zero, half, unit = (math.log(t) for t in (smoothing, 0.5 + smoothing, 1.0 + smoothing))
    return math.expm1(p * (half - zero)) / math.expm1(p * (unit - zero))


def _k_of(half: float) -> float:
    return max(0.0, (2 * half - 1) / half**2)


def _check(smoothing: float) -> None:
    if not smoothing >= 0:
        raise InputError(f"smoothing must be at least 0; got {smoothing!r}.")
