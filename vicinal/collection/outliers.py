"""Outliers: items that are far from every class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours import find_neighbours
from vicinal.neighbours.inputs import ArrayLike, Labels, as_codes, as_embeddings, checked_count

__all__ = ["Outlier", "find_outliers", "remoteness"]

NEIGHBOURS = 5
FIRST_LOOK = 8  # times k neighbours of every item in the first search; items with k of no class are searched again
FAR = 3.5  # robust standard deviations: in a normal distribution, one of 4,000 items is farther
LENT = 5.0  # weight, in items, of the statistics of the whole collection in those of each class
SPREAD = 1.4826  # standard deviation of a normal distribution, in median absolute deviations


@final
@dataclass(frozen=True)
class Outlier:
    """Item that is far from all classes.

    Attributes:
        index: Index of the item.
        label: Label of the item; None without labels.
        score: Distance to the nearest class beyond the usual distance of its label, in robust standard deviations.
        distance: Distance to its k-th neighbour in the nearest class.
        usual: Usual distance of items of its label.
        nearest: Indices of its k nearest neighbours of any class.
    """

    index: int
    label: Any
    score: float
    distance: float
    usual: float
    nearest: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        label = None if self.label is None else str(self.label)
        return {
            "index": self.index,
            "label": label,
            "score": self.score,
            "distance": self.distance,
            "usual": self.usual,
            "nearest": list(self.nearest),
        }


def find_outliers(
    embeddings: ArrayLike,
    labels: Labels | None = None,
    *,
    k: int | None = None,
    distance: str = "cosine",
    least: float = FAR,
) -> list[Outlier]:
    """List the items that are farther from every class than is usual for their label, the farthest first.

    The distance of an item to a class is that of its k-th neighbour in the class. So an item in the midst of another
    class is mislabelled rather than an outlier, and odd items of several labels that are close only to each other are
    outliers.

    Args:
        embeddings: One row per item.
        labels: Label of each item; without labels all items are one class.
        k: Rank of the neighbour in a class that defines the distance to it; smaller classes use their last item. By
            default 5, or fewer if there are fewer items.
        distance: "cosine" or "euclidean".
        least: Smallest score that is listed.

    Example:
        >>> find_outliers([[0.0], [0.1], [0.2], [0.3], [0.4], [9.0]], k=2, distance="euclidean")[0].index
        5
    """
    items = as_embeddings(embeddings)
    if len(items) < 2:
        raise InputError("Outliers need at least 2 items; got 1.")
    k = min(NEIGHBOURS, len(items) - 1) if k is None else checked_count(k, "k")
    if k >= len(items):
        raise InputError(f"k must be from 1 to {len(items) - 1} for {len(items)} items; got {k}.")
    names: list[Any] = [None]
    codes = np.zeros(len(items), dtype=np.int64)
    if labels is not None:
        names, (tensor,) = as_codes(labels, sizes=[len(items)])  # type: ignore[assignment]
        codes = tensor.numpy()
    values, nearest = _kth_of_a_class(items, codes, k, distance)
    farness = np.sqrt(np.maximum(2.0 - 2.0 * values, 0.0)) if distance == "cosine" else values
    scores, usual = remoteness(farness, codes)
    outliers = np.flatnonzero(scores >= least)
    return [
        Outlier(
            index,
            names[codes[index]],
            float(scores[index]),
            float(farness[index]),
            float(usual[codes[index]]),
            tuple(nearest[index].tolist()),
        )
        for index in outliers[np.argsort(-scores[outliers], kind="stable")].tolist()
    ]


def _kth_of_a_class(
    items: Float[Tensor, "n d"], codes: Int64[np.ndarray, " n"], k: int, distance: str
) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, "n k"]]:
    """Return the similarity or distance of the k-th neighbour in the nearest class, and the k nearest of any class."""
    sizes = np.bincount(codes)
    values, nearest = np.empty(len(items)), np.empty((len(items), k), dtype=np.int64)
    left, wanted = np.arange(len(items)), FIRST_LOOK * k
    while len(left):
        # An item in the gallery also finds itself: once in wanted + 1.
        near = find_neighbours(items[left], min(wanted + 1, len(items)), gallery=items, distance=distance)
        order = np.argsort(near.indices.numpy() == left[:, None], axis=1, kind="stable")[:, :-1]
        neighbours = np.take_along_axis(near.indices.numpy(), order, axis=1)
        of_class = codes[neighbours]
        there = sizes[of_class] - (of_class == codes[left][:, None])
        enough = _times_before(of_class) + 1 >= np.minimum(k, there)
        done = enough.any(axis=1)
        compared = np.take_along_axis(near.values.numpy(), order, axis=1)[np.arange(len(left)), enough.argmax(axis=1)]
        values[left[done]], nearest[left[done]] = compared[done], neighbours[done, :k]
        left, wanted = left[~done], 4 * wanted
    return values, nearest


def _times_before(labels: Int64[np.ndarray, "n m"]) -> Int64[np.ndarray, "n m"]:
    """Count how often each label occurs before its position in its row."""
    order = np.argsort(labels, axis=1, kind="stable")
    ordered = np.take_along_axis(labels, order, axis=1)
    column = np.arange(labels.shape[1])
    begins = np.concatenate([np.ones((len(labels), 1), bool), ordered[:, 1:] != ordered[:, :-1]], axis=1)
    start = np.maximum.accumulate(np.where(begins, column, 0), axis=1)
    times = np.empty_like(labels)
    np.put_along_axis(times, order, column - start, axis=1)
    return times


def remoteness(
    farness: Float64[np.ndarray, " n"], codes: Int64[np.ndarray, " n"]
) -> tuple[Float64[np.ndarray, " n"], NDArray[np.float64]]:
    """Return each distance beyond the usual one of its class, in robust standard deviations, and the usual distances.

    The usual distance is the median of the class, and the spread its median absolute deviation. Both are shrunk towards
    those of all items, so that a class of three items does not define on its own what is far.
    """
    middle = float(np.median(farness))
    spread = float(np.median(np.abs(farness - middle)))
    usual, spreads = np.full(int(codes.max()) + 1, middle), np.full(int(codes.max()) + 1, spread)
    for code in np.unique(codes):
        own = farness[codes == code]
        centre = float(np.median(own))
        usual[code] = (len(own) * centre + LENT * middle) / (len(own) + LENT)
        spreads[code] = (len(own) * np.median(np.abs(own - centre)) + LENT * spread) / (len(own) + LENT)
    wide = np.maximum(SPREAD * spreads, 1e-9 + 1e-6 * abs(middle))
    return (farness - usual[codes]) / wide[codes], usual
