"""Validation ranks against test ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vicinal.errors import InputError
from vicinal.literature import published
from vicinal.stats import rank_correlation

pytestmark = pytest.mark.unit


def named(values: Sequence[float]) -> dict[str, float]:
    return {f"m{at}": float(value) for at, value in enumerate(values)}


@pytest.mark.peer
def test_it_is_that_of_scipy():
    rng = np.random.default_rng(0)
    one, other = rng.random(9).round(1).tolist(), rng.random(9).tolist()
    found = rank_correlation(named(one), named(other))
    assert found.spearman == pytest.approx(stats.spearmanr(one, other).statistic)
    assert found.kendall == pytest.approx(stats.kendalltau(one, other).statistic)


def test_by_hand():
    """Four methods, the last two swapped: rho = 1 - 6 * 2 / (4 * 15), tau = (5 - 1) / 6; 24 orders for p."""
    found = rank_correlation(named([4, 3, 2, 1]), named([9, 8, 6, 7]))
    assert found.spearman == pytest.approx(0.8)
    assert found.kendall == pytest.approx(2 / 3)
    assert found.p_value == pytest.approx(8 / 24)  # 1 perfect and 3 swapped orders, and their reverses
    assert found.spearman_interval is None
    assert found.agreed
    assert str(found) == (
        "Validation -> test over 4 methods: Spearman 0.80, Kendall 0.67, p = 0.33; "
        "the best on validation is also the best on test."
    )


def test_a_perfect_order_is_not_certain():
    found = rank_correlation(named([1, 2, 3, 4, 5, 6]), named([1, 2, 3, 4, 5, 6]))
    assert (found.spearman, found.kendall) == pytest.approx((1, 1))
    assert found.spearman_interval is not None
    assert found.spearman_interval.low < 0.8
    assert found.spearman_interval.high >= found.spearman
    assert found.p_value == pytest.approx(2 / 720)
    reversed_order = rank_correlation(named([1, 2, 3, 4, 5, 6]), named([6, 5, 4, 3, 2, 1]))
    assert reversed_order.spearman_interval is not None
    assert reversed_order.spearman_interval.low == pytest.approx(-1)
    assert not reversed_order.agreed


def test_a_shared_first_place_on_validation_is_agreement_only_if_all_of_it_is_best():
    assert not rank_correlation(named([2, 2, 1]), named([3, 2, 1])).agreed
    assert rank_correlation(named([3, 2, 1]), named([3, 3, 1])).agreed


@pytest.mark.parametrize("kind", ["spearman", "kendall"])
def test_intervals_cover_the_truth_as_often_as_they_say(kind: str):
    """Scores of 20 methods from a bivariate normal, whose rank correlations are known."""
    rng = np.random.default_rng(0)
    pearson = 0.6
    truth = 6 / np.pi * np.arcsin(pearson / 2) if kind == "spearman" else 2 / np.pi * np.arcsin(pearson)
    covered = 0
    for _ in range(300):
        one, noise = rng.standard_normal((2, 20))
        other = pearson * one + (1 - pearson**2) ** 0.5 * noise
        found = rank_correlation(named(one.tolist()), named(other.tolist()))
        low, high = found.spearman_interval if kind == "spearman" else found.kendall_interval
        covered += low <= truth <= high
    assert 0.92 <= covered / 300 <= 0.98


def test_p_is_uniform_where_there_is_no_relation():
    rng = np.random.default_rng(0)
    values = [
        rank_correlation(named(rng.random(9).tolist()), named(rng.random(9).tolist()), seed=trial).p_value
        for trial in range(150)
    ]
    assert stats.kstest(values, "uniform").pvalue > 0.01


@pytest.mark.parametrize(("dataset", "low", "high"), [("cub", 0.7, 0.82), ("cars196", 0.35, 0.45), ("sop", 0.8, 0.9)])
def test_validation_in_the_reality_check_of_musgrave_et_al(dataset: str, low: float, high: float):
    validation = {row.method: row.value for row in published(dataset, score="validation MAP@R")}
    test = {row.method: row.value for row in published(dataset, score="MAP@R", source="Musgrave")}
    found = rank_correlation(validation, {loss: test[loss] for loss in validation})
    assert found.methods == 13
    assert low < found.spearman < high


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=3, max_size=7), st.randoms(use_true_random=False))
def test_the_order_of_methods_does_not_matter_and_neither_does_a_rising_scale(values: list[int], random) -> None:
    if len(set(values)) == 1:
        return
    one, other = named(values), named([(7 * at) % 5 for at in range(len(values))])
    found = rank_correlation(one, other)
    moved = dict(random.sample(list(one.items()), len(one)))
    assert rank_correlation(moved, other) == found
    assert rank_correlation({name: 2**value for name, value in one.items()}, other) == found
    assert -1 - 1e-12 <= found.spearman <= 1 + 1e-12


def test_scores_that_are_all_equal_predict_nothing():
    """A small validation set saturates: every method finds everything."""
    found = rank_correlation(named([1, 1, 1, 1, 1]), named([1, 2, 3, 4, 5]))
    assert (found.spearman, found.kendall, found.p_value) == (0, 0, 1)
    assert found.spearman_interval is None
    assert not found.agreed


def test_bad_input():
    with pytest.raises(InputError, match="only one of them scores m3"):
        rank_correlation(named([1, 2, 3]), named([1, 2, 3, 4]))
    with pytest.raises(InputError, match="at least 3 methods, got 2"):
        rank_correlation(named([1, 2]), named([1, 2]))
    with pytest.raises(InputError, match="no test score for m1"):
        rank_correlation(named([1, 2, 3]), named([1, float("nan"), 3]))
