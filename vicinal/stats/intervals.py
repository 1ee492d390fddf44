"""How sure a score is: intervals over classes and over seeds, and the difference of two models."""

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


# The sign-flip test: would a coin, class by class, give a difference as large?

EXACT = 14  # up to so many classes, every pattern of signs is tried
SIGNS_AT_ONCE = 2**22  # signs at once


def sign_flip(differences: NDArray[np.float64], *, draws: int = 20_000, seed: int = 0) -> NDArray[np.float64]:
    """Two-sided p-values that the sum of each column is no larger than chance makes it.

    If two methods are the same, then in each class (row) the one might as well have been the other: the sign of its
    difference is a coin. With few classes all patterns of signs are tried, and p is exact.

    Args:
        differences: Classes by pairs of methods.
        draws: Patterns of signs, where there are too many to try them all.
        seed: Of the draws.

    Example:
        >>> sign_flip(np.ones((5, 1)))
        array([0.0625])
    """
    classes, pairs = differences.shape
    # A pattern as large as the one observed must not miss it by rounding.
    least = np.abs(differences.sum(axis=0)) - 1e-12 * np.abs(differences).sum(axis=0)
    if classes <= EXACT:
        patterns = (np.arange(2**classes)[:, None] >> np.arange(classes)) & 1
        return (np.abs((1.0 - 2 * patterns) @ differences) >= least).mean(axis=0)
    generator = np.random.default_rng(seed)
    as_large = np.ones(pairs)  # what was observed is one of the patterns
    block = max(1, SIGNS_AT_ONCE // classes)
    for start in range(0, draws, block):
        signs = 1.0 - 2 * generator.integers(0, 2, (min(block, draws - start), classes), dtype=np.int8)
        as_large += (np.abs(signs @ differences) >= least).sum(axis=0)
    return as_large / (1 + draws)


BLOCK = 2**16  # drawn classes at once


class Interval(NamedTuple):
    """The ends of an interval."""

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
    """How much better a first model is than a second on the same queries.

    Args:
        mean: The mean difference over queries.
        interval: Its bootstrap interval over classes.
        p_value: Of a two-sided sign-flip test over classes: how often a difference at least this large
            arises when, class by class, a coin decides which model is which.
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
    known = np.isfinite(scores)
    sums = np.bincount(codes[known], weights=scores[known], minlength=classes).astype(np.float64)
    return sums, np.bincount(codes[known], minlength=classes).astype(np.int64)


def class_bootstrap(
    sums: NDArray[np.float64],
    counts: NDArray[np.int64],
    *,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Percentile intervals of mean scores, from classes drawn with replacement.

    Queries of one class succeed and fail together, so drawing queries would promise too much.

    Args:
        sums: Of each score (column) over the queries of each class (row).
        counts: Queries of each class.
        draws: Resamples.
        confidence: Share of the resamples inside the interval.
        seed: Of the draws.

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
    """How often each item comes up when as many are drawn with replacement as there are; one row per draw."""
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
        first: A score per query of one model.
        second: The same score of the other, for the same queries in the same order.
        codes: The class of each query.
        draws: Resamples of the interval, and coin series of the test.
        confidence: Share of the resamples inside the interval.
        seed: Of both.

    Example:
        >>> one, other = np.array([1.0, 1.0, 0.5]), np.array([0.0, 1.0, 0.5])
        >>> paired_difference(one, other, np.array([0, 1, 2])).p_value
        1.0
    """
    _check(draws, confidence)
    if not len(first) == len(second) == len(codes):
        raise InputError(
            f"A paired comparison needs the same queries: got {len(first)} and {len(second)} scores for "
            f"{len(codes)} classes of queries."
        )
    if not np.array_equal(np.isnan(first), np.isnan(second)):
        raise InputError("The two models left out different queries; score both on the same references.")
    codes = np.unique(codes, return_inverse=True)[1]
    sums, counts = class_sums(first - second, codes, int(codes.max(initial=-1)) + 1)
    interval = class_bootstrap(sums[:, None], counts, draws=draws, confidence=confidence, seed=seed)[0]
    p_value = float(sign_flip(sums[:, None], draws=draws, seed=seed)[0])
    return Difference(float(sums.sum() / counts.sum()), interval, p_value)


def seed_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's t interval of the mean of one score over runs with different seeds.

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
        raise InputError(f"The confidence must lie between 0 and 1, got {confidence}.")
