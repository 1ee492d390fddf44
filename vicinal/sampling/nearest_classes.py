"""An order of the classes in which near ones stand together."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def nearest_class_order(
    centroids: Float[np.ndarray, "c d"], group: int, rng: np.random.Generator
) -> Int[np.ndarray, c]:
    """All classes in groups: one at random, then the nearest to it of those that are left, and so on.

    Example:
        >>> line = np.array([[0.0], [10.0], [1.0], [11.0]])
        >>> order = nearest_class_order(line, 2, np.random.default_rng(0))
        >>> sorted(map(set, order.reshape(2, 2).tolist()), key=min)
        [{0, 2}, {1, 3}]
    """
    squares = (centroids**2).sum(axis=1)
    left = np.ones(len(centroids), dtype=bool)
    order: list[int] = []
    for first in rng.permutation(len(centroids)):
        if not left[first]:
            continue
        left[first] = False
        distances = np.where(left, squares - 2 * centroids @ centroids[first], np.inf)
        near = np.argsort(distances, kind="stable")[: min(group - 1, int(left.sum()))]
        left[near] = False
        order += [int(first), *near.tolist()]
    return np.array(order, dtype=np.int64)
