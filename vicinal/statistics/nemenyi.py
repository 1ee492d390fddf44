"""Nemenyi's test: how far apart must two mean ranks be?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["cliques", "critical_difference", "experiments_needed", "nemenyi_quantile"]


def nemenyi_quantile(methods: int, level: float = 0.05) -> float:
    """The quantile of the studentised range for so many methods, divided by the root of 2.

    Example:
        >>> round(nemenyi_quantile(10), 3)
        3.164
    """
    from scipy import stats  # slow to import

    return float(stats.studentized_range.ppf(1 - level, methods, np.inf)) / math.sqrt(2)


def critical_difference(methods: int, experiments: int, level: float = 0.05) -> float:
    """The difference of two mean ranks that chance alone exceeds, between any two methods, at the given level.

    Formula:
        q sqrt(k (k + 1) / (6 n)), with k methods, n experiments, q of `nemenyi_quantile`.

    Reference:
        Nemenyi 1963; Demsar 2006.

    Example:
        >>> round(critical_difference(4, 14), 3)
        1.254
    """
    return nemenyi_quantile(methods, level) * math.sqrt(methods * (methods + 1) / (6 * experiments))


def experiments_needed(methods: int, level: float = 0.05) -> int:
    """The fewest experiments with which any two mean ranks can lie a critical difference apart.

    Example:
        >>> experiments_needed(10)
        3
    """
    return math.ceil(critical_difference(methods, 1, level) ** 2 / (methods - 1) ** 2)


def cliques(mean_ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """The longest runs of rising mean ranks whose ends are less than a critical difference apart.

    Returns:
        First and last position of each run, none of which lies within another.

    Example:
        >>> cliques([1.0, 2.0, 2.5, 4.0], 1.2)
        [(0, 1), (1, 2), (3, 3)]
    """
    runs: list[tuple[int, int]] = []
    for first, rank in enumerate(mean_ranks):
        last = max(at for at, other in enumerate(mean_ranks) if other - rank < difference)
        if not runs or last > runs[-1][1]:
            runs.append((first, last))
    return runs
