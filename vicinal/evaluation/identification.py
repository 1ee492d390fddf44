"""Identification among known classes: open-set rates and few-shot accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from vicinal._util.text import counted
from vicinal.errors import InputError, look_up
from vicinal.evaluation.items import Gallery, ScoredItems, as_scored_items
from vicinal.neighbours.inputs import ArrayLike, Exclusion, Labels
from vicinal.neighbours.nearest import collect
from vicinal.stats.intervals import (
    NO_INTERVALS,
    USUAL_INTERVALS,
    Bootstrap,
    Interval,
    class_interval,
    class_sums,
    percentile_tail,
    times_drawn,
)

__all__ = ["FewShot", "Identification", "few_shot_accuracy", "identify", "identify_items"]


RATES = (0.1, 0.01, 0.001)
QUERIED_TWICE = (
    "Identification: without a gallery every item is a query twice, among all other items and, as a stranger, only "
    "among those of other classes."
)


@dataclass(frozen=True)
class Identification:
    """How often the nearest gallery item identifies a query correctly, and how often a stranger is accepted.

    Attributes:
        overall: rank-1 (the nearest item has the query's class, whatever its similarity) and DIR@FAR=f for each rate f:
            the largest share of known queries that a threshold identifies correctly while it accepts at most a
            fraction f of the strangers.
        thresholds: Threshold of each DIR: the cosine, or minus the Euclidean distance.
        known: Number of queries whose class is in the gallery.
        strangers: Number of queries whose class is not.
        notes: Caveats to read before relying on the numbers.
        intervals: Interval of each score, over classes.
        confidence: Confidence of the intervals.
    """

    overall: Mapping[str, float]
    thresholds: Mapping[str, float]
    known: int
    strangers: int
    notes: tuple[str, ...] = ()
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    confidence: float = 0.95

    def __getitem__(self, name: str) -> float:
        return look_up("score", name, self.overall)

    def __str__(self) -> str:
        lines = [f"{name:<12}  {value:.4f}{self._interval(name)}" for name, value in self.overall.items()]
        return "\n".join([*lines, self.summary(), *(f"Note: {note}" for note in self.notes)])

    def summary(self) -> str:
        """Return the numbers of known queries and strangers as a sentence."""
        return f"{counted(self.known, 'query', 'queries')} of known classes, {counted(self.strangers, 'stranger')}."

    def _interval(self, name: str) -> str:
        if name not in self.intervals:
            return ""
        low, high = self.intervals[name]
        return f"  ({low:.4f} to {high:.4f}, {100 * self.confidence:g} % interval over classes)"


def identify(
    queries: ArrayLike,
    labels: Labels,
    *,
    gallery: Gallery | None = None,
    distance: str = "cosine",
    rates: Sequence[float] = RATES,
    intervals: Bootstrap | None = USUAL_INTERVALS,
) -> Identification:
    """Score open-set identification by the nearest item of a gallery, with rejection below a threshold.

    Without a gallery every item is a query twice: among all other items, and, as a stranger, only among those of other
    classes.

    Intervals are over classes, each with all its queries. That of rank-1 is the interval of P@1. Those of DIR come from
    a bootstrap, in which classes in the gallery and classes that it lacks are resampled separately; the gallery stays
    fixed, and thresholds are chosen again in every draw.

    Args:
        queries: One row per query.
        labels: One label per query; a query whose class is not in the gallery is a stranger.
        gallery: Pair of embeddings and labels of the known items.
        distance: "cosine" or "euclidean".
        rates: Accepted fractions of strangers (FAR); rates that need more strangers than there are get left out.
        intervals: Resamples, confidence and seed of the intervals; None for no intervals.

    Example:
        >>> gallery, queries = [[1.0, 0.1], [0.1, 1.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        >>> result = identify(queries, ["a", "b", "z"], gallery=(gallery, ["a", "b"]))
        >>> result["rank-1"], result.strangers
        (1.0, 1)
    """
    items = as_scored_items(queries, labels, gallery=gallery, distance=distance)
    return identify_items(items, rates=rates, intervals=intervals)


def identify_items(
    items: ScoredItems, *, rates: Sequence[float] = RATES, intervals: Bootstrap | None = USUAL_INTERVALS
) -> Identification:
    """Score open-set identification of items that are already validated; see `identify`."""
    bootstrap = intervals or NO_INTERVALS
    itself = items.ignored.itself
    if itself and items.ignored.queries is not None:
        raise InputError("Identification with sequences needs a gallery.")
    has_class = items.relevance.count(items.ignored).numpy() > 0
    if not has_class.any():
        raise InputError("No query has a class of the gallery, so there is nothing to identify.")
    classes, similarity = _nearest(items)
    codes = items.codes.numpy()
    right = (classes == codes)[has_class]
    if itself:
        _, as_stranger = _nearest(replace(items, ignored=Exclusion(True, items.codes, items.reference_codes)))
        strange = np.isfinite(as_stranger)
        strangers = as_stranger[strange]
    else:
        strange = ~has_class
        strangers = similarity[strange]
    detection_rates, thresholds = _rates_of_detection(similarity[has_class], right, np.sort(strangers), rates)
    notes = [QUERIED_TWICE] if itself else []
    lacking = [f"{rate:g}" for rate in rates if f"DIR@FAR={rate:g}" not in detection_rates]
    if lacking:
        needed = int(np.ceil(1 / float(lacking[0])))
        notes.append(
            f"There are {len(strangers):,} strangers: DIR at a FAR of {lacking[0]} needs at least {needed:,} of them."
        )
    overall = {"rank-1": float(right.mean())} | detection_rates
    ends: dict[str, Interval] = {}
    if bootstrap.draws:
        queries = _Queries(similarity[has_class], right, codes[has_class], strangers, codes[strange])
        wanted = {name: rate for rate in rates if (name := f"DIR@FAR={rate:g}") in detection_rates}
        ends = _intervals(queries, wanted, bootstrap)
    known_queries = int(has_class.sum())
    return Identification(overall, thresholds, known_queries, len(strangers), tuple(notes), ends, bootstrap.confidence)


def _nearest(items: ScoredItems) -> tuple[Int64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Return class and similarity of the nearest reference of each query; -1 and minus infinity if there is none."""
    nearest = collect(items.queries, items.references, items.ignored, 1)
    indices, values = nearest.indices[:, 0].numpy(), nearest.values[:, 0].numpy()
    similarity = values if items.queries.distance == "cosine" else 0.0 - values
    return np.where(indices < 0, -1, items.reference_codes.numpy()[indices]), np.where(indices < 0, -np.inf, similarity)


def _rates_of_detection(
    similarity: Float64[np.ndarray, " n"],
    right: Bool[np.ndarray, " n"],
    strangers: Float64[np.ndarray, " m"],
    rates: Sequence[float],
) -> tuple[dict[str, float], dict[str, float]]:
    """Return DIR and its threshold for each rate that there are enough strangers for; `strangers` must be sorted."""
    overall, thresholds = dict[str, float](), dict[str, float]()
    for rate in rates:
        allowed = int(rate * len(strangers) * (1 + 1e-12))
        if not allowed:
            continue  # a single false accept would exceed it
        # the threshold is just above the nearest stranger that must be rejected
        barred = strangers[-allowed - 1] if allowed < len(strangers) else -np.inf
        name = f"DIR@FAR={rate:g}"
        overall[name] = float((right & (similarity > barred)).mean())
        thresholds[name] = float(np.nextafter(barred, np.inf))
    return overall, thresholds


class _Queries(NamedTuple):
    """Known queries and strangers: their highest similarities and classes, and which were identified correctly."""

    similarity: Float64[np.ndarray, " n"]
    right: Bool[np.ndarray, " n"]
    codes: Int64[np.ndarray, " n"]
    strangers: Float64[np.ndarray, " m"]
    stranger_codes: Int64[np.ndarray, " m"]


def _intervals(queries: _Queries, rates: Mapping[str, float], bootstrap: Bootstrap) -> dict[str, Interval]:
    """Return the interval of rank-1, a mean over queries, and percentile intervals of each DIR from resampled classes.

    Classes in the gallery and classes that it lacks are drawn separately, so that the number of each stays the same; a
    class of both kinds is drawn once for both.
    """
    classes = 1 + max(int(queries.codes.max()), int(queries.stranger_codes.max(initial=-1)))
    known_classes = np.unique(queries.codes)
    kinds = [known_classes, np.setdiff1d(queries.stranger_codes, known_classes)]
    # Nearest first: the weight above a similarity is then a running sum.
    order, strange_order = np.argsort(-queries.similarity), np.argsort(-queries.strangers)
    similarity, codes, right = queries.similarity[order], queries.codes[order], queries.right[order]
    strangers, stranger_codes = queries.strangers[strange_order], queries.stranger_codes[strange_order]
    generator = np.random.default_rng(bootstrap.seed)
    values = np.full((bootstrap.draws, len(rates)), np.nan)
    for draw in range(bootstrap.draws):
        weights = np.zeros(classes)
        for kind in kinds:
            weights[kind] = times_drawn(generator, 1, len(kind))[0] if len(kind) else 0.0
        of_known = weights[codes]
        named = np.concatenate([[0.0], np.cumsum(of_known * right)])
        total = of_known.sum()
        among = np.cumsum(weights[stranger_codes])
        if not len(among) or not among[-1]:
            continue  # no stranger was drawn
        for column, rate in enumerate(rates.values()):
            index = int(np.searchsorted(among, rate * among[-1] * (1 + 1e-12), side="right"))
            barred = strangers[index] if index < len(strangers) else -np.inf
            values[draw, column] = named[np.searchsorted(-similarity, -barred, side="left")] / total
    tail = percentile_tail(bootstrap.confidence, len(known_classes))
    ends = np.nanquantile(values, [tail, 1 - tail], axis=0)
    sums, counts = class_sums(queries.right.astype(np.float64), queries.codes, classes)
    (rank_1,) = class_interval(sums[:, None], counts, confidence=bootstrap.confidence)
    return {"rank-1": rank_1} | {
        name: Interval(float(low), float(high)) for name, (low, high) in zip(rates, ends.T, strict=True)
    }


# n-way k-shot accuracy: new classes, known from a few examples each.


class FewShot(NamedTuple):
    """Mean accuracy over episodes, its interval over episodes, and the number of episodes."""

    accuracy: float
    interval: Interval
    episodes: int


def few_shot_accuracy(
    embeddings: ArrayLike,
    labels: Labels,
    *,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    episodes: int = 600,
    distance: str = "cosine",
    confidence: float = 0.95,
    seed: int = 0,
) -> FewShot:
    """Draw episodes of a few classes with a few examples each, and classify other items by the nearest class mean.

    Args:
        embeddings: One row per item.
        labels: One label per row.
        ways: Number of classes per episode.
        shots: Number of examples of each class.
        queries: Maximum number of other items of each class that are classified.
        episodes: Number of episodes.
        distance: "cosine" (means of unit vectors) or "euclidean".
        confidence: Confidence of the interval.
        seed: Seed of the draws.

    Example:
        >>> points = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]
        >>> few_shot_accuracy(points, ["a", "a", "b", "b"], ways=2, episodes=10).accuracy
        1.0
    """
    if min(ways - 1, shots, queries, episodes) < 1:
        raise InputError(
            f"There must be 2 ways and 1 shot, query and episode at least; got {ways}, {shots}, {queries}, {episodes}."
        )
    items = as_scored_items(embeddings, labels, distance=distance)
    points, codes = items.queries.scaled(slice(None)).numpy(), items.codes.numpy()
    members = [np.flatnonzero(codes == code) for code in range(len(items.classes))]
    members = [indices for indices in members if len(indices) > shots]
    if len(members) < ways:
        raise InputError(
            f"{ways} ways of {shots} shots need {ways} classes of at least {shots + 1} items; there are {len(members)}."
        )
    rng = np.random.default_rng(seed)
    shares = np.empty(episodes)
    for episode in range(episodes):
        drawn = [rng.permutation(members[code]) for code in rng.choice(len(members), ways, replace=False)]
        means = np.stack([points[indices[:shots]].mean(axis=0) for indices in drawn])
        query_indices = [indices[shots : shots + queries] for indices in drawn]
        rows = points[np.concatenate(query_indices)]
        if distance == "cosine":
            lengths = np.linalg.norm(means, axis=1, keepdims=True)
            near = rows @ np.divide(means, lengths, out=np.zeros_like(means), where=lengths > 0).T
        else:
            near = -np.square(rows[:, None] - means).sum(axis=2)
        truth = np.repeat(np.arange(ways), [len(indices) for indices in query_indices])
        shares[episode] = np.mean(near.argmax(axis=1) == truth)
    mean, error = float(shares.mean()), float(shares.std(ddof=1) / math.sqrt(episodes)) if episodes > 1 else math.nan
    half = NormalDist().inv_cdf((1 + confidence) / 2) * error
    return FewShot(mean, Interval(mean - half, mean + half), episodes)
