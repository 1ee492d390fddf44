"""Uncertainty of scores: intervals over classes and over seeds, and the difference between two models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import InputError

__all__ = [
    "Bootstrap",
    "Difference",
    "Interval",
    "class_interval",
    "class_sums",
    "class_variance",
    "effective_degrees",
    "paired_difference",
    "percentile_tail",
    "seed_interval",
    "sign_flip",
    "times_drawn",
]


# Sign-flip test: would random signs, one per class, give a difference as large?

EXACT = 14  # number of classes up to which every pattern of signs is tried
SIGNS_AT_ONCE = 2**22  # signs in memory at a time


def sign_flip(differences: NDArray[np.float64], *, draws: int = 20_000, seed: int = 0) -> NDArray[np.float64]:
    """Return two-sided p-values for the null hypothesis that the sum of each column is due to chance.

    If two methods are equivalent, they are exchangeable within each class (row): each sign of a difference is as likely
    as the other. With few classes all patterns of signs are tried, and p is exact.

    Args:
        differences: Score differences, classes by pairs of methods.
        draws: Number of random patterns of signs, if there are too many to try them all.
        seed: Seed of the draws.

    Example:
        >>> sign_flip(np.ones((5, 1)))
        array([0.0625])
    """
    classes, pairs = differences.shape
    # Rounding must not make a pattern that equals the observed one look smaller.
    least = np.abs(differences.sum(axis=0)) - 1e-12 * np.abs(differences).sum(axis=0)
    if classes <= EXACT:
        patterns = (np.arange(2**classes)[:, None] >> np.arange(classes)) & 1
        return (np.abs((1.0 - 2 * patterns) @ differences) >= least).mean(axis=0)
    generator = np.random.default_rng(seed)
    as_large = np.ones(pairs)  # the observed pattern counts as one of the patterns
    block = max(1, SIGNS_AT_ONCE // classes)
    for start in range(0, draws, block):
        signs = 1.0 - 2 * generator.integers(0, 2, (min(block, draws - start), classes), dtype=np.int8)
        as_large += (np.abs(signs @ differences) >= least).sum(axis=0)
    return as_large / (1 + draws)


ROUNDING = 1e-12  # rounding error of class means


class Interval(NamedTuple):
    """Lower and upper end of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Bootstrap:
    """How intervals over classes are computed.

    Means over queries have an interval in closed form (`class_interval`). The scores of pairs and of identification are
    no means: their intervals come from classes drawn with replacement.

    Args:
        draws: Number of resamples for scores without a closed form; 0 for no intervals at all.
        confidence: Confidence level of the intervals.
        seed: Seed of the resamples, and of k-means and the episodes of few shots where those are computed.

    Example:
        >>> Bootstrap(draws=200, confidence=0.9)
        Bootstrap(draws=200, confidence=0.9, seed=0)
    """

    draws: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws < 0 or self.seed < 0 or not 0 < self.confidence < 1:
            raise InputError(
                "draws and seed must not be negative and 0 < confidence < 1; "
                f"got {self.draws}, {self.seed} and {self.confidence}."
            )


USUAL_INTERVALS = Bootstrap()
NO_INTERVALS = Bootstrap(draws=0)


@dataclass(frozen=True)
class Difference:
    """Difference between the scores of two models on the same queries, first minus second.

    Args:
        mean: Mean difference over queries.
        interval: Student's t interval over classes.
        p_value: P-value of a two-sided sign-flip test over classes: how often a difference at least this large
            arises when the two models are swapped at random, class by class.
    """

    mean: float
    interval: Interval
    p_value: float


