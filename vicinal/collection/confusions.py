"""Confused classes: items whose nearest other item belongs to another class."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from vicinal.neighbours import find_neighbours

__all__ = ["ConfusedClasses", "ConfusedPair", "find_confused_classes"]

Value = str | int | float | bool  # a label
SHOWN = 12  # pairs of items kept for each pair of classes


@dataclass(frozen=True)
class ConfusedPair:
    """An item whose nearest item belongs to another class.

    Attributes:
        item: Index of the item.
        nearest: Index of the nearest item.
        similarity: Cosine, or minus the Euclidean distance.
    """

    item: int
    nearest: int
    similarity: float


@dataclass(frozen=True)
class ConfusedClasses:
    """Two classes, and how often each is confused with the other.

    Attributes:
        first: Class whose items are confused with the other more often.
        second: Other class.
        first_as_second: Number of items of the first class whose nearest item is of the second.
        second_as_first: Number of items of the second class whose nearest item is of the first.
        items: Number of queries of both classes together.
        examples: Nearest of these pairs, nearest first.
    """

    first: Value
    second: Value
    first_as_second: int
    second_as_first: int
    items: int
    examples: tuple[ConfusedPair, ...]

    @property
    def share(self) -> float:
        """Share of the items of both classes that are confused with the other class."""
        return (self.first_as_second + self.second_as_first) / self.items


def find_confused_classes(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Sequence[Value | None],
    *,
    distance: str = "cosine",
    most: int | None = None,
    seed: int = 0,
) -> list[ConfusedClasses]:
    """Find the classes that are confused with each other, the most often confused first.

    Args:
        embeddings: One row per item.
        labels: Label of each item; items without one are ignored.
        distance: "cosine" or "euclidean".
        most: Largest number of queries, drawn at random, to search among all items; None for all items.
        seed: Seed of the draw.

    Example:
        >>> vectors = np.float32([[0], [1], [1.1], [5]])
        >>> (two,) = find_confused_classes(vectors, ["wren", "wren", "robin", "robin"], distance="euclidean")
        >>> two.first, two.first_as_second, two.second, two.second_as_first, two.share
        ('robin', 1, 'wren', 1, 0.5)
    """
    labelled = np.array([index for index, label in enumerate(labels) if label is not None], dtype=np.int64)
    if len(labelled) < 2:
        return []
    queries = labelled
    if most is not None and most < len(labelled):
        queries = np.sort(np.random.default_rng(seed).choice(labelled, most, replace=False))
    # The two nearest of all items, since one of them is the item itself; with duplicates either may come first.
    near = find_neighbours(embeddings[queries], min(2, len(labelled)), gallery=embeddings[labelled], distance=distance)
    indices, values = near.indices.numpy(), near.values.numpy()
    itself = labelled[indices[:, 0]] == queries
    nearest = labelled[np.where(itself, indices[:, 1], indices[:, 0])]
    similarity = np.where(itself, values[:, 1], values[:, 0])
    if distance == "euclidean":
        similarity = 0.0 - similarity
    pairs: dict[tuple[Value, Value], list[ConfusedPair]] = defaultdict(list)
    for item, nearby, value in zip(queries.tolist(), nearest.tolist(), similarity.tolist(), strict=True):
        if labels[item] != labels[nearby]:
            pairs[labels[item], labels[nearby]].append(ConfusedPair(item, nearby, value))  # type: ignore[index]
    sizes = Counter(labels[item] for item in queries.tolist())
    confused = [
        _joined(first, second, there, pairs.get((second, first), []), sizes[first] + sizes[second])
        for (first, second), there in pairs.items()
        if (len(there), str(second)) >= (len(pairs.get((second, first), [])), str(first))
    ]
    return sorted(confused, key=lambda two: (-(two.first_as_second + two.second_as_first), -two.share, str(two.first)))


def _joined(
    first: Value, second: Value, there: list[ConfusedPair], back: list[ConfusedPair], items: int
) -> ConfusedClasses:
    examples: list[ConfusedPair] = []
    seen: set[frozenset[int]] = set()
    for pair in sorted([*there, *back], key=lambda pair: -pair.similarity):
        if frozenset((pair.item, pair.nearest)) not in seen:
            seen.add(frozenset((pair.item, pair.nearest)))
            examples.append(pair)
    return ConfusedClasses(first, second, len(there), len(back), items, tuple(examples[:SHOWN]))
