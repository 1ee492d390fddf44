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
    "class_bootstrap",
    "class_sums",
    "paired_difference",
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


BLOCK = 2**16  # drawn classes in memory at a time


class Interval(NamedTuple):
    """Lower and upper end of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Bootstrap:
    """How intervals over classes are computed.

    Args:
        draws: Number of resamples; 0 for no intervals.
        confidence: Share of the resamples inside an interval.
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
        interval: Bootstrap interval over classes.
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


def class_bootstrap(
    sums: NDArray[np.float64],
    counts: NDArray[np.int64],
    *,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Return percentile intervals of mean scores, from classes drawn with replacement.

    Queries of one class succeed and fail together, so intervals from resampled queries would be too narrow.

    Args:
        sums: Sum of each score (column) over the queries of each class (row).
        counts: Number of queries of each class.
        draws: Number of resamples.
        confidence: Share of the resamples inside the interval.
        seed: Seed of the draws.

    Example:
        >>> sums, counts = np.array([[3.0], [3.0]]), np.array([3, 6])
        >>> class_bootstrap(sums, counts)
        [Interval(low=0.5, high=1.0)]
    """
    _check(draws, confidence)
    filled = counts > 0
    sums, counts = sums[filled], counts[filled]
    if not len(counts):
        raise InputError("No class has a scored query; an interval needs at least one.")
    table = np.column_stack([counts, sums])
    generator = np.random.default_rng(seed)
    totals = np.empty((draws, table.shape[1]))
    block = max(1, BLOCK // len(counts))
    for start in range(0, draws, block):
        stop = min(start + block, draws)
        totals[start:stop] = times_drawn(generator, stop - start, len(counts)) @ table
    tail = (1 - confidence) / 2
    ends = np.quantile(totals[:, 1:] / totals[:, :1], [tail, 1 - tail], axis=0)
    return [Interval(float(low), float(high)) for low, high in ends.T]


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
        draws: Number of resamples for the interval, and of sign patterns for the test.
        confidence: Share of the resamples inside the interval.
        seed: Seed of both.

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
    interval = class_bootstrap(sums[:, None], counts, draws=draws, confidence=confidence, seed=seed)[0]
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
