"""Open-set identification: who is it, or nobody? Queries of known classes and of classes that the gallery lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int64

from vicinal.errors import InputError, look_up
from vicinal.evaluation.scored_items import ScoredItems, as_scored_items
from vicinal.neighbours.checked_inputs import ArrayLike, Labels
from vicinal.neighbours.exclusion import Exclusion
from vicinal.neighbours.nearest import collect
from vicinal.phrasing import counted

__all__ = ["Identification", "identify", "identify_items"]

RATES = (0.1, 0.01, 0.001)
ASKED_TWICE = (
    "Identification: without a gallery every item is asked for twice, among all other items and, as a stranger, among "
    "those of other classes alone."
)


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
        notes: What a reader should know before believing the numbers.
    """

    overall: Mapping[str, float]
    thresholds: Mapping[str, float]
    known: int
    strangers: int
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        return look_up("score", name, self.overall)

    def __str__(self) -> str:
        lines = [f"{name:<12}  {value:.4f}" for name, value in self.overall.items()]
        return "\n".join([*lines, self.summary(), *(f"Note: {note}" for note in self.notes)])

    def summary(self) -> str:
        """How many were asked for."""
        return f"{counted(self.known, 'query', 'queries')} of known classes, {counted(self.strangers, 'stranger')}."


def identify(
    queries: ArrayLike,
    labels: Labels,
    gallery: ArrayLike | None = None,
    gallery_labels: Labels | None = None,
    *,
    distance: str = "cosine",
    rates: Sequence[float] = RATES,
) -> Identification:
    """Score open-set identification by the nearest item of a gallery, with rejection below a threshold.

    Without a gallery every item is asked for twice: among all other items, and, as a stranger, among those of other
    classes alone.

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
    return identify_items(items, rates=rates)


def identify_items(items: ScoredItems, *, rates: Sequence[float] = RATES) -> Identification:
    """Score open-set identification of items that are checked already; see `identify`."""
    itself = items.ignored.itself
    if itself and items.ignored.queries is not None:
        raise InputError("Identification without a gallery does not know of sequences; give a gallery.")
    known = items.relevance.count(items.ignored).numpy() > 0
    if not known.any():
        raise InputError("No query is of a class in the gallery; there is nobody to identify.")
    classes, similarity = _nearest(items)
    right = (classes == items.codes.numpy())[known]
    if itself:
        _, as_stranger = _nearest(replace(items, ignored=Exclusion(True, items.codes, items.reference_codes)))
        strangers = as_stranger[np.isfinite(as_stranger)]
    else:
        strangers = similarity[~known]
    found, thresholds = _rates_of_detection(similarity[known], right, np.sort(strangers), rates)
    notes = [ASKED_TWICE] if itself else []
    lacking = [f"{rate:g}" for rate in rates if f"DIR@FAR={rate:g}" not in found]
    if lacking:
        needed = int(np.ceil(1 / float(lacking[0])))
        notes.append(
            f"There are {len(strangers):,} strangers: DIR at a FAR of {lacking[0]} needs at least {needed:,} of them."
        )
    overall = {"rank-1": float(right.mean())} | found
    return Identification(overall, thresholds, int(known.sum()), len(strangers), tuple(notes))


def _nearest(items: ScoredItems) -> tuple[Int64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """The class and the similarity of the nearest reference of each query; -1 and minus infinity for none."""
    found = collect(items.queries, items.references, items.ignored, 1)
    places, values = found.indices[:, 0].numpy(), found.values[:, 0].numpy()
    similarity = values if items.queries.distance == "cosine" else 0.0 - values
    return np.where(places < 0, -1, items.reference_codes.numpy()[places]), np.where(places < 0, -np.inf, similarity)


def _rates_of_detection(
    similarity: Float64[np.ndarray, " n"],
    right: Bool[np.ndarray, " n"],
    strangers: Float64[np.ndarray, " m"],
    rates: Sequence[float],
) -> tuple[dict[str, float], dict[str, float]]:
    """DIR and its threshold for each rate that there are strangers enough for, these in rising order."""
    overall, thresholds = dict[str, float](), dict[str, float]()
    for rate in rates:
        allowed = int(rate * len(strangers) * (1 + 1e-12))
        if not allowed:
            continue  # a single accident would exceed it
        # the threshold lies just above the nearest stranger that must not get a name
        barred = strangers[-allowed - 1] if allowed < len(strangers) else -np.inf
        name = f"DIR@FAR={rate:g}"
        overall[name] = float((right & (similarity > barred)).mean())
        thresholds[name] = float(np.nextafter(barred, np.inf))
    return overall, thresholds
