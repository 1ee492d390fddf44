"""How probable it is that each method is the best."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.statistics.class_scores import class_scores
from vicinal.statistics.intervals import times_drawn

__all__ = ["probability_of_best"]

BLOCK = 2**21  # drawn classes at once


def probability_of_best(
    per_class: Mapping[str, NDArray[np.float64]],
    *,
    queries: NDArray[np.int64] | None = None,
    draws: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """In how many resamples of classes and seeds each method has the highest mean; equals share.

    With one seed only classes are drawn. With two or three, drawing them says too little of what other seeds would
    do: read the result as a picture of the data at hand, and `compare_pairs` for a test.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes.
        queries: How many each class has, to weigh classes as the mean over queries does; without it all are equal.
        draws: Resamples.
        seed: Of the draws.

    Returns:
        Method -> share, the method with the highest mean first; the shares sum to 1.

    Example:
        >>> probability_of_best({"poor": np.array([0.1, 0.2, 0.3]), "good": np.array([0.2, 0.3, 0.4])})
        {'good': 1.0, 'poor': 0.0}
    """
    if draws < 1:
        raise InputError(f"There must be at least 1 draw, got {draws}.")
    methods, values, weights = class_scores(per_class, queries)
    _, seeds, classes = values.shape
    generator = np.random.default_rng(seed)
    shares = np.zeros(len(methods))
    block = max(1, BLOCK // classes)
    for start in range(0, draws, block):
        count = min(block, draws - start)
        drawn_classes = times_drawn(generator, count, classes) * weights
        drawn_seeds = times_drawn(generator, count, seeds)
        totals = np.einsum("ds,dsm->dm", drawn_seeds, np.einsum("dc,msc->dsm", drawn_classes, values, optimize=True))
        # Every method of a draw is divided by the same sum of weights, which the order does not see.
        best = np.isclose(totals, totals.max(axis=1, keepdims=True), rtol=1e-12, atol=0)
        shares += (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    return dict(zip(methods, (shares / draws).tolist(), strict=True))
