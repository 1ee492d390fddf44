"""The sign-flip test: would a coin, class by class, give a difference as large?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["sign_flip"]

EXACT = 14  # up to so many classes, every pattern of signs is tried
BLOCK = 2**22  # signs at once


def sign_flip(differences: NDArray[np.float64], *, draws: int = 20_000, seed: int = 0) -> NDArray[np.float64]:
    """Two-sided p-values that the sum of each column is no larger than chance makes it.

    If two methods are the same, then in each class (row) the one might as well have been the other: the sign of its
    difference is a coin. With few classes all patterns of signs are tried, and p is exact.

    Args:
        differences: Classes by pairs of methods.
        draws: Patterns of signs, where there are too many to try them all.
        seed: Of the draws.

    Example:
        >>> sign_flip(np.ones((5, 1)))
        array([0.0625])
    """
    classes, pairs = differences.shape
    # A pattern as large as the one observed must not miss it by rounding.
    least = np.abs(differences.sum(axis=0)) - 1e-12 * np.abs(differences).sum(axis=0)
    if classes <= EXACT:
        patterns = (np.arange(2**classes)[:, None] >> np.arange(classes)) & 1
        return (np.abs((1.0 - 2 * patterns) @ differences) >= least).mean(axis=0)
    generator = np.random.default_rng(seed)
    as_large = np.ones(pairs)  # what was observed is one of the patterns
    block = max(1, BLOCK // classes)
    for start in range(0, draws, block):
        signs = 1.0 - 2 * generator.integers(0, 2, (min(block, draws - start), classes), dtype=np.int8)
        as_large += (np.abs(signs @ differences) >= least).sum(axis=0)
    return as_large / (1 + draws)