def class_sums(
    scores: NDArray[np.float64], codes: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sum per-query scores by class, and count them; queries without a score (NaN) are left out.

    Example:
        >>> class_sums(np.array([1.0, 0.5, np.nan]), np.array([0, 0, 1]), 2)
        (array([1.5, 0. ]), array([2, 0]))
    """
    scored = np.isfinite(scores)
    sums = np.bincount(codes[scored], weights=scores[scored], minlength=classes).astype(np.float64)
    return sums, np.bincount(codes[scored], minlength=classes).astype(np.int64)


def class_interval(
    sums: NDArray[np.float64], counts: NDArray[np.int64], *, confidence: float = 0.95, bounded: bool = True
) -> list[Interval]:
    """Return intervals of mean scores over queries, for classes drawn from a population of classes.

    Queries of one class succeed and fail together, so an interval over queries would be too narrow. Classes are assumed
    to be independent. If they come in families (species of a genus, products of a brand), a 95 % interval over classes
    may cover the mean of other families in as few as 70 % of cases; pass the sums and counts of families instead.

    Formula:
        With weights w_c = n_c / sum n and means q_c of C classes, r = sum w_c q_c has the variance
        v = C / (C - 1) sum w_c^2 (q_c - r)^2, and t is Student's quantile with `effective_degrees`.
        Unbounded: r -+ t sqrt(v). Bounded: Wilson's interval of a proportion r of n = r (1 - r) / v queries, with t for
        the normal quantile; n = C if all classes have the same score.

    Args:
        sums: Sum of each score (column) over the queries of each class (row).
        counts: Number of queries of each class.
        confidence: Share of such intervals that cover the mean of all classes.
        bounded: Whether scores are between 0 and 1; for differences, and for scores that are not, the interval is
            symmetric.

    Reference:
        Wilson, "Probable inference, the law of succession, and statistical inference", 1927, with the effective sample
        size of Korn and Graubard, "Confidence intervals for proportions with small expected number of positive counts
        estimated from survey data", 1998.

    Example:
        >>> sums, counts = np.array([[3.0], [3.0], [4.0], [2.0]]), np.array([5, 5, 5, 5])
        >>> [(round(low, 2), round(high, 2)) for low, high in class_interval(sums, counts)]
        [(0.35, 0.81)]
        >>> class_interval(sums, counts, confidence=0.5, bounded=False)[0].low < 0.6
        True
    """
    from scipy import special  # slow to import

    _check(1, confidence)
    scored = counts > 0
    sums, counts = sums[scored], counts[scored]
    if not len(counts):
        raise InputError("No class has a scored query; an interval needs at least one.")
    weights = counts / counts.sum()
    values = sums / counts[:, None]
    means = weights @ values
    within = bounded & (values.min(axis=0) >= -ROUNDING) & (values.max(axis=0) <= 1 + ROUNDING)
    if len(counts) == 1:  # one class does not show how classes vary
        return [Interval(0.0, 1.0) if inside else Interval(-np.inf, np.inf) for inside in within]
    variance = class_variance(values, weights)
    quantile = float(special.stdtrit(effective_degrees(weights), (1 + confidence) / 2))
    reach = quantile * np.sqrt(variance)
    alike = np.ptp(values, axis=0) < ROUNDING
    single = np.where(within, np.maximum(ROUNDING**2, means * (1 - means)), 1.0)  # variance of one right or wrong query
    shift = quantile**2 * np.where(alike, 1 / len(counts), variance / single)
    centre = np.where(within, (means + shift / 2) / (1 + shift), means)
    reach = np.where(within, np.sqrt(shift * single + shift**2 / 4) / (1 + shift), reach)
    return [Interval(low, high) for low, high in zip((centre - reach).tolist(), (centre + reach).tolist(), strict=True)]


def class_variance(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of weighted means over classes, one for each column of values; 0 for a single class."""
    classes = len(weights)
    deviations = weights.reshape(-1, *[1] * (values.ndim - 1)) * (values - np.tensordot(weights, values, axes=1))
    return np.asarray((deviations**2).sum(axis=0) * classes / max(1, classes - 1))


def effective_degrees(weights: NDArray[np.float64]) -> float:
    """Return the degrees of freedom of the variance of a weighted mean over classes: classes - 1 for equal weights.

    Few large classes among many small ones give few degrees of freedom, since the large ones decide the variance.

    Formula:
        tr(M)^2 / tr(M^2) with M = (I - 1 w')' diag(w)^2 (I - 1 w'): Satterthwaite's approximation for class means of
        equal variance.

    Args:
        weights: Weights of the classes, with sum 1.

    Reference:
        Bell and McCaffrey, "Bias reduction in standard errors for linear regression with multi-stage samples", 2002.

    Example:
        >>> round(effective_degrees(np.full(10, 0.1)), 6), round(effective_degrees(np.array([0.7, 0.1, 0.1, 0.1])), 2)
        (9.0, 1.53)
    """
    _, _, two, three, four, five = (float((weights**power).sum()) for power in range(6))
    trace = two - 2 * three + two**2
    squared = four * (1 + 2 * two) - 4 * five + two**4 - 4 * two**2 * three + 2 * two * four + 2 * three**2
    return trace**2 / squared


def percentile_tail(confidence: float, classes: int) -> float:
    """Return the share of resamples to leave out at each end of a percentile interval.

    Percentiles of resampled classes are too close together for few classes: their variance lacks the factor
    C / (C - 1), and their tails are normal rather than Student's. A wider share makes up for both.

    Reference:
        Hesterberg, "What teachers should know about the bootstrap", 2015.

    Example:
        >>> round(percentile_tail(0.95, 10), 4), round(percentile_tail(0.95, 1000), 4)
        (0.0086, 0.0248)
    """
    from scipy import special  # slow to import

    if classes < 2:
        return (1 - confidence) / 2
    quantile = float(special.stdtrit(classes - 1, (1 + confidence) / 2))
    return float(special.ndtr(-quantile * (classes / (classes - 1)) ** 0.5))


def times_drawn(generator: np.random.Generator, draws: int, among: int) -> NDArray[np.float64]:
    """Count how often each item is drawn in a bootstrap sample of all items; one row per sample."""
    chosen = generator.integers(0, among, (draws, among)) + among * np.arange(draws)[:, None]
    return np.bincount(chosen.ravel(), minlength=draws * among).reshape(draws, among).astype(np.float64)


def paired_difference(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    codes: NDArray[np.int64],
    *,
    draws: int = 5000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Compare two models query by query.

    Args:
        first: Score of one model for each query.
        second: The same score of the other model, for the same queries in the same order.
        codes: Class of each query.
        draws: Number of sign patterns for the test.
        confidence: Confidence level of the interval.
        seed: Seed of the sign patterns.

    Example:
        >>> one, other = np.array([1.0, 1.0, 0.5]), np.array([0.0, 1.0, 0.5])
        >>> paired_difference(one, other, np.array([0, 1, 2])).p_value
        1.0
    """
    _check(draws, confidence)
    if not len(first) == len(second) == len(codes):
        raise InputError(
            f"A paired comparison needs two scores and a class for each query; got {len(first)} and {len(second)} "
            f"scores and {len(codes)} classes."
        )
    if not np.array_equal(np.isnan(first), np.isnan(second)):
        raise InputError("The two models have no score for different queries; score both on the same references.")
    codes = np.unique(codes, return_inverse=True)[1]
    sums, counts = class_sums(first - second, codes, int(codes.max(initial=-1)) + 1)
    interval = class_interval(sums[:, None], counts, confidence=confidence, bounded=False)[0]
    p_value = float(sign_flip(sums[:, None], draws=draws, seed=seed)[0])
    return Difference(float(sums.sum() / counts.sum()), interval, p_value)


def seed_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return Student's t interval of the mean of one score over runs with different seeds.

    Example:
        >>> seed_interval([0.5, 0.6, 0.7]).low < 0.6 < seed_interval([0.5, 0.6, 0.7]).high
        True
    """
    from scipy import stats  # slow to import

    _check(1, confidence)
    if len(values) < 2:
        raise InputError(f"An interval over seeds needs at least 2 runs, got {len(values)}.")
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return Interval(mean - reach, mean + reach)


def _check(draws: int, confidence: float) -> None:
    if draws < 1:
        raise InputError(f"There must be at least 1 draw, got {draws}.")
    if not 0 < confidence < 1:
        raise InputError(f"The confidence must be between 0 and 1, got {confidence}.")
