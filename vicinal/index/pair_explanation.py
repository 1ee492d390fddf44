"""Why a hit was found: its similarity and rank, the classes around the query, the threshold, and the model's loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from vicinal.embedder.calibration import Calibration
from vicinal.index.float64_similarity import similarities
from vicinal.index.item import Id
from vicinal.index.trained_loss import TracedLoss
from vicinal.index.where import Value

__all__ = ["ClassCentres", "PairExplanation", "class_centres", "explain_pair", "loss_sentence"]

BLOCK = 1 << 15  # items compared at a time
LITTLE = 0.005  # of the strongest pull or push: as good as none


@dataclass(frozen=True)
class ClassCentres:
    """The classes of an index as points: sums of their items' vectors, of length one under the cosine.

    Attributes:
        labels: Of the classes.
        sums: One row per class.
        counts: Items of each.
        of_item: Which class each item has; -1 for none.
    """

    labels: Sequence[Value]
    sums: Float64[np.ndarray, "c d"]
    counts: Int64[np.ndarray, " c"]
    of_item: Int64[np.ndarray, " n"]


@dataclass(frozen=True)
class PairExplanation:
    """What is known about a query and a hit.

    Attributes:
        similarity: The cosine, or minus the Euclidean distance.
        rank: 1 for the nearest of all items; the query itself does not count.
        items: How many items there are beside the query.
        classes: Label, number of items and best similarity of each class among the nearest, most items first.
        nearest: How many nearest items these are.
        centres: Label and similarity of the nearest class centre and the runner-up; the query is left out of its own.
        hit_centre: Place of the hit's class among all centres, 1 for the nearest, and its similarity.
        threshold: From which on the model says "same"; None if it is not calibrated.
        same: What it says.
        probability: Of being the same, where both answers are equally likely beforehand.
        false_matches: The share of different pairs that the threshold lets pass, as promised.
    """

    similarity: float
    rank: int
    items: int
    classes: tuple[tuple[Value | None, int, float], ...]
    nearest: int
    centres: tuple[tuple[Value, float], ...]
    hit_centre: tuple[int, float] | None
    threshold: float | None = None
    same: bool | None = None
    probability: float | None = None
    false_matches: float | None = None


def class_centres(
    embeddings: Float32[np.ndarray, "n d"], labels: Sequence[Value | None], distance: str
) -> ClassCentres:
    """Add up the vectors of each class, once for all explanations."""
    names = list(dict.fromkeys(label for label in labels if label is not None))
    numbers = {label: number for number, label in enumerate(names)}
    of_item = np.array([-1 if label is None else numbers[label] for label in labels], dtype=np.int64)
    sums = np.zeros((len(names), embeddings.shape[1]))
    for start in range(0, len(embeddings), BLOCK):
        part = of_item[start : start + BLOCK]
        np.add.at(sums, part[part >= 0], _as_counted(embeddings[start : start + BLOCK], distance)[part >= 0])
    return ClassCentres(names, sums, np.bincount(of_item[of_item >= 0], minlength=len(names)), of_item)


def explain_pair(
    query: Float32[np.ndarray, " d"],
    hit: int,
    *,
    embeddings: Float32[np.ndarray, "n d"],
    ids: Sequence[Id],
    labels: Sequence[Value | None],
    centres: ClassCentres,
    distance: str = "cosine",
    query_place: int | None = None,
    k: int = 10,
    calibration: Calibration | None = None,
) -> PairExplanation:
    """Explain one hit of a query.

    Args:
        query: The query's vector.
        hit: Place of the hit among the items.
        embeddings: Of all items.
        ids: Of all items.
        labels: Of all items.
        centres: See `class_centres`.
        distance: "cosine" or "euclidean".
        query_place: Place of the query, if it is an item.
        k: How many nearest items the classes are counted of.
        calibration: Of the model, if it has one.
    """
    values = np.concatenate(
        [
            similarities(query[None], embeddings[None, start : start + BLOCK], distance)[0]
            for start in range(0, len(embeddings), BLOCK)
        ]
    )
    others = np.ones(len(values), dtype=bool)
    if query_place is not None:
        others[query_place] = False
    similarity = float(values[hit])
    equal = np.flatnonzero(others & (values == values[hit])).tolist()
    ties = sum(ids[place] < ids[hit] for place in equal)  # type: ignore[operator]
    rank = 1 + int((others & (values > values[hit])).sum()) + ties
    places = np.flatnonzero(others)
    k = min(k, len(places))
    first = places[np.argsort(-values[places], kind="stable")[:k]] if k else places
    about = _centres_near(query, centres, distance, query_place)
    own = int(centres.of_item[hit])
    placed = next((turn for turn, (number, _) in enumerate(about) if number == own), None)
    return PairExplanation(
        similarity=similarity,
        rank=rank,
        items=len(places),
        classes=_classes(first, labels, values),
        nearest=len(first),
        centres=tuple((centres.labels[number], value) for number, value in about[:2]),
        hit_centre=None if placed is None else (placed + 1, about[placed][1]),
        threshold=None if calibration is None else float(calibration.threshold),
        same=None if calibration is None else bool(calibration.same(similarity)),
        probability=None if calibration is None else float(calibration.probability(similarity)),
        false_matches=None if calibration is None else float(calibration.false_matches),
    )


def loss_sentence(traced: TracedLoss, similarity: float, together: bool | None) -> str:
    """Say what a loss would do to a pair.

    Args:
        traced: The curves of the loss.
        similarity: The cosine of the pair.
        together: Whether both have one label; None if that is not known.
    """
    pull, push = traced.at(similarity)
    name = traced.loss.name
    if together is None:
        return (
            f"If both were of one class, {name} would {_words(pull, 'pull')}; if not, it would {_words(push, 'push')}."
        )
    if together:
        return f"Both have the same label: {name} would {_words(pull, 'pull')}."
    return f"The labels differ: {name} would {_words(push, 'push')}."


def _words(strength: float, verb: str) -> str:
    end = "together" if verb == "pull" else "apart"
    if abs(strength) < LITTLE:
        return "leave the pair alone"
    if strength < 0:
        other, way = ("push", "apart") if verb == "pull" else ("pull", "together")
        return f"{other} the pair {way}, against its label"
    return f"{verb} the pair {end} with {min(100, round(100 * strength))} % of its strongest {verb}"


def _as_counted(rows: Float32[np.ndarray, "n d"], distance: str) -> Float64[np.ndarray, "n d"]:
    wide = rows.astype(np.float64)
    if distance == "euclidean":
        return wide
    lengths = np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
    return wide / np.where(lengths > 0, lengths, 1)


def _centres_near(
    query: Float32[np.ndarray, " d"], centres: ClassCentres, distance: str, query_place: int | None
) -> list[tuple[int, float]]:
    """Classes by the similarity of their centres to a query, which does not count for its own class."""
    sums, counts = centres.sums, centres.counts
    if query_place is not None and (own := int(centres.of_item[query_place])) >= 0:
        sums, counts = sums.copy(), counts.copy()
        sums[own] -= _as_counted(query[None], distance)[0]
        counts[own] -= 1
    there = np.flatnonzero(counts)
    if not len(there):
        return []
    means = (sums[there] / counts[there, None]).astype(np.float32)
    values = similarities(query[None], means[None], distance)[0]
    order = np.argsort(-values, kind="stable")
    return [(int(there[turn]), float(values[turn])) for turn in order]


def _classes(
    places: Int64[np.ndarray, " k"], labels: Sequence[Value | None], values: Float64[np.ndarray, " n"]
) -> tuple[tuple[Value | None, int, float], ...]:
    found: dict[Value | None, list[float]] = {}
    for place in places.tolist():
        found.setdefault(labels[place], []).append(float(values[place]))
    ordered = sorted(found.items(), key=lambda entry: (-len(entry[1]), -max(entry[1])))
    return tuple((label, len(some), max(some)) for label, some in ordered)
