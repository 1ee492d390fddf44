"""Items with sets of labels: which labels hang together, and what cannot do with sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.data.dataset import Dataset
from vicinal.errors import InputError

__all__ = ["first_of_each_label", "need_one_label"]


def first_of_each_label(data: Dataset) -> npt.NDArray[np.int64]:
    """Return for each class the first one that it hangs together with: by an item with both, or by a chain of items.

    Classes that do not hang together share no item, and may be on different sides of a split.

    Example:
        >>> sets = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]], dtype=bool)
        >>> first_of_each_label(Dataset(np.eye(3), sets, ("a", "b", "c", "d"))).tolist()
        [0, 0, 2, 0]
    """
    if not data.has_sets:
        return np.arange(len(data.class_names))
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    sets = csr_matrix(data.labels.astype(np.int64))
    component = connected_components(sets.T @ sets, directed=False)[1]
    first: npt.NDArray[np.int64] = np.unique(component, return_index=True)[1][component].astype(np.int64)
    return first


def need_one_label(data: Dataset, what: str) -> None:
    """Raise where items have sets of labels, and say what goes on with them.

    Args:
        data: The items.
        what: What needs one label per item.
    """
    if data.has_sets:
        raise InputError(
            f"{what} needs one label per item, and {data.name} has sets of labels: vicinal.fit trains on them and "
            "vicinal.evaluate scores them."
        )
