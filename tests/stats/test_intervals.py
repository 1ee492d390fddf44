"""Bootstrap, paired test and t interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vicinal.errors import InputError
from vicinal.stats import Interval, paired_difference, seed_interval
from vicinal.stats.intervals import class_bootstrap, class_sums

pytestmark = pytest.mark.unit


def test_class_sums_leave_out_what_has_no_score():
    sums, counts = class_sums(np.array([1, 0.5, np.nan, 0.25]), np.array([0, 0, 1, 2]), 4)
    assert sums.tolist() == [1.5, 0, 0.25, 0]
    assert counts.tolist() == [2, 0, 1, 0]


def test_the_bootstrap_draws_classes_and_not_queries():
    """Ten classes that succeed or fail as one are worth ten observations, however many queries they have."""
    codes = np.repeat(np.arange(10), 1000)
    scores = (codes % 2).astype(float)
    sums, counts = class_sums(scores, codes, 10)
    (interval,) = class_bootstrap(sums[:, None], counts, draws=4000)
    binomial = stats.binom(10, 0.5).ppf([0.025, 0.975]) / 10
    assert (interval.low, interval.high) == pytest.approx(tuple(binomial), abs=1e-12)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        sums = rng.normal(0.3, 0.1, 60)[:, None]
        (interval,) = class_bootstrap(sums, np.ones(60, dtype=np.int64), draws=400, confidence=0.9, seed=trial)
        covered += interval.low <= 0.3 <= interval.high
    assert 0.84 <= covered / 200 <= 0.95


def test_the_bootstrap_repeats_with_its_seed_and_ignores_empty_classes():
    sums, counts = np.array([[1.0], [3.0], [0.0]]), np.array([2, 3, 0])
    first = class_bootstrap(sums, counts, seed=1)
    assert first == class_bootstrap(sums, counts, seed=1)
    assert first == class_bootstrap(sums[:2], counts[:2], seed=1)
    assert class_bootstrap(np.array([[2.0]]), np.array([4])) == [Interval(0.5, 0.5)]


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
        class_bootstrap(one, np.array([1]), draws=0)
    with pytest.raises(InputError, match=r"between 0 and 1, got 1\.0"):
        class_bootstrap(one, np.array([1]), confidence=1.0)
    with pytest.raises(InputError, match="No class has a scored query"):
        class_bootstrap(one, np.array([0]))
    with pytest.raises(InputError, match="for each query; got 2 and 1"):
        paired_difference(np.ones(2), np.ones(1), np.arange(2))
    with pytest.raises(InputError, match="no score for different queries"):
        paired_difference(np.array([1, np.nan]), np.ones(2), np.arange(2))
    with pytest.raises(InputError, match="at least 2 runs, got 1"):
        seed_interval([0.5])
