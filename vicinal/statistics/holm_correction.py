"""Holm's correction: many tests, one level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["holm"]


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Correct p-values so that any false finding among them all is as rare as one test promises.

    Formula:
        p'_(i) = max_{j <= i} min(1, (m - j + 1) p_(j)) over the m p-values in rising order.

    Reference:
        Holm, "A simple sequentially rejective multiple test procedure", 1979.

    Example:
        >>> holm([0.01, 0.04, 0.03, 0.005]).round(3).tolist()
        [0.03, 0.06, 0.06, 0.02]
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    factors = np.arange(len(given), 0, -1)
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * given[order]))
    return corrected
