"""The largest batch of some items of some classes that a dataset can fill."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["batch_that_fits"]


def batch_that_fits(labels: npt.ArrayLike, classes: int, items: int) -> tuple[int, int]:
    """Return classes and items of each in a batch: as asked where the data can fill it, else as large as it can.

    Of batches of the same size the one with more classes is taken. A batch that has pairs keeps them: it
    does not shrink below two items, nor below two classes. What even that cannot fill is returned as asked, and the
    sampler says what is wrong.

    Args:
        labels: Of the training items; or their sets of labels, a row of booleans for each.
        classes: Classes in a batch, as asked.
        items: Of each class.

    Example:
        >>> five_classes_of_three = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
        >>> batch_that_fits(five_classes_of_three, 8, 4), batch_that_fits(five_classes_of_three, 2, 2)
        ((5, 3), (2, 2))
    """
    targets = np.asarray(labels)
    if targets.ndim == 2:
        sizes, supply = np.count_nonzero(targets[:, targets.any(axis=0)], axis=0), int(targets.any(axis=1).sum())
    else:
        sizes, supply = np.unique(targets, return_counts=True)[1], len(targets)
    best = (0, 0)
    for each in range(items, min(2, items) - 1, -1):
        most = min(classes, len(sizes), min(int(np.minimum(sizes, each).sum()), supply) // each)
        if most >= min(2, classes) and most * each >= best[0] * best[1]:
            best = (most, each)
    return best if best != (0, 0) else (classes, items)
