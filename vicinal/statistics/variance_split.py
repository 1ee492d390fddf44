"""How much each of several factors moves a score: the variances of a table that crosses them all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import InputError

__all__ = ["split_variance"]

Factors = tuple[str, ...]


def split_variance(values: NDArray[np.float64], factors: Sequence[str]) -> dict[Factors, float]:
    """Split the variance of a full table into that of its factors and of their interplay.

    Every factor counts as a sample of many levels (losses, seeds, classes) that might have been drawn, and variances
    are estimated from the mean squares of an analysis of variance. What all factors do together cannot be told from
    noise and is one number.

    Formula:
        E[MS_A] = sum over B containing A of variance_B * prod of levels outside B, solved for the variances:
        variance_A = sum over B containing A of (-1)^(|B| - |A|) MS_B / prod of levels outside A, and 0 if below 0.

    Args:
        values: One axis for each factor, a number in each cell.
        factors: Names of the axes. One with a single level says nothing and is left out.

    Returns:
        Factors -> variance: ("loss",), ("seed",), ("loss", "seed"), ...; the last, of all factors, is with the noise.

    Example:
        >>> found = split_variance(np.array([[1.0, 3.0], [5.0, 7.0]]), ["loss", "class"])
        >>> {" x ".join(names): variance for names, variance in found.items()}
        {'loss': 8.0, 'class': 2.0, 'loss x class': 0.0}
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != len(factors) or not table.size or not np.isfinite(table).all():
        raise InputError(
            f"A split of variance needs a finite value for every combination of {', '.join(factors)}; got an array of "
            f"shape {table.shape}{'' if np.isfinite(table).all() else ' with gaps'}."
        )
    levels = {name: count for name, count in zip(factors, table.shape, strict=True) if count > 1}
    table = table.reshape(list(levels.values()))
    subsets = [names for size in range(1, len(levels) + 1) for names in combinations(levels, size)]
    squares = {names: _mean_square(table, levels, names) for names in subsets}
    found = {}
    for names in subsets:
        terms = [
            (-1) ** (len(others) - len(names)) * square
            for others, square in squares.items()
            if set(names) <= set(others)
        ]
        found[names] = max(0.0, sum(terms) / math.prod(levels[name] for name in levels if name not in names))
    return found


def _mean_square(table: NDArray[np.float64], levels: dict[str, int], names: Factors) -> float:
    effect, repeats, degrees = table, 1, 1
    for axis, (name, count) in enumerate(levels.items()):
        mean = effect.mean(axis=axis, keepdims=True)
        if name in names:
            effect, degrees = effect - mean, degrees * (count - 1)
        else:
            effect, repeats = mean, repeats * count
    return float((effect**2).sum()) * repeats / degrees
