"""Explain a hit: its similarity and rank, the classes around the query, the threshold, and the model's loss."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy.typing import NDArray

from vicinal.embedder.calibration import Calibration
from vicinal.embedder.folder import Card
from vicinal.errors import VicinalError
from vicinal.index.filters import Value
from vicinal.index.item import Id
from vicinal.mining import MINERS
from vicinal.neighbours.similarity import similarities
from vicinal.objectives import OBJECTIVES, options_of, traits_of, without_alias
from vicinal.weights import weight_curves

__all__ = ["TracedLoss", "TrainedLoss", "class_centres", "explain_pair", "loss_on_card", "loss_sentence", "trace_loss"]


# The loss that an embedder was trained with, and its effect on a pair at a given similarity.

POINTS = 101
RANDOM = ("distance_weighted", "random")  # miners for which the weight of a pair is not a function of its similarity
EDGE = 0.97  # beyond this cosine the slope of a distance grows without bound


@dataclass(frozen=True)
class TrainedLoss:
    """Loss of a model, as its card describes it.

    Attributes:
        name: Name of the loss, as in a recipe.
        options: Options of the loss.
        mining: Miner that selected its pairs or triplets.
        references: References that items were compared with: "batch", "proxies", ...
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    mining: str | None = None
    references: str = "batch"


@dataclass(frozen=True)
class TracedLoss:
    """Weight curves of one loss, as `vicinal weights` computes them.

    Attributes:
        loss: The loss.
        similarity: Cosines from -1 to 1.
        pull: Weight of a positive pair at each cosine.
        push: Weight of a negative pair at each cosine.
    """

    loss: TrainedLoss
    similarity: NDArray[np.float64]
    pull: NDArray[np.float64]
    push: NDArray[np.float64]

    def at(self, cosine: float) -> tuple[float, float]:
        """Return pull and push of a pair, each as a fraction of the maximum of its curve."""
        inner = np.abs(self.similarity) < EDGE
        return tuple(  # type: ignore[return-value]
            float(np.interp(cosine, self.similarity, curve)) / (float(np.abs(curve[inner]).max()) or 1.0)
            for curve in (self.pull, self.push)
        )


def loss_on_card(card: Card) -> TrainedLoss | str:
    """Return the loss named by a card's recipe, or a sentence that says why it is unknown.

    Example:
        >>> loss_on_card(Card(recipe='loss = "triplet"\\n[loss_options]\\nmargin = 0.1')).options
        {'margin': 0.1}
        >>> loss_on_card(Card())
        'The model card does not name the loss that the model was trained with.'
    """
    if not card.recipe:
        return "The model card does not name the loss that the model was trained with."
    try:
        recipe = tomllib.loads(card.recipe)
    except tomllib.TOMLDecodeError:
        return "The recipe on the model's card cannot be read."
    name = str(recipe.get("loss", "multi_similarity"))
    function = OBJECTIVES.get(without_alias(name))
    if function is None:
        return f"The model was trained with {name}, a custom loss, which is not executed here."
    accepted = options_of(function)
    options = {key: _start(value) for key, value in dict(recipe.get("loss_options", {})).items() if key in accepted}
    traits = traits_of(function)
    usual = "batch" if traits is None else traits.usual
    return TrainedLoss(name, options, recipe.get("mining"), "cover" if recipe.get("ccp") else usual)


def trace_loss(loss: TrainedLoss) -> TracedLoss | str:
    """Trace the weight curves of a loss, or return a sentence that says why there are none."""
    if loss.mining in RANDOM:
        return f"{loss.name} was trained on randomly drawn pairs ({loss.mining}), so there is no curve of pair weights."
    function = OBJECTIVES[without_alias(loss.name)]
    try:
        curves = weight_curves(function, mining=MINERS.get(loss.mining or ""), points=POINTS, **loss.options)
    except (VicinalError, TypeError, ValueError, RuntimeError) as error:
        return f"The curve of {loss.name} cannot be drawn with the options of this model: {error}"
    return TracedLoss(loss, curves.similarity.numpy(), curves.positive.numpy(), curves.negative.numpy())


def _start(value: Any) -> Any:
    """Return the initial value of a learned option: the card has no other number."""
    return value["start"] if isinstance(value, Mapping) and "start" in value else value


BLOCK = 1 << 15  # items compared at a time
LITTLE = 0.005  # fraction of the strongest pull or push that counts as none


