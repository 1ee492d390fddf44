"""Classes that are taken for each other: items whose nearest other item belongs to another class."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from vicinal.neighbours import find_neighbours

__all__ = ["ConfusedClasses", "ConfusedPair", "find_confused_classes"]

Value = str | int | float | bool  # of a label
SHOWN = 12  # pairs of items kept for each two classes


@dataclass(frozen=True)
class ConfusedPair:
    """An item, and the item of another class that is nearest to it.

    Attributes:
        item: Place of the item.
        nearest: Place of its nearest.
        similarity: The cosine, or minus the Euclidean distance.
    """

    item: int
    nearest: int
    similarity: float


@dataclass(frozen=True)
class ConfusedClasses:
    """Two classes, and how often one is taken for the other.

    Attributes:
        first: The class whose items are taken for the other's most often.
        second: The other.
        first_as_second: Items of the first whose nearest is of the second.
        second_as_first: The reverse.
        items: Items of both classes together that were asked.
        examples: The nearest of such pairs, nearest first.
    """

    first: Value
    second: Value
    first_as_second: int
    second_as_first: int
    items: int
    examples: tuple[ConfusedPair, ...]

    @property
    def share(self) -> float:
        """Part of the items of both classes that are taken for the other one."""
        return (self.first_as_second + self.second_as_first) / self.items


def find_confused_classes(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Sequence[Value | None],
    *,
    distance: str = "cosine",
    most: int | None = None,
    seed: int = 0,
) -> list[ConfusedClasses]:
    """Find the classes that are taken for each other, the most often confused first.

    Args:
        embeddings: One row per item.
        labels: One per item; items without one are passed over.
        distance: "cosine" or "euclidean".
        most: Ask only so many items, drawn at random, for their nearest among all; None asks every one.
        seed: Of the draw.

    Example:
        >>> vectors = np.float32([[0], [1], [1.1], [5]])
        >>> (two,) = find_confused_classes(vectors, ["wren", "wren", "robin", "robin"], distance="euclidean")
        >>> two.first, two.first_as_second, two.second, two.second_as_first, two.share
        ('robin', 1, 'wren', 1, 0.5)
    """
    known = np.array([place for place, label in enumerate(labels) if label is not None], dtype=np.int64)
    if len(known) < 2:
        return []
    asked = known
    if most is not None and most < len(known):
        asked = np.sort(np.random.default_rng(seed).choice(known, most, replace=False))
    # Two of all items, as one of them is the item itself; of equal ones either may come first.
    found = find_neighbours(embeddings[asked], min(2, len(known)), gallery=embeddings[known], distance=distance)
    indices, values = found.indices.numpy(), found.values.numpy()
    itself = known[indices[:, 0]] == asked
    nearest = known[np.where(itself, indices[:, 1], indices[:, 0])]
    similarity = np.where(itself, values[:, 1], values[:, 0])
    if distance == "euclidean":
        similarity = 0.0 - similarity
    pairs: dict[tuple[Value, Value], list[ConfusedPair]] = defaultdict(list)
    for item, other, value in zip(asked.tolist(), nearest.tolist(), similarity.tolist(), strict=True):
        if labels[item] != labels[other]:
            pairs[labels[item], labels[other]].append(ConfusedPair(item, other, value))  # type: ignore[index]
    sizes = Counter(labels[item] for item in asked.tolist())
    confused = [
        _joined(one, other, there, pairs.get((other, one), []), sizes[one] + sizes[other])
        for (one, other), there in pairs.items()
        if (len(there), str(other)) >= (len(pairs.get((other, one), [])), str(one))
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
