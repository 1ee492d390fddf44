"""Friedman's test against scipy, by hand, under the null, and Nemenyi against printed tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from vicinal.stats import critical_difference, friedman
from vicinal.stats.ranks import cliques, experiments_needed, nemenyi_quantile

pytestmark = pytest.mark.unit


@pytest.mark.peer
@pytest.mark.parametrize("ties", [False, True])
def test_chi_square_is_that_of_scipy(ties: bool):
    scores = np.random.default_rng(0).random((9, 5))
    scores = scores.round(1) if ties else scores
    expected = stats.friedmanchisquare(*scores.T)
    found = friedman(stats.rankdata(-scores, axis=1), draws=10)
    assert found.chi_square == pytest.approx(expected.statistic)
    assert found.chi_square_p == pytest.approx(expected.pvalue)


def test_the_worked_example_of_demsar():
    """Demsar 2006, section 3.2.2: 4 classifiers on 14 datasets with mean ranks 3.143, 2.000, 2.893, 1.964."""
    means = np.array([3.143, 2.000, 2.893, 1.964])
    chi_square = 12 * 14 / 20 * ((means**2).sum() - 4 * 25 / 4)
    assert chi_square == pytest.approx(9.28, abs=0.01)
    f = 13 * chi_square / (14 * 3 - chi_square)
    assert f == pytest.approx(3.69, abs=0.01)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_iman_davenport_by_hand():
    ranks = np.array([[1.0, 2, 3], [1, 2, 3], [1, 3, 2], [1, 2, 3]])
    found = friedman(ranks, draws=10)
    assert found.chi_square == pytest.approx(6.5)  # totals 4, 9, 11 around 8: (16 + 1 + 9) / 4
    assert found.f == pytest.approx(3 * 6.5 / 1.5)
    assert found.f_degrees == (2, 6)
    assert found.f_p == pytest.approx(stats.f.sf(13, 2, 6))


def test_the_permutation_p_is_the_share_of_all_arrangements():
    ranks = np.array([[1.0, 2, 3], [1, 3, 2], [2, 1, 3]])
    rows = list(itertools.permutations([-1.0, 0, 1]))
    spreads = [float((np.sum(rows, axis=0) ** 2).sum()) for rows in itertools.product(rows, repeat=3)]
    observed = float(((ranks.sum(axis=0) - 6) ** 2).sum())
    exact = np.mean([spread >= observed - 1e-9 for spread in spreads])
    assert friedman(ranks, draws=20_000).p_value == pytest.approx(exact, abs=0.01)


def test_few_experiments_that_agree_prove_little():
    """Two experiments with the same order of two methods: a coin does that half the time."""
    found = friedman(np.array([[1.0, 2], [1, 2]]))
    assert found.p_value == pytest.approx(0.5, abs=0.02)
    assert found.f is None
    assert found.f_p is None
    assert "Iman" not in str(found)


def test_methods_that_always_tie_do_not_differ():
    found = friedman(np.full((4, 3), 2.0))
    assert (found.chi_square, found.p_value, found.f_p) == (0, 1, 1)


def test_p_is_uniform_when_all_methods_are_the_same():
    rng = np.random.default_rng(0)
    values = [
        friedman(stats.rankdata(rng.random((12, 6)), axis=1), draws=200, seed=trial).p_value for trial in range(300)
    ]
    assert stats.kstest(values, "uniform").pvalue > 0.01


def test_a_planted_best_method_is_found():
    rng = np.random.default_rng(0)
    scores = rng.random((15, 5)) + np.array([1, 0, 0, 0, 0])
    assert friedman(stats.rankdata(-scores, axis=1)).p_value < 0.001


def test_quantiles_are_those_printed_by_demsar():
    """Demsar 2006, Table 5a, for 2 to 10 methods; it prints three decimals, some of them rounded down."""
    printed_5 = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
    printed_10 = [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]
    assert [nemenyi_quantile(methods) for methods in range(2, 11)] == pytest.approx(printed_5, abs=1.1e-3)
    assert [nemenyi_quantile(methods, 0.1) for methods in range(2, 11)] == pytest.approx(printed_10, abs=1.1e-3)


@pytest.mark.parametrize("methods", [2, 3, 5, 10, 15])
def test_experiments_needed_are_the_fewest_that_can_tell_two_methods_apart(methods: int):
    needed = experiments_needed(methods)
    assert critical_difference(methods, needed) <= methods - 1
    assert needed == 1 or critical_difference(methods, needed - 1) > methods - 1


def test_cliques():
    assert cliques([1.0, 2.0, 3.0, 4.0], 0.5) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert cliques([1.0, 2.0, 3.0, 4.0], 9.0) == [(0, 3)]
    assert cliques([1.0, 2.0, 3.0, 4.0], 2.5) == [(0, 2), (1, 3)]
    assert cliques([2.0, 2.0, 2.0], 0.1) == [(0, 2)]
