"""Intervals over classes, paired test and t interval over seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vicinal.errors import InputError
from vicinal.stats import Interval, paired_difference, seed_interval
from vicinal.stats.intervals import class_interval, class_sums, effective_degrees, percentile_tail

pytestmark = pytest.mark.unit


def test_class_sums_leave_out_what_has_no_score():
    sums, counts = class_sums(np.array([1, 0.5, np.nan, 0.25]), np.array([0, 0, 1, 2]), 4)
    assert sums.tolist() == [1.5, 0, 0.25, 0]
    assert counts.tolist() == [2, 0, 1, 0]


def test_the_interval_counts_classes_and_not_queries():
    """Ten classes that succeed or fail as one are worth ten observations, however many queries they have."""
    codes = np.repeat(np.arange(10), 1000)
    scores = (codes % 2).astype(float)
    sums, counts = class_sums(scores, codes, 10)
    (interval,) = class_interval(sums[:, None], counts)
    quantile = stats.t.ppf(0.975, 9)
    queries = 0.25 / (0.25 / 9)  # the sample variance of ten class means is 10/9 x 0.25
    middle = 0.5
    reach = quantile * np.sqrt(0.25 / queries + quantile**2 / (4 * queries**2)) / (1 + quantile**2 / queries)
    assert interval == pytest.approx((middle - reach, middle + reach))


def test_an_unbounded_interval_of_equal_classes_is_students():
    sums = np.random.default_rng(0).normal(0.3, 0.1, (12, 2))
    for column, interval in zip(sums.T, class_interval(sums, np.ones(12, dtype=np.int64), bounded=False), strict=True):
        assert interval == pytest.approx(stats.t.interval(0.95, 11, column.mean(), stats.sem(column)))


def test_degrees_of_freedom_by_the_matrix():
    """Satterthwaite's approximation from the eigenvalues of the quadratic form itself."""
    weights = np.random.default_rng(0).dirichlet(np.ones(7))
    centred = np.eye(7) - np.outer(np.ones(7), weights)
    form = centred.T @ np.diag(weights**2) @ centred
    assert effective_degrees(weights) == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form))
    assert effective_degrees(np.full(7, 1 / 7)) == pytest.approx(6)


def test_bounded_intervals_stay_between_0_and_1_and_are_never_empty():
    counts = np.array([3, 50, 7])
    sums = np.column_stack([counts, 0 * counts, [3, 49, 7], 0.1 * counts])
    for low, high in class_interval(sums, counts):
        assert -1e-12 <= low < high <= 1 + 1e-12
        assert high - low > 0.01


def test_scores_outside_0_and_1_have_a_symmetric_interval():
    sums, counts = np.array([[0.2, 7.0], [0.4, 9.0], [0.9, 5.0]]), np.array([1, 1, 1])
    first, second = class_interval(sums, counts)
    assert first == class_interval(sums[:, :1], counts)[0]
    assert second == class_interval(sums[:, 1:], counts, bounded=False)[0]
    assert second.low + second.high == pytest.approx(14)


def test_empty_classes_are_ignored_and_one_class_says_nothing():
    sums, counts = np.array([[1.0], [3.0], [0.0]]), np.array([2, 3, 0])
    assert class_interval(sums, counts) == class_interval(sums[:2], counts[:2])
    assert class_interval(np.array([[2.0]]), np.array([4])) == [Interval(0, 1)]
    assert class_interval(np.array([[2.0]]), np.array([4]), bounded=False) == [Interval(-np.inf, np.inf)]


def test_percentiles_of_few_classes_are_wider():
    tail = percentile_tail(0.9, 6)
    assert stats.norm.ppf(tail) == pytest.approx(stats.t.ppf(0.05, 5) * np.sqrt(6 / 5))
    assert percentile_tail(0.9, 1) == pytest.approx(0.05)


def test_paired_differences():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(40), 5)
    poor = rng.random(200)
    better = paired_difference(poor + 0.1, poor, codes, draws=2000)
    assert better.mean == pytest.approx(0.1)
    assert better.interval == pytest.approx((0.1, 0.1))
    assert better.p_value == pytest.approx(1 / 2001)
    same = paired_difference(poor, poor, codes)
    assert (same.mean, same.p_value) == (0, 1)


def test_the_p_value_of_few_classes_is_the_share_of_sign_patterns():
    """Three classes, all for the first model: 2 of 8 patterns are as large."""
    found = paired_difference(np.ones(3), np.zeros(3), np.arange(3), draws=20_000)
    assert found.p_value == pytest.approx(0.25, abs=0.02)


def test_p_values_are_uniform_when_there_is_no_difference():
    rng = np.random.default_rng(1)
    codes = np.repeat(np.arange(30), 3)
    values = [
        paired_difference(rng.random(90), rng.random(90), codes, draws=200, seed=trial).p_value for trial in range(150)
    ]
    assert stats.kstest(values, "uniform").pvalue > 0.01


def test_queries_left_out_of_both_do_not_count():
    nan = np.nan
    found = paired_difference(np.array([1, nan, 1]), np.array([0, nan, 1]), np.array([5, 7, 7]))
    assert found.mean == 0.5


def test_the_seed_interval_is_students():
    values = [0.61, 0.63, 0.6, 0.66]
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert seed_interval(values) == pytest.approx(expected)


def test_bad_input():
    one = np.ones((1, 1))
    with pytest.raises(InputError, match="at least 1 draw, got 0"):
        paired_difference(np.ones(2), np.ones(2), np.arange(2), draws=0)
    with pytest.raises(InputError, match=r"between 0 and 1, got 1\.0"):
        class_interval(one, np.array([1]), confidence=1.0)
    with pytest.raises(InputError, match="No class has a scored query"):
        class_interval(one, np.array([0]))
    with pytest.raises(InputError, match="for each query; got 2 and 1"):
        paired_difference(np.ones(2), np.ones(1), np.arange(2))
    with pytest.raises(InputError, match="no score for different queries"):
        paired_difference(np.array([1, np.nan]), np.ones(2), np.arange(2))
    with pytest.raises(InputError, match="at least 2 runs, got 1"):
        seed_interval([0.5])