@dataclass(frozen=True)
class ClassCentres:
    """Sums of the vectors of each class of an index; under the cosine each vector is first scaled to length one.

    Attributes:
        labels: Labels of the classes.
        sums: Sum of the vectors, one row per class.
        counts: Number of items of each class.
        of_item: Class number of each item; -1 for none.
    """

    labels: Sequence[Value]
    sums: Float64[np.ndarray, "c d"]
    counts: Int64[np.ndarray, " c"]
    of_item: Int64[np.ndarray, " n"]


@dataclass(frozen=True)
class PairExplanation:
    """Explanation of one hit of a query.

    Attributes:
        similarity: The cosine, or the negative Euclidean distance.
        rank: Rank of the hit among all items, from 1; the query itself does not count.
        items: Number of items, not counting the query.
        classes: Label, number of items and best similarity of each class among the nearest, most items first.
        nearest: Number of nearest items that `classes` counts.
        centres: Label and similarity of the nearest class centre and the runner-up. The query is left out of its own
            class's centre.
        hit_centre: Rank of the hit's class among all centres, from 1, and its similarity.
        threshold: Lowest similarity that the model calls "same"; None if it is not calibrated.
        same: Verdict of the model.
        probability: Probability of being the same, with equal priors.
        claim: Sentence about the false matches at the threshold, as calibrated.
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
    claim: str | None = None


def class_centres(
    embeddings: Float32[np.ndarray, "n d"], labels: Sequence[Value | None], distance: str
) -> ClassCentres:
    """Sum the vectors of each class, once for all explanations."""
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
        hit: Position of the hit among the items.
        embeddings: Vectors of all items.
        ids: Ids of all items.
        labels: Labels of all items.
        centres: Class sums; see `class_centres`.
        distance: "cosine" or "euclidean".
        query_place: Position of the query, if it is an item.
        k: Number of nearest items whose classes are counted.
        calibration: Calibration of the model, if it has one.
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
    ties = sum(ids[position] < ids[hit] for position in equal)  # type: ignore[operator]
    rank = 1 + int((others & (values > values[hit])).sum()) + ties
    candidates = np.flatnonzero(others)
    k = min(k, len(candidates))
    first = candidates[np.argsort(-values[candidates], kind="stable")[:k]] if k else candidates
    about = _centres_near(query, centres, distance, query_place)
    own = int(centres.of_item[hit])
    placed = next((turn for turn, (number, _) in enumerate(about) if number == own), None)
    return PairExplanation(
        similarity=similarity,
        rank=rank,
        items=len(candidates),
        classes=_classes(first, labels, values),
        nearest=len(first),
        centres=tuple((centres.labels[number], value) for number, value in about[:2]),
        hit_centre=None if placed is None else (placed + 1, about[placed][1]),
        threshold=None if calibration is None else float(calibration.threshold),
        same=None if calibration is None else bool(calibration.same(similarity)),
        probability=None if calibration is None else float(calibration.probability(similarity)),
        claim=None if calibration is None else calibration.claim(),
    )


def loss_sentence(traced: TracedLoss, similarity: float, together: bool | None) -> str:
    """Return a sentence on what a loss would do to a pair.

    Args:
        traced: Weight curves of the loss.
        similarity: Cosine of the pair.
        together: Whether both have the same label; None if that is unknown.
    """
    pull, push = traced.at(similarity)
    name = traced.loss.name
    if together is None:
        same, different = _words(pull, "pull"), _words(push, "push")
        return f"If both have the same class, {name} would {same}; if not, it would {different}."
    if together:
        return f"Both have the same label: {name} would {_words(pull, 'pull')}."
    return f"The labels differ: {name} would {_words(push, 'push')}."


def _words(strength: float, verb: str) -> str:
    end = "together" if verb == "pull" else "apart"
    if abs(strength) < LITTLE:
        return "not change the pair"
    if strength < 0:
        other, direction = ("push", "apart") if verb == "pull" else ("pull", "together")
        return f"{other} the pair {direction}, against its label"
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
    """Return class numbers and similarities of their centres to a query, nearest first.

    A query that is an item is left out of the centre of its own class.
    """
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
    by_label: dict[Value | None, list[float]] = {}
    for position in places.tolist():
        by_label.setdefault(labels[position], []).append(float(values[position]))
    ordered = sorted(by_label.items(), key=lambda entry: (-len(entry[1]), -max(entry[1])))
    return tuple((label, len(some), max(some)) for label, some in ordered)
