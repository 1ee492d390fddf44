"""Supervision of a learner: labels, pairs or triplets, all as masks of one n x n matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vicinal.errors import InputError
from vicinal.pairs import masks, squared_euclidean

__all__ = ["Relations", "from_labels", "from_pairs", "from_triplets", "nearest_positives"]


@dataclass(frozen=True)
class Relations:
    """Pairs of points that belong together, and pairs that do not.

    Attributes:
        positive: Pairs that belong together; row i holds the pairs of anchor i.
        negative: Pairs that do not.
        labels: Class of each point, if the relations come from classes.
        triplets: Rows (anchor, near, far), if the relations come from triplets.
    """

    positive: Bool[Tensor, "n n"]
    negative: Bool[Tensor, "n n"]
    labels: Int[Tensor, " n"] | None = None
    triplets: Int[Tensor, "t 3"] | None = None


def from_labels(labels: Int[np.ndarray, " n"]) -> Relations:
    """Relate all points by their classes.

    Example:
        >>> from_labels(np.array([0, 0, 1])).positive.int().tolist()
        [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    tensor = torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64))
    positive, negative = masks(tensor, tensor, torch.eye(len(tensor), dtype=torch.bool))
    if not negative.any():
        raise InputError(f"A metric needs at least 2 classes; y has 1 class ({len(tensor)} points).")
    if not positive.any():
        raise InputError(f"No two of the {len(tensor)} points share a label; at least one pair must.")
    return Relations(positive, negative, labels=tensor)


def from_pairs(points: int, pairs: Any, same: Any) -> Relations:
    """Relate points by pairs of their indices, each marked as belonging together or not.

    Example:
        >>> known = from_pairs(3, [[0, 1], [1, 2]], [True, False])
        >>> known.positive[1].tolist(), known.negative[1].tolist()
        ([True, False, False], [False, False, True])
    """
    index = _indices("pairs", pairs, 2, points)
    marks = np.asarray(same)
    if marks.shape != (len(index),) or not set(np.unique(marks)) <= {-1, 0, 1}:
        raise InputError(
            f"same must mark each of the {len(index)} pairs as belonging together (True or 1) or not (False, 0 or "
            f"-1); got {marks.dtype} of shape {list(marks.shape)}."
        )
    together = torch.from_numpy(marks > 0)
    positive, negative = (torch.zeros(points, points, dtype=torch.bool) for _ in range(2))
    for mask, chosen in ((positive, index[together]), (negative, index[~together])):
        mask[chosen[:, 0], chosen[:, 1]] = mask[chosen[:, 1], chosen[:, 0]] = True
    both = (positive & negative).nonzero()
    if len(both):
        raise InputError(f"The pair {tuple(both[0].tolist())} is marked both as belonging together and as not.")
    return Relations(positive, negative)


def from_triplets(points: int, triplets: Any) -> Relations:
    """Relate points by rows (anchor, near, far) of their indices: near should be nearer to the anchor than far.

    Example:
        >>> known = from_triplets(3, [[0, 1, 2]])
        >>> known.positive[0].tolist(), known.negative[0].tolist()
        ([False, True, False], [False, False, True])
    """
    index = _indices("triplets", triplets, 3, points)
    anchor, near, far = index.T
    positive, negative = (torch.zeros(points, points, dtype=torch.bool) for _ in range(2))
    positive[anchor, near] = True
    negative[anchor, far] = True
    return Relations(positive, negative, triplets=index)


def nearest_positives(points: Tensor, relations: Relations, neighbours: int) -> Bool[Tensor, "n n"]:
    """Keep the nearest positives of every anchor; an anchor with fewer keeps all of them.

    Example:
        >>> known = from_labels(np.array([0, 0, 0, 1]))
        >>> nearest_positives(torch.tensor([[0.0], [1.0], [3.0], [9.0]]), known, 1).int().tolist()
        [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    """
    if neighbours < 1:
        raise InputError(f"n_neighbors must be at least 1; got {neighbours}.")
    mask = torch.zeros_like(relations.positive)
    for members in _together(relations):
        here = points[members]
        positive = relations.positive[members[:, None], members]
        far = squared_euclidean(here, here).masked_fill_(~positive, torch.inf)
        nearest = far.topk(min(neighbours, len(here)), dim=1, largest=False).indices
        mask[members.unsqueeze(1), members[nearest]] = positive.gather(1, nearest)
    return mask


def _together(relations: Relations) -> Iterator[Int[Tensor, " m"]]:
    """Yield groups of points that have positives only among themselves: the classes, if they are known."""
    if relations.labels is None:
        yield torch.arange(len(relations.positive))
        return
    order = relations.labels.argsort(stable=True)
    yield from torch.split(order, relations.labels.bincount().tolist())


def _indices(name: str, rows: Any, width: int, points: int) -> Int[Tensor, "_ _"]:
    index = np.asarray(rows)
    if index.ndim != 2 or index.shape[1] != width or not np.issubdtype(index.dtype, np.integer) or not len(index):
        raise InputError(
            f"{name} must be rows of {width} indices into X; got {index.dtype} of shape {list(index.shape)}."
        )
    if index.min() < 0 or index.max() >= points:
        raise InputError(f"{name} must hold indices from 0 to {points - 1}; got {index.min()} to {index.max()}.")
    meets_itself = (index[:, :1] == index[:, 1:]).any(1)
    if meets_itself.any():
        row = int(meets_itself.argmax())
        raise InputError(f"Row {row} of {name}, {index[row].tolist()}, compares a point with itself.")
    return torch.from_numpy(index.astype(np.int64))
