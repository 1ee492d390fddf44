"""The probability of being best."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vicinal.errors import InputError
from vicinal.stats import probability_of_best

pytestmark = pytest.mark.unit


def test_a_clear_lead_follows_students_law():
    """With many seeds and a lead far above the noise, the model is that of a t-test."""
    rng = np.random.default_rng(0)
    seeds = rng.normal(0, 0.02, (40, 1)) + np.linspace(0, 1, 30)
    lead = rng.normal(0.012, 0.02, (40, 1))
    found = probability_of_best({"a": seeds + lead, "b": seeds}, draws=20_000)
    ratio = lead.mean() / stats.sem(lead.ravel())
    assert found["a"] == pytest.approx(stats.t.cdf(ratio, 39), abs=0.02)


def test_a_lead_within_the_noise_is_worth_less_than_its_p_value():
    """Level methods are likely before the data are seen, so a lead of 1.6 errors is not 95 % sure."""
    rng = np.random.default_rng(0)
    lead = rng.normal(0, 0.1, 200)
    lead += 1.64 * stats.sem(lead) - lead.mean()
    seeds = np.tile(lead, (20, 1))
    found = probability_of_best({"a": seeds, "b": np.zeros((20, 200))}, draws=20_000)
    assert 0.75 < found["a"] < 0.93


def test_two_seeds_that_disagree_leave_it_open():
    """Two classes, two seeds: the lead of a comes from one seed alone."""
    found = probability_of_best({"a": np.array([[0.9, 0.9], [0.5, 0.5]]), "b": np.full((2, 2), 0.6)})
    assert list(found) == ["a", "b"]
    assert 0.5 < found["a"] < 0.75


def test_equals_share_and_all_shares_sum_to_one():
    scores = np.random.default_rng(0).random((2, 30))
    found = probability_of_best({"a": scores, "b": scores, "c": scores - 1}, draws=500)
    assert found == pytest.approx({"a": 0.5, "b": 0.5, "c": 0})
    assert sum(found.values()) == pytest.approx(1)


def test_queries_weigh_classes():
    """By queries a is ahead, by classes b."""
    rng = np.random.default_rng(0)
    scores = {"a": 0.5 + rng.normal(0, 0.01, (3, 20)), "b": 0.5 + rng.normal(0, 0.01, (3, 20))}
    scores["a"][:, :5] += 0.2
    scores["b"][:, 5:] += 0.1
    queries = np.array([90] * 5 + [10] * 15)
    assert next(iter(probability_of_best(scores, queries=queries))) == "a"
    assert next(iter(probability_of_best(scores))) == "b"


def test_it_repeats_with_its_seed():
    scores = {name: np.random.default_rng(len(name)).random((2, 20)) for name in ("a", "bb", "ccc")}
    first = probability_of_best(scores, draws=300, seed=1)
    assert first == probability_of_best(scores, draws=300, seed=1)
    assert first != probability_of_best(scores, draws=300, seed=2)
    assert probability_of_best(scores, draws=20_000, seed=2)["a"] == pytest.approx(first["a"], abs=0.15)


def test_one_class_has_only_seeds_to_vary():
    found = probability_of_best({"a": np.array([[3.0], [2.0], [2.5]]), "b": np.array([[1.0], [1.0], [1.1]])})
    assert 0.9 < found["a"] < 1


def test_bad_input():
    with pytest.raises(InputError, match="at least 1 draw, got 0"):
        probability_of_best({"a": np.ones(2), "b": np.ones(2)}, draws=0)
    with pytest.raises(InputError, match="at least 2 seeds, got 1"):
        probability_of_best({"a": np.ones(2), "b": np.ones(2)})
