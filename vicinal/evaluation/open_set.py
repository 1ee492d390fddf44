"""Open-set identification: who is it, or nobody? Queries of known classes and of classes that the gallery lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from vicinal.errors import InputError, look_up
from vicinal.evaluation.scored_items import as_scored_items
from vicinal.neighbours.checked_inputs import ArrayLike, Labels
from vicinal.neighbours.nearest import find_neighbours

__all__ = ["Identification", "identify"]


@dataclass(frozen=True)
class Identification:
    """How often the nearest item of a gallery names a query rightly, and how often a stranger gets a name.

    Attributes:
        overall: rank-1 (the nearest item has the query's class, whatever its similarity) and DIR@FAR=f for each rate f:
            the greatest share of known queries that a threshold names rightly, where it names no more than f of the
            strangers.
        thresholds: Of each DIR: the cosine, or minus the Euclidean distance.
        known: Queries whose class is in the gallery.
        strangers: Queries whose class is not.
    """

    overall: Mapping[str, float]
    thresholds: Mapping[str, float]
    known: int
    strangers: int

    def __getitem__(self, name: str) -> float:
        return look_up("score", name, self.overall)

    def __str__(self) -> str:
        lines = [f"{name:<12}  {value:.4f}" for name, value in self.overall.items()]
        return "\n".join([*lines, f"{self.known:,} queries of known classes, {self.strangers:,} strangers."])


def identify(
    queries: ArrayLike,
    labels: Labels,
    gallery: ArrayLike,
    gallery_labels: Labels,
    *,
    distance: str = "cosine",
    rates: Sequence[float] = (0.1, 0.01, 0.001),
) -> Identification:
    """Score open-set identification by the nearest item of a gallery, with rejection below a threshold.

    Args:
        queries: One row per query.
        labels: One per query; classes that the gallery lacks make it a stranger.
        gallery: One row per item that is known.
        gallery_labels: One per item.
        distance: "cosine" or "euclidean".
        rates: Of strangers that may get a name; those that there are too few strangers for are left out.

    Example:
        >>> gallery, asked = [[1.0, 0.1], [0.1, 1.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        >>> found = identify(asked, ["a", "b", "z"], gallery, ["a", "b"])
        >>> found["rank-1"], found.strangers
        (1.0, 1)
    """
    items = as_scored_items(queries, labels, gallery=gallery, gallery_labels=gallery_labels, distance=distance)
    nearest = find_neighbours(items.queries.rows, 1, gallery=items.references.rows, distance=distance)
    values = nearest.values[:, 0].numpy()
    similarity: Float64[np.ndarray, " n"] = values if distance == "cosine" else 0.0 - values
    codes, reference_codes = items.codes.numpy(), items.reference_codes.numpy()
    right = reference_codes[nearest.indices[:, 0].numpy()] == codes
    known = np.isin(codes, reference_codes)
    if not known.any():
        raise InputError("No query is of a class in the gallery; there is nobody to identify.")
    strangers = np.sort(similarity[~known])
    overall, thresholds = {"rank-1": float(right[known].mean())}, {}
    for rate in rates:
        allowed = int(rate * len(strangers) * (1 + 1e-12))
        if not allowed:
            continue  # a single accident would exceed it
        # the threshold lies just above the nearest stranger that must not get a name
        barred = strangers[-allowed - 1] if allowed < len(strangers) else -np.inf
        accepted = similarity > barred
        name = f"DIR@FAR={rate:g}"
        overall[name] = float((right & accepted)[known].mean())
        thresholds[name] = float(np.nextafter(barred, np.inf))
    return Identification(overall, thresholds, int(known.sum()), len(strangers))
