"""Items that are near nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.neighbours import find_neighbours
from vicinal.neighbours.checked_inputs import ArrayLike, Labels, as_codes, as_embeddings

__all__ = ["Outlier", "find_outliers", "remoteness"]

NEIGHBOURS = 5
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
        score: How far its k-th neighbour is beyond what is usual in its class, in robust standard deviations.
        distance: To its k-th neighbour.
        usual: The distance that is usual in its class.
        nearest: Places of its nearest neighbours.
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
    k: int = NEIGHBOURS,
    distance: str = "cosine",
    least: float = FAR,
) -> list[Outlier]:
    """List the items whose k-th neighbour is farther than is usual for their class, the farthest first.

    The neighbours may be of any class: an item in the midst of another class is mislabelled rather than an outlier.

    Args:
        embeddings: One row per item.
        labels: One per item; without them all items are one class.
        k: Which neighbour is to be near.
        distance: "cosine" or "euclidean".
        least: The least score that is listed.

    Example:
        >>> find_outliers([[0.0], [0.1], [0.2], [0.3], [0.4], [9.0]], k=2, distance="euclidean")[0].place
        5
    """
    items = as_embeddings(embeddings)
    if not 1 <= k < len(items):
        raise InputError(f"The k-th neighbour of {len(items)} items needs k from 1 to {len(items) - 1}; got {k}.")
    names: list[Any] = [None]
    codes = np.zeros(len(items), dtype=np.int64)
    if labels is not None:
        names, (tensor,) = as_codes(labels, sizes=[len(items)])  # type: ignore[assignment]
        codes = tensor.numpy()
    near = find_neighbours(items, k, distance=distance)
    values = near.values.numpy()[:, -1]
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
            tuple(near.indices[place].tolist()),
        )
        for place in found[np.argsort(-scores[found], kind="stable")].tolist()
    ]


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
