"""Items that are near no class."""

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
FIRST_LOOK = 8  # times k neighbours of every item; items with k of no class among these are looked at again
FAR = 3.5  # robust standard deviations: one of 4,000 items of a bell curve is farther
LENT = 5.0  # items' worth of what is usual in the whole collection that every class is lent
SPREAD = 1.4826  # of a bell curve, in median absolute deviations


@final
@dataclass(frozen=True)
class Outlier:
    """An item that is far from all others.

    Attributes:
        place: Of the item.
        label: That it has; None where there are none.
        score: How far the nearest class is beyond what is usual for its label, in robust standard deviations.
        distance: To its k-th neighbour in the nearest class.
        usual: The distance that is usual for items of its label.
        nearest: Places of its k nearest neighbours, of whatever class.
    """

    place: int
    label: Any
    score: float
    distance: float
    usual: float
    nearest: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        label = None if self.label is None else str(self.label)
        return {
            "place": self.place,
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

    An item is as far from a class as its k-th neighbour of that class is. So an item in the midst of another class is
    mislabelled rather than an outlier, and strangers of several labels that are near each other alone are outliers.

    Args:
        embeddings: One row per item.
        labels: One per item; without them all items are one class.
        k: Which neighbour of a class is to be near, the last one in classes of fewer; by default the 5th, or the last
            one of fewer items.
        distance: "cosine" or "euclidean".
        least: The least score that is listed.

    Example:
        >>> find_outliers([[0.0], [0.1], [0.2], [0.3], [0.4], [9.0]], k=2, distance="euclidean")[0].place
        5
    """
    items = as_embeddings(embeddings)
    if len(items) < 2:
        raise InputError("An item is far from others; here is one item, and no other.")
    k = min(NEIGHBOURS, len(items) - 1) if k is None else checked_count(k, "k")
    if k >= len(items):
        raise InputError(f"The k-th neighbour of {len(items)} items needs k from 1 to {len(items) - 1}; got {k}.")
    names: list[Any] = [None]
    codes = np.zeros(len(items), dtype=np.int64)
    if labels is not None:
        names, (tensor,) = as_codes(labels, sizes=[len(items)])  # type: ignore[assignment]
        codes = tensor.numpy()
    values, nearest = _kth_of_a_class(items, codes, k, distance)
    farness = np.sqrt(np.maximum(2.0 - 2.0 * values, 0.0)) if distance == "cosine" else values
    scores, usual = remoteness(farness, codes)
    found = np.flatnonzero(scores >= least)
    return [
        Outlier(
            place,
            names[codes[place]],
            float(scores[place]),
            float(farness[place]),
            float(usual[codes[place]]),
            tuple(nearest[place].tolist()),
        )
        for place in found[np.argsort(-scores[found], kind="stable")].tolist()
    ]


def _kth_of_a_class(
    items: Float[Tensor, "n d"], codes: Int64[np.ndarray, " n"], k: int, distance: str
) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, "n k"]]:
    """Return what the k-th neighbour in the nearest class compares as, and the k nearest neighbours of any class."""
    sizes = np.bincount(codes)
    values, nearest = np.empty(len(items)), np.empty((len(items), k), dtype=np.int64)
    left, many = np.arange(len(items)), FIRST_LOOK * k
    while len(left):
        # An item among the gallery finds itself, too: once in many + 1.
        near = find_neighbours(items[left], min(many + 1, len(items)), gallery=items, distance=distance)
        order = np.argsort(near.indices.numpy() == left[:, None], axis=1, kind="stable")[:, :-1]
        places = np.take_along_axis(near.indices.numpy(), order, axis=1)
        of_class = codes[places]
        there = sizes[of_class] - (of_class == codes[left][:, None])
        enough = _times_before(of_class) + 1 >= np.minimum(k, there)
        done = enough.any(axis=1)
        compared = np.take_along_axis(near.values.numpy(), order, axis=1)[np.arange(len(left)), enough.argmax(axis=1)]
        values[left[done]], nearest[left[done]] = compared[done], places[done, :k]
        left, many = left[~done], 4 * many
    return values, nearest


def _times_before(labels: Int64[np.ndarray, "n m"]) -> Int64[np.ndarray, "n m"]:
    """How often the label of each place occurs before it in its row."""
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
    """Return how many robust standard deviations each distance is beyond what is usual in its class, and the usual.

    What is usual is the median of the class, and the spread its median absolute deviation; classes are lent some
    items' worth of those of all items, so that a class of three does not decide by itself what is far.
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
