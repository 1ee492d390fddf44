"""Check whether new items without labels look like the classes that a threshold was chosen on.

What is known of a threshold holds for new classes that are drawn like those that it was chosen on. Without labels, the
false matches of new items cannot be counted, but two facts about them can be compared with those of calibration
classes: the median similarity of two of them, which is higher if they are of a narrower kind, and the mean similarity
of an item to the nearest item of other calibration classes, which is lower if they are of another kind. For each of 199
draws of as many items, in whole calibration classes, both facts are compared with those of the remaining classes, and
so are those of the new items. The share of draws on one side of the new items gives a p-value, for both sides and both
facts by Bonferroni.

If the new items are drawn like the classes, with about as many items of each class, they should be called different
with a probability of about 5 %; how close real data come to that was not measured. A small p-value says that something
differs, and a large one does not prove that nothing does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.evaluation.items import as_scored_items
from vicinal.neighbours.inputs import ArrayLike, Labels, as_embeddings

__all__ = ["Shift", "check_shift"]

DRAWS = 199
MOST = 1200  # calibration items that are compared
SIGNIFICANT = 0.05
FEWEST = 10  # classes and new items


@dataclass(frozen=True)
class Shift:
    """Comparison of new items with calibration classes.

    Attributes:
        p_value: Probability of such a difference if the new items are drawn like the calibration classes.
        among: Median similarity of two new items.
        expected_among: The same of calibration classes: the 2.5 % and 97.5 % quantiles of draws.
        nearest: Mean similarity of a new item to the nearest calibration item.
        expected_nearest: The same of calibration classes, to the nearest item of other classes.
    """

    p_value: float
    among: float
    expected_among: tuple[float, float]
    nearest: float
    expected_nearest: tuple[float, float]

    @property
    def differs(self) -> bool:
        """Whether the difference is significant at the level of 5 %."""
        return self.p_value < SIGNIFICANT

    def __str__(self) -> str:
        numbers = (
            f"median similarity of two items {self.among:.3f} (calibration classes {_span(self.expected_among)}), "
            f"similarity to the nearest calibration item {self.nearest:.3f} ({_span(self.expected_nearest)})"
        )
        if not self.differs:
            return f"The new items look like the calibration classes (p = {self.p_value:.2f}): {numbers}."
        return (
            f"The new items do not look like the calibration classes (p = {self.p_value:.2f}): {numbers}. The rate of "
            "false matches may be different for them; calibrate on classes like them."
        )


def _span(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def check_shift(
    embeddings: ArrayLike, labels: Labels, new: ArrayLike, *, distance: str = "cosine", seed: int = 0
) -> Shift:
    """Compare new items without labels with the classes that a threshold was chosen on; see the module.

    Args:
        embeddings: One row per item of the calibration classes.
        labels: One label per row.
        new: One row per new item.
        distance: "cosine" or "euclidean".
        seed: Seed of the draws.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> labels = np.repeat(np.arange(60), 4)
        >>> items = rng.normal(size=(60, 8))[labels] + 0.3 * rng.normal(size=(240, 8))
        >>> check_shift(items[:160], labels[:160], items[160:]).differs
        False
        >>> check_shift(items[:160], labels[:160], items[160:] + 1.0).differs
        True
    """
    items = as_scored_items(embeddings, labels, distance=distance)
    codes, classes = items.codes.numpy(), len(items.classes)
    rows, others = (np.asarray(as_embeddings(side), dtype=np.float64) for side in (embeddings, new))
    if classes < FEWEST or len(others) < FEWEST:
        raise InputError(
            f"This check needs at least {FEWEST} classes and {FEWEST} new items; got {classes} and {len(others)}."
        )
    rng = np.random.default_rng(seed)
    chosen = _whole_classes(codes, MOST, rng)
    rows, codes = rows[chosen], codes[chosen]
    count = min(len(others), len(rows) // 2)
    others = others[rng.permutation(len(others))[:count]]
    inside, across, alone = (_similarity(*pair, distance) for pair in ((rows, rows), (others, rows), (others, others)))
    apart = np.where(codes[:, None] == codes, -np.inf, inside)  # the nearest item of another class
    facts, drawn_facts, rest_facts = np.empty((DRAWS, 2)), np.empty((DRAWS, 2)), np.empty((DRAWS, 2))
    among = _median(alone)
    for draw in range(DRAWS):
        drawn = _whole_classes(codes, count, rng)
        rest = np.flatnonzero(~np.isin(codes, codes[drawn]))
        between = apart[:, rest].max(axis=1)
        facts[draw] = among, across[:, rest].max(axis=1).mean()
        drawn_facts[draw] = _median(inside[np.ix_(drawn, drawn)]), between[drawn].mean()
        rest_facts[draw] = _median(inside[np.ix_(rest, rest)]), between[rest].mean()
    # Both are compared with the rest: a draw has taken its classes from the sample, the new items have not.
    new_gap, gaps = (facts - rest_facts).mean(axis=0), drawn_facts - rest_facts
    sides = np.minimum((gaps >= new_gap).sum(axis=0), (gaps <= new_gap).sum(axis=0))
    low, high = np.quantile(gaps + rest_facts.mean(axis=0), [0.025, 0.975], axis=0)
    return Shift(
        float(min(1.0, 4 * (1 + sides.min()) / (DRAWS + 1))),
        among,
        (float(low[0]), float(high[0])),
        float(facts[:, 1].mean()),
        (float(low[1]), float(high[1])),
    )


def _whole_classes(codes: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the positions of random classes with up to a number of items; the last class may be cut."""
    rank = rng.permutation(codes.max() + 1)[codes]
    return np.argsort(rank, kind="stable")[:most]


def _similarity(
    left: Float64[np.ndarray, "n d"], right: Float64[np.ndarray, "m d"], distance: str
) -> Float64[np.ndarray, "n m"]:
    if distance == "cosine":
        left, right = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (left, right))
        return left @ right.T
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    return -np.sqrt(np.maximum(squares, 0))


def _median(similarity: Float64[np.ndarray, "n n"]) -> float:
    return float(np.median(similarity[np.triu_indices(len(similarity), 1)]))
