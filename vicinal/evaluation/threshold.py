"""Choose the similarity threshold from which on two items count as the same, at a given rate of false matches.

Let classes, each with its items, be drawn independently from one population, and let h(A, B) be the share of the pairs
of an item of A and an item of B whose similarity is at least t. The rate of false matches of t is R(t) = E h(A, B) over
two new classes, where every pair of classes counts the same (`per="classes"`). Where every pair of items counts the
same (`per="items"`), it is E n(A) n(B) h(A, B) / E n(A) n(B), with n the number of items of a class. For m drawn
classes we observe U(t), the same mean over their m (m - 1) / 2 pairs. These pairs are not independent, since each class
is in m - 1 of them. What can be said about R(t) therefore depends on the number of classes. There are four levels.

**estimate** chooses the lowest threshold with U(t) <= alpha. Its rate on new classes is estimated by cross-fitting: for
each two of ten folds of classes, the threshold is chosen on the classes of the other folds, and the pairs of classes
between the two folds are counted. The interval is the one described below.

**bound** chooses the lowest threshold whose approximate upper confidence limit is at most alpha. The variance v of U is
that of the jackknife over classes. Two classes like the worst of the sample, the one with the most false matches, are
added to the sample first, since the classes that matter most are rare. U (1 - U) / v is the number of independent pairs
that U is worth, and the limit is that of Clopper and Pearson for this number (Korn and Graubard, 1998). It is not
proved: no proof is possible with so few classes (see the last paragraph). `benchmarks/thresholds.py` measures its
confidence. It takes 10 / sqrt(alpha) classes, so that a cluster of classes that all match each other and alone
account for a rate of alpha has ten classes in the sample. With `per="items"`, classes are counted by
(sum n)^2 / sum n^2, which is the number of classes if all are of one size.

**average** is proved, for the mean over calibrations. Let t be the lowest threshold with

    (m (m - 1) / 2 U(t) + 2 m + 1) / ((m + 2) (m + 1) / 2) <= alpha.

Then E h(A, B) at t is at most alpha, over the draw of the m classes *and* of A and B. The left side is what the mean V
over the pairs of all m + 2 classes would be if the two new classes matched everything, so that V(t) <= alpha. This
holds whichever two of the m + 2 classes are the new ones, and all these thresholds lie in the set {t: V(t) <= alpha}.
The mean over these choices of h between the two that are left out is thus at most the limit of V at the lower end of
this set, which is at most alpha. Since the classes are exchangeable, all choices have the same expectation.

**guarantee** is proved with a confidence of 1 - delta. For a fixed number c between 0 and 1 / (1 - alpha), the product
of 1 + c (alpha - h) over the k = m // 2 disjoint pairs (1, 2), (3, 4), ... of classes has an expectation of at most 1
if R(t) >= alpha. So has its mean over all orders of the classes, which is at least its geometric mean over all orders:

    exp(k F(t)),    F(t) = mean of log(1 + c (alpha - h)) over all pairs of classes.

By Markov's inequality k F(t) >= log(1 / delta) has a probability of at most delta if R(t) >= alpha. We choose the
lowest threshold for which it holds. F increases with t and R decreases, so that no correction for multiple thresholds
is needed: if the chosen threshold has R > alpha, then it holds at the highest threshold with R >= alpha, too.
With c = (alpha - u) / (alpha (1 - alpha)), where u < alpha solves k KL(u, alpha) = log(1 / delta), this is never
stricter than Hoeffding's bound for U-statistics with Chernoff's exponent, U(t) <= u, because the logarithm is concave.

No proof with a confidence of 1 - delta is possible with fewer than 2 log(delta) / log(1 - alpha) classes: if a class
matches everything with probability p and otherwise nothing does, then R is 1 - (1 - p)^2, and m classes show no false
match with probability (1 - p)^m = (1 - R)^(m / 2). If all other pairs have h = u, then the same argument with
1 - R = (1 - p)^2 (1 - u) shows that no method may accept a threshold with U(t) = u unless
(m / 2) log((1 - u) / (1 - alpha)) >= log(1 / delta). `per="items"` allows neither proof, since the next class may be
larger than all that were seen.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from vicinal.errors import InputError, look_up
from vicinal.evaluation.items import as_scored_items
from vicinal.evaluation.pairs import ExactSimilarities, RoundedSimilarities, Sides
from vicinal.neighbours.inputs import ArrayLike, Labels

__all__ = [
    "LEVELS",
    "UNITS",
    "ChosenThreshold",
    "Target",
    "choose_threshold",
    "classes_needed",
    "least_false_matches",
    "most_false_matches_seen",
    "threshold_below",
    "upper_limit",
]

LEVELS = {
    "estimate": "the rate observed on held-out classes, with an interval",
    "bound": "an approximate upper limit, with a confidence that was measured and not proved",
    "average": "a limit that is proved for the mean over calibrations",
    "guarantee": "a limit that is proved, with a confidence",
}
UNITS = ("classes", "items")
FEW_PAIRS = 1 << 23  # up to this number of pairs, similarities are computed exactly
ABOVE = 2.0**-17  # more than a step of rounded similarities
BLOCK_ITEMS, BLOCK_CLASSES = 1024, 128  # items and classes that are compared with as many others at a time
BINS = 2000  # bins of the probability curve
FEWEST = 5  # classes that an estimate needs
FOLDS = 10  # folds of classes for cross-fitting
SEEN = 10  # classes of a confusable cluster that a bound needs in its sample
ADDED = 2  # classes like the worst one that a bound adds
STRICTEST = 0.1  # share of the rate that a bound starts from


@dataclass(frozen=True)
class Target:
    """The rate of false matches that a threshold is chosen for.

    Attributes:
        false_matches: Share of the pairs of items of two new classes that may reach the threshold.
        level: "estimate", "bound", "average", "guarantee", or "auto" for the strongest useful one that the number of
            classes supports; see the module.
        per: "classes" if every pair of classes counts the same, "items" if every pair of items does.
        confidence: Confidence of a bound, a guarantee or the interval of an estimate.
    """

    false_matches: float = 0.01
    level: str = "auto"
    per: str = "classes"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not (0 < self.false_matches < 1 and 0 < self.confidence < 1):
            raise InputError(
                "false_matches and confidence must lie between 0 and 1; "
                f"got {self.false_matches} and {self.confidence}."
            )
        look_up("level", self.level, {"auto": "", **LEVELS})
        look_up("unit", self.per, dict.fromkeys(UNITS))
        if self.per == "items" and self.level in ("average", "guarantee"):
            raise InputError(
                f"The level {self.level!r} is proved for pairs of classes only, because a new class may have more "
                'items than all others: take per="classes" (--per classes), or the level "bound".'
            )

    def level_for(self, sizes: Int64[np.ndarray, " classes"]) -> str:
        """Return the level that classes with these numbers of items support: `level`, or the choice of "auto".

        Raises:
            InputError: If there are too few classes; the message says how many are needed.
        """
        classes = effective_classes(sizes, self.per)
        if self.level == "auto" and classes >= FEWEST:
            if self.per == "classes" and self._allowed(len(sizes)) >= self.false_matches / 2:
                return "guarantee"
            enough = classes >= classes_needed("bound", self.false_matches, self.confidence)
            return "bound" if enough else "estimate"
        level = "estimate" if self.level == "auto" else self.level
        needed = classes_needed(level, self.false_matches, self.confidence)
        if classes < needed:
            counted = f"{len(sizes):,} classes"
            if self.per == "items" and classes < len(sizes):
                counted += f", worth {classes:.0f} of equal size,"
            message = f"{counted} are too few for the level {level!r} at a rate of {self.false_matches:g}: it takes "
            message += f"{needed:,} classes that the model was not trained on."
            if level != "estimate":
                least = least_false_matches(level, int(classes), self.confidence)
                message += " Take the level 'estimate'"
                message += f", or a rate of {least:g} (--false-matches {least:g})." if least < 1 else "."
            raise InputError(message)
        return level

    def _allowed(self, classes: int) -> float:
        return most_false_matches_seen(classes, self.false_matches, self.confidence)


@dataclass(frozen=True)
class ChosenThreshold:
    """A threshold, what is known of its rate of false matches, and its rates on the classes that it was chosen on.

    Attributes:
        threshold: Similarity: the cosine, or minus the Euclidean distance.
        false_matches: Rate of false matches that it was chosen for.
        level: Strength of the statement about this rate: "estimate", "bound", "average" or "guarantee"; see the module.
        per: "classes" if every pair of classes counts the same, "items" if every pair of items does.
        confidence: Confidence of the level, and of the interval.
        classes: Number of classes that it was chosen on.
        seen: Rate of false matches among these classes; of an estimate, that of cross-fitting.
        interval: Approximate interval of the rate of false matches.
        true_matches: Share of the pairs of items of one class that reach the threshold.
        similarities: Knots of the probability curve, ascending.
        probabilities: Probability at each knot that two items are of one class, with equal priors.
    """

    threshold: float
    false_matches: float
    level: str
    per: str
    confidence: float
    classes: int
    seen: float
    interval: tuple[float, float]
    true_matches: float
    similarities: tuple[float, ...]
    probabilities: tuple[float, ...]


def classes_needed(level: str, false_matches: float, confidence: float = 0.95) -> int:
    """Return the smallest number of classes that a level needs for a rate of false matches.

    Example:
        >>> [classes_needed(level, 0.01) for level in LEVELS]
        [5, 100, 398, 598]
    """
    if level == "estimate":
        return FEWEST
    if level == "bound":
        return max(FEWEST, math.ceil(SEEN / math.sqrt(false_matches) - 1e-9))
    if level == "average":
        half = (4 - 3 * false_matches) / (2 * false_matches)
        return max(1, math.ceil(half + math.sqrt(half**2 + (2 - 2 * false_matches) / false_matches) - 1e-9))
    return 2 * math.ceil(math.log(1 - confidence) / math.log1p(-false_matches))


def least_false_matches(level: str, classes: int, confidence: float = 0.95) -> float:
    """Return the smallest rate, in steps of 0.0001, that a number of classes supports; 1 if none.

    Example:
        >>> least_false_matches("guarantee", 100), least_false_matches("bound", 50)
        (0.0582, 0.04)
    """
    return (
        1 + bisect_left(range(1, 10_000), True, key=lambda r: classes_needed(level, r / 1e4, confidence) <= classes)
    ) / 1e4


def effective_classes(sizes: Int64[np.ndarray, " classes"] | Float64[np.ndarray, " classes"], per: str) -> float:
    """Return the number of classes; with per="items", the number of equal classes that they are worth.

    Example:
        >>> round(effective_classes(np.array([8, 1, 1]), "items"), 2)
        1.52
    """
    size = np.asarray(sizes, dtype=np.float64)
    return float(len(size) if per == "classes" else size.sum() ** 2 / (size**2).sum())


def most_false_matches_seen(classes: int, false_matches: float, confidence: float) -> float:
    """Return u of the module docstring: the observed rate that always allows a guarantee; -1 if none does.

    Example:
        >>> round(most_false_matches_seen(2000, 0.01, 0.95), 4), most_false_matches_seen(500, 0.01, 0.95)
        (0.0034, -1.0)
    """
    from scipy.optimize import brentq  # slow to import

    if classes < classes_needed("guarantee", false_matches, confidence):
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
    return float(_thresholds_below(_merged(values, weights), np.array([most]))[0])


def upper_limit(
    matches: Float64[np.ndarray, classes * t], weights: Float64[np.ndarray, " classes"], confidence: float
) -> Float64[np.ndarray, "*t"]:
    """Return the approximate upper confidence limit of the rate of false matches that a bound uses.

    Args:
        matches: Total weight of the false matches of each class with all others, at one or several thresholds.
        weights: Total weight of the pairs of each class with all others.
        confidence: Confidence of the limit.

    Example:
        >>> float(upper_limit(np.full(100, 0.5), np.full(100, 99.0), 0.95).round(4))
        0.0051
    """
    from scipy.stats import beta

    table = matches.reshape(len(matches), -1)
    worst = np.argmax(table - table.sum(axis=0) / weights.sum() * weights[:, None], axis=0)
    extended = np.concatenate([table, np.repeat(table[worst, np.arange(table.shape[1])][None], ADDED, axis=0)])
    weight = np.concatenate(
        [np.repeat(weights[:, None], table.shape[1], axis=1), np.repeat(weights[worst][None], ADDED, axis=0)]
    )
    # A class's weight is its size times that of all others: nearly its size, where no class is most of the items.
    rate, pairs = _worth(extended, weight, effective_classes(weights, "items"), confidence)
    hits = rate * pairs
    limit = beta.ppf(confidence, hits + 1, np.maximum(pairs - hits, 1e-9))
    return np.asarray(limit, dtype=np.float64).reshape(matches.shape[1:])


def _lower_limit(
    matches: Float64[np.ndarray, " classes"], weights: Float64[np.ndarray, " classes"], confidence: float
) -> float:
    """Return the approximate lower confidence limit, without any class added."""
    from scipy.stats import beta

    rate, pairs = _worth(matches[:, None], weights[:, None], effective_classes(weights, "items"), confidence)
    hits = float(rate[0] * pairs[0])
    return float(beta.ppf(1 - confidence, hits, pairs[0] - hits + 1)) if hits > 0 else 0.0


def _worth(
    matches: Float64[np.ndarray, "classes t"],
    weights: Float64[np.ndarray, "classes t"],
    classes: float,
    confidence: float,
) -> tuple[Float64[np.ndarray, " t"], Float64[np.ndarray, " t"]]:
    """Return the rate of false matches, and the number of independent pairs that it is worth by the jackknife."""
    from scipy.stats import norm
    from scipy.stats import t as student

    total = weights.sum(axis=0)
    rate = matches.sum(axis=0) / total
    influence = 2 * (matches - rate * weights) / total
    variance = (influence**2).sum(axis=0) * len(matches) / (len(matches) - 1)
    shrink = (norm.ppf(confidence) / student.ppf(confidence, max(classes - 1, 1))) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = shrink * rate * (1 - rate) / variance
    # Disjoint pairs of classes are independent; without a single match nothing more is known.
    return rate, np.where((rate > 0) & (rate < 1), np.clip(pairs, 1.0, 1e12), classes / 2)


def choose_threshold(
    embeddings: ArrayLike,
    labels: Labels,
    *,
    false_matches: float = 0.01,
    level: str = "auto",
    per: str = "classes",
    confidence: float = 0.95,
    distance: str = "cosine",
) -> ChosenThreshold:
    """Choose the lowest threshold with a rate of false matches on new classes.

    Args:
        embeddings: One row per item.
        labels: One label per row, of classes that were not used in training.
        false_matches: Share of the pairs of items of two new classes that may reach the threshold.
        level: Strength of the statement about this rate: "estimate", "bound", "average" or "guarantee"; "auto" takes
            the guarantee if it may use half of the rate, otherwise the bound, and the estimate if classes are few.
        per: "classes" if every pair of classes counts the same, "items" if every pair of items does.
        confidence: Confidence of a bound, a guarantee or the interval of an estimate.
        distance: "cosine" or "euclidean".

    Raises:
        InputError: If there are too few classes for the level; the message says how many are needed.
    """
    target = Target(false_matches, level, per, confidence)
    items = as_scored_items(embeddings, labels, distance=distance)
    sizes = np.bincount(items.codes.numpy())
    level = target.level_for(sizes)
    sides = _in_blocks(Sides.of(items))
    positives, negatives = _weighted(sides, per)
    if not len(positives[0]):
        raise InputError("No class has two items, so that nothing is known of pairs of one class.")
    threshold, counts = None, None
    if level == "guarantee":
        threshold = _guaranteed(sides, negatives, target)
    elif level == "average":
        pairs = len(sizes) * (len(sizes) - 1) / 2
        most = (false_matches * (len(sizes) + 2) * (len(sizes) + 1) / 2 - 2 * len(sizes) - 1) / pairs
        threshold = threshold_below(*negatives, max(most, 0.0))
    elif level == "bound":
        threshold = _bounded(sides, negatives, target)
        if threshold is None and target.level == "bound":
            raise InputError(
                f"No threshold has a bound of {false_matches:g}: these {len(sizes):,} classes differ too much in how "
                "often others match them. Ask for a higher rate (--false-matches), or for --level estimate."
            )
    if threshold is None:
        level, threshold = "estimate", threshold_below(*negatives, false_matches)
        counts = _cross_fitted(sides, negatives, target)
    matches, weights = counts or _false_matches(sides, np.array([threshold]), per).per_class()
    tail = (1 + confidence) / 2
    knots, chances = _probabilities(positives, negatives, len(sizes))
    return ChosenThreshold(
        threshold,
        false_matches,
        level,
        per,
        confidence,
        len(sizes),
        float(matches.sum() / weights.sum()),
        (_lower_limit(matches.reshape(-1), weights, tail), float(upper_limit(matches.reshape(-1), weights, tail))),
        float(positives[1][positives[0] >= threshold].sum()),
        knots,
        chances,
    )


Weighted = tuple[NDArray[np.float64], NDArray[np.float64]]


def _guaranteed(sides: Sides, negatives: Weighted, target: Target) -> float:
    """Return the lowest threshold with a guarantee."""
    alpha, classes = target.false_matches, sides.starts[-1]
    most = most_false_matches_seen(classes, alpha, target.confidence)
    rates = np.unique([0.0, most, *np.linspace(most, alpha, 60), *alpha * np.geomspace(1e-3, 1, 40)])
    thresholds = _thresholds_below(negatives, rates)
    bet = (alpha - most) / (alpha * (1 - alpha))
    logs = _false_matches(sides, thresholds, "classes", bet=(bet, alpha)).logs
    passed = (classes // 2) * logs >= -math.log(1 - target.confidence) * (1 - 1e-12)
    passed |= rates <= most  # implied; repeated for the sake of rounding
    return float(thresholds[_last_of_first_run(passed)])


def _bounded(sides: Sides, negatives: Weighted, target: Target) -> float | None:
    """Return the lowest threshold whose upper limit, and that of all stricter ones, is at most the rate."""
    thresholds = _thresholds_below(negatives, target.false_matches * np.linspace(STRICTEST, 1, 91))
    limits = upper_limit(*_false_matches(sides, thresholds, target.per).per_class(), target.confidence)
    last = _last_of_first_run(limits <= target.false_matches)
    return None if last < 0 else float(thresholds[last])


def _last_of_first_run(passed: NDArray[np.bool_]) -> int:
    """Return the last index before the first False; -1 if the first is False."""
    return int(np.argmin(passed)) - 1 if not passed.all() else len(passed) - 1


def _cross_fitted(sides: Sides, negatives: Weighted, target: Target) -> Weighted:
    """Return the false matches and the weight of each class at thresholds chosen without it and its partner."""
    alpha = target.false_matches
    rates = alpha * np.concatenate([[0.0], np.geomspace(0.01, 1, 60), np.geomspace(1, min(1 / alpha, 30.0), 40)[1:]])
    table = _false_matches(sides, _thresholds_below(negatives, rates), target.per)
    folds = table.weights.shape[1]
    by_fold = np.stack([table.matches[table.folds == fold].sum(axis=0) for fold in range(folds)])
    weight = np.stack([table.weights[table.folds == fold].sum(axis=0) for fold in range(folds)])
    total = np.zeros(len(table.matches))
    for first in range(folds):
        for second in range(folds):
            others = np.setdiff1d(np.arange(folds), [first, second])
            rate = by_fold[np.ix_(others, others)].sum(axis=(0, 1)) / weight[np.ix_(others, others)].sum()
            chosen = max(0, int(np.searchsorted(rate, alpha * (1 + 1e-12), side="right")) - 1)
            total[table.folds == first] += table.matches[table.folds == first, second, chosen]
    return total, table.weights.sum(axis=1)


@dataclass(frozen=True)
class _Table:
    """False matches of each class.

    Attributes:
        matches: Weight of the false matches of each class with the classes of each fold, at each threshold.
        weights: Weight of the pairs of each class with the classes of each fold.
        folds: Fold of each class.
        logs: Mean over pairs of classes of the logarithm of a bet, at each threshold.
    """

    matches: Float64[np.ndarray, "classes folds t"]
    weights: Float64[np.ndarray, "classes folds"]
    folds: Int64[np.ndarray, " classes"]
    logs: Float64[np.ndarray, " t"]

    def per_class(self) -> Weighted:
        """Return false matches and weights of each class with all others."""
        return self.matches.sum(axis=1), self.weights.sum(axis=1)


def _false_matches(
    sides: Sides, thresholds: NDArray[np.float64], per: str, bet: tuple[float, float] = (0.0, 0.0)
) -> _Table:
    """Count the false matches of all pairs of classes at thresholds in descending order."""
    sizes = torch.bincount(sides.codes).double().numpy()
    classes, steps = len(sizes), len(thresholds)
    folds = np.random.default_rng(0).permutation(classes) % min(FOLDS, classes)
    members = np.eye(folds.max() + 1)[folds]
    size = sizes if per == "items" else np.ones(classes)
    weights = size[:, None] * ((size[:, None] * members).sum(axis=0) - size[:, None] * members)
    matches, logs = np.zeros((classes, folds.max() + 1, steps)), np.zeros(steps)
    ascending = thresholds[::-1]
    compare = _similarities(sides)
    groups = len(sides.starts) - 1
    for a in range(groups):
        for b in range(a, groups):
            rows, columns = sides.rows(a), sides.columns(b)
            first, second = (np.arange(sides.starts[group], sides.starts[group + 1]) for group in (a, b))
            values = compare.similarities(compare.block(rows, columns))
            row, column = np.nonzero(values >= ascending[0])
            i, j = sides.codes[rows].numpy()[row] - first[0], sides.codes[columns].numpy()[column] - second[0]
            apart = i < j if a == b else np.ones(len(i), dtype=bool)
            level = steps - np.searchsorted(ascending, values[row[apart], column[apart]], side="right")
            cell = (i[apart] * len(second) + j[apart]) * steps + level
            counts = np.bincount(cell, minlength=len(first) * len(second) * steps)
            share = counts.reshape(len(first), len(second), steps).cumsum(axis=2).astype(np.float64)
            share /= (sizes[first, None] * sizes[second])[:, :, None]
            if bet[0]:
                pairs = np.triu_indices(len(first), 1) if a == b else np.indices(share.shape[:2]).reshape(2, -1)
                with np.errstate(divide="ignore"):
                    logs += np.log1p(bet[0] * (bet[1] - share[tuple(pairs)])).sum(axis=0)
            share *= (size[first, None] * size[second])[:, :, None]
            matches[first] += np.einsum("ijt,jf->ift", share, members[second])
            matches[second] += np.einsum("ijt,if->jft", share, members[first])
    return _Table(matches, weights, folds, logs / (classes * (classes - 1) / 2))


def _in_blocks(sides: Sides) -> Sides:
    """Group classes such that the table of two groups is neither too large nor too small."""
    sizes = torch.bincount(sides.codes).numpy()
    group = np.cumsum(sizes) // BLOCK_ITEMS + np.arange(len(sizes)) // BLOCK_CLASSES
    return replace(sides, starts=[0, *(1 + np.flatnonzero(np.diff(group))).tolist(), len(sizes)])


def _similarities(sides: Sides) -> ExactSimilarities | RoundedSimilarities:
    few = len(sides.codes) * (len(sides.codes) - 1) // 2 <= FEW_PAIRS
    return ExactSimilarities(sides) if few else RoundedSimilarities(sides)


def _weighted(sides: Sides, per: str) -> tuple[Weighted, Weighted]:
    """Return the similarities of pairs of one class and of pairs of two classes, with their weights.

    With per="classes", each pair of classes has the same total weight, and so does each class with at least two items;
    with per="items", each pair of items of a kind has. The weights of each kind add up to one.
    """
    sizes = torch.bincount(sides.codes).double()
    pairs = sizes * (sizes - 1) / 2
    inside = torch.where(pairs > 0, 1 / pairs, 0.0) if per == "classes" else torch.ones_like(pairs)
    share = 1 / sizes if per == "classes" else torch.ones_like(sizes)
    compare = _similarities(sides)
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
            weight = share[row_codes] * share[column_codes]
            parts[1].append(_merged(compare.similarities(keys[apart]), weight[apart].numpy()))
            if a == b:
                same = same if valid is None else same & valid
                parts[0].append(
                    _merged(compare.similarities(keys[same]), inside[row_codes].expand(same.shape)[same].numpy())
                )
    positives, negatives = (_merged(*map(np.concatenate, zip(*part, strict=True))) for part in parts)
    return (positives[0], positives[1] / max(positives[1].sum(), 1e-300)), (
        negatives[0],
        negatives[1] / negatives[1].sum(),
    )


def _thresholds_below(negatives: Weighted, most: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `threshold_below` for several weights of merged values."""
    distinct, weight = negatives
    reached = np.cumsum(weight[::-1])
    count = np.searchsorted(reached, most * (1 + 1e-12), side="right")
    return np.append(distinct[-1] + ABOVE, distinct[::-1])[count]


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
