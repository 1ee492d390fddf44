"""Choose a similarity threshold with a guarantee on the rate of false matches for new classes.

Let classes, each with its items, be drawn independently from one population, and let h(A, B) be the share of the pairs
of an item of A and an item of B whose similarity is at least t. The rate of false matches of t is R(t) = E h(A, B) over
two new classes. For m drawn classes we observe U(t), the mean of h over all m (m - 1) / 2 pairs of them. These pairs
are not independent, since each class is in m - 1 of them; U is a U-statistic. Hoeffding (1963, section 5) writes it as
the mean, over all orders of the classes, of W: the mean of h over the k = m // 2 disjoint pairs (1, 2), (3, 4), ... of
an order. Within W the pairs *are* independent, and since exp is convex, E exp(-s U) <= E exp(-s W). Chernoff's bound
for means of k independent numbers between 0 and 1 therefore holds for U unchanged:

    P(U(t) <= u) <= exp(-k KL(u, R(t)))    for u < R(t),    KL(u, r) = u log(u / r) + (1 - u) log((1 - u) / (1 - r)).

Let u* be the largest u for which exp(-k KL(u, alpha)) <= delta. A threshold with R(t) > alpha then has U(t) <= u* with
probability at most delta. We choose the lowest similarity with U(t) <= u*. Since U and R decrease with t, this is
Learn-then-Test with a fixed sequence, from the highest threshold down, and needs no correction for multiple thresholds:
if the chosen threshold breaks the guarantee, so does every lower one, and the highest threshold that breaks it (or one
arbitrarily close to it) has U <= u*, an event of probability at most delta.

At u = 0 the bound is (1 - alpha)^k. Fewer classes than 2 log(delta) / log(1 - alpha) therefore cannot guarantee
anything, with any method: if a class matches everything with probability p and otherwise nothing does, then R is
1 - (1 - p)^2, and m classes show no false match with probability (1 - p)^m = (1 - R)^(m / 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.evaluation.items import as_scored_items
from vicinal.evaluation.pairs import ExactSimilarities, RoundedSimilarities, Sides
from vicinal.neighbours.inputs import ArrayLike, Labels

__all__ = [
    "Promise",
    "check_promise",
    "check_rates",
    "classes_needed",
    "least_false_matches",
    "most_false_matches_seen",
    "promise_threshold",
    "threshold_below",
]

FEW_PAIRS = 1 << 23  # up to this number of pairs, similarities are computed exactly
ABOVE = 2.0**-17  # more than a step of rounded similarities
BINS = 2000  # bins of the probability curve


@dataclass(frozen=True)
class Promise:
    """A threshold, its guarantee, and its rates on the classes that it was chosen on.

    Attributes:
        threshold: Similarity: the cosine, or minus the Euclidean distance.
        false_matches: Guaranteed maximum rate of false matches on new classes.
        confidence: Probability of the guarantee, over the classes that the threshold was chosen on.
        classes: Number of these classes.
        seen: Rate of false matches among these classes.
        true_matches: Mean over classes of the share of their pairs that reach the threshold.
        similarities: Knots of the probability curve, ascending.
        probabilities: Probability at each knot that two items are of one class, with equal priors.
    """

    threshold: float
    false_matches: float
    confidence: float
    classes: int
    seen: float
    true_matches: float
    similarities: tuple[float, ...]
    probabilities: tuple[float, ...]


def classes_needed(false_matches: float, confidence: float) -> int:
    """Return the smallest number of classes that can guarantee a rate of false matches.

    Example:
        >>> classes_needed(0.01, 0.95), classes_needed(0.001, 0.95)
        (598, 5990)
    """
    check_rates(false_matches, confidence)
    return 2 * math.ceil(math.log(1 - confidence) / math.log1p(-false_matches))


def least_false_matches(classes: int, confidence: float) -> float:
    """Return the smallest rate of false matches that a number of classes can guarantee.

    Example:
        >>> round(least_false_matches(100, 0.95), 4)
        0.0582
    """
    return 1 - (1 - confidence) ** (1 / (classes // 2)) if classes > 1 else 1.0


def check_promise(classes: int, false_matches: float, confidence: float) -> None:
    """Raise an error if this number of classes cannot guarantee the rate, whatever their similarities are.

    Raises:
        InputError: If there are too few classes; the message says how many are needed, and what these can guarantee.
    """
    if classes < classes_needed(false_matches, confidence):
        least = math.ceil(1e4 * least_false_matches(classes, confidence)) / 1e4
        raise InputError(
            f"{classes:,} classes cannot promise a rate of false matches of at most {false_matches:g} with "
            f"{100 * confidence:g} % confidence, whatever the threshold: that takes "
            f"{classes_needed(false_matches, confidence):,} classes that the model was not trained on. These can "
            f"promise {least:g} (--false-matches {least:g}), or less with less confidence."
        )


def most_false_matches_seen(classes: int, false_matches: float, confidence: float) -> float:
    """Return the largest observed rate (u* in the module docstring) that still allows the guarantee; -1 if none does.

    Example:
        >>> round(most_false_matches_seen(2000, 0.01, 0.95), 4), most_false_matches_seen(500, 0.01, 0.95)
        (0.0034, -1.0)
    """
    from scipy.optimize import brentq  # slow to import

    if classes < classes_needed(false_matches, confidence):
        return -1.0
    limit = -math.log(1 - confidence) / (classes // 2)

    def excess(seen: float) -> float:
        first = seen * math.log(seen / false_matches) if seen else 0.0
        return first + (1 - seen) * math.log((1 - seen) / (1 - false_matches)) - limit

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, false_matches))


def threshold_below(values: Float64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"], most: float) -> float:
    """Return the lowest value v such that the values >= v weigh at most `most`; a number above all values if none does.

    Example:
        >>> threshold_below(np.array([0.1, 0.4, 0.3]), np.array([0.5, 0.25, 0.25]), 0.3)
        0.4
    """
    distinct, weight = _merged(values, weights)
    reached = np.cumsum(weight[::-1])[::-1]
    few_enough = np.flatnonzero(reached <= most * (1 + 1e-12))
    return float(distinct[few_enough[0]] if len(few_enough) else distinct[-1] + ABOVE)


def promise_threshold(
    embeddings: ArrayLike,
    labels: Labels,
    *,
    false_matches: float = 0.001,
    confidence: float = 0.95,
    distance: str = "cosine",
) -> Promise:
    """Choose the lowest threshold that guarantees a rate of false matches on new classes.

    Args:
        embeddings: One row per item.
        labels: One label per row, of classes that were not used in training.
        false_matches: Rate to guarantee: share of pairs of items of two new classes that reach the threshold.
        confidence: Probability, over the drawn classes, that the guarantee holds.
        distance: "cosine" or "euclidean".

    Raises:
        InputError: If there are too few classes for the guarantee; the message says how many are needed.
    """
    items = as_scored_items(embeddings, labels, distance=distance)
    classes = len(items.classes)
    check_promise(classes, false_matches, confidence)
    most = most_false_matches_seen(classes, false_matches, confidence)
    positives, negatives = _weighted(Sides.of(items))
    if not len(positives[0]):
        raise InputError("No class has two items, so that nothing is known of pairs of one class.")
    threshold = threshold_below(*negatives, most)
    knots, chances = _probabilities(positives, negatives, classes)
    return Promise(
        threshold,
        false_matches,
        confidence,
        classes,
        float(negatives[1][negatives[0] >= threshold].sum()),
        float(positives[1][positives[0] >= threshold].sum()),
        knots,
        chances,
    )


Weighted = tuple[NDArray[np.float64], NDArray[np.float64]]


def _weighted(sides: Sides) -> tuple[Weighted, Weighted]:
    """Return the similarities of pairs of one class and of pairs of two classes, with their weights.

    Each pair of classes has the same total weight, and so does each class with at least two items; the weights of each
    kind add up to one.
    """
    sizes = torch.bincount(sides.codes).double()
    count = len(sizes)
    pairs = sizes * (sizes - 1) / 2
    inside = torch.where(pairs > 0, 1 / (pairs * max(1, int((pairs > 0).sum()))), 0.0)
    few = len(sides.codes) * (len(sides.codes) - 1) // 2 <= FEW_PAIRS
    compare: ExactSimilarities | RoundedSimilarities = ExactSimilarities(sides) if few else RoundedSimilarities(sides)
    parts: tuple[list[Weighted], list[Weighted]] = ([], [])
    groups = len(sides.starts) - 1
    for a in range(groups):
        for b in range(a, groups):
            rows, columns = sides.rows(a), sides.columns(b)
            keys = compare.block(rows, columns)
            row_codes, column_codes = sides.codes[rows, None], sides.codes[columns]
            valid = sides.valid(rows, columns)
            same = row_codes == column_codes
            apart = ~same if valid is None else ~same & valid
            weight = (2 / (count * (count - 1))) / (sizes[row_codes] * sizes[column_codes])
            parts[1].append(_merged(compare.similarities(keys[apart]), weight[apart].numpy()))
            if a == b:
                same = same if valid is None else same & valid
                parts[0].append(
                    _merged(compare.similarities(keys[same]), inside[row_codes].expand(same.shape)[same].numpy())
                )
    return _merged(*map(np.concatenate, zip(*parts[0], strict=True))), _merged(
        *map(np.concatenate, zip(*parts[1], strict=True))
    )


def _merged(values: NDArray[np.float64], weights: NDArray[np.float64]) -> Weighted:
    """Merge equal similarities, and add up their weights."""
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct, np.bincount(inverse, weights=weights, minlength=len(distinct)).astype(
        np.float64
    )  # float64 even if empty


def _probabilities(
    positives: Weighted, negatives: Weighted, classes: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the probability of being of one class by isotonic regression, with equal priors.

    An event never observed among m classes is still possible: no probability is closer to 0 or 1 than 1 / (m + 2).
    """
    from sklearn.isotonic import IsotonicRegression

    every = np.concatenate([positives[0], negatives[0]])
    edges = np.unique(
        np.concatenate([np.quantile(side, np.linspace(0, 1, BINS // 2)) for side in (positives[0], negatives[0])])
    )
    bins = np.searchsorted(edges, every, side="right") - 1
    weights = np.concatenate([positives[1], negatives[1]])
    total = np.bincount(bins, weights=weights, minlength=len(edges))
    won = np.bincount(bins[: len(positives[0])], weights=positives[1], minlength=len(edges))
    filled = total > 0
    centre = np.bincount(bins, weights=weights * every, minlength=len(edges))[filled] / total[filled]
    share = won[filled] / total[filled]
    fitted = IsotonicRegression().fit_transform(centre, share, sample_weight=total[filled])
    chances = np.clip(fitted, 1 / (classes + 2), 1 - 1 / (classes + 2))
    turns = np.ones(len(chances), dtype=bool)  # of a flat step only its ends matter
    turns[1:-1] = (np.diff(chances)[:-1] != 0) | (np.diff(chances)[1:] != 0)
    knots, first = np.unique(centre[turns], return_index=True)
    return tuple(knots.tolist()), tuple(chances[turns][first].tolist())


def check_rates(false_matches: float, confidence: float) -> None:
    """Raise an error if a value is not a rate."""
    if not (0 < false_matches < 1 and 0 < confidence < 1):
        raise InputError(
            f"false_matches and confidence must lie between 0 and 1; got {false_matches} and {confidence}."
        )
