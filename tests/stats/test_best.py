"""The probability of being best."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from vicinal.errors import InputError
from vicinal.stats import probability_of_best

pytestmark = pytest.mark.unit


def test_the_better_half_of_two_classes_by_hand():
    """Classes drawn twice: a wins if class 0 comes twice (1/4), b if class 1 does, else a by its larger lead."""
    found = probability_of_best({"b": np.array([0.0, 1.0]), "a": np.array([2.0, 0.0])}, draws=20_000)
    assert list(found) == ["a", "b"]
    assert found["a"] == pytest.approx(0.75, abs=0.01)


def test_seeds_are_drawn_as_well():
    """One class: only seeds vary; a has the higher sum unless its bad seed comes twice."""
    found = probability_of_best({"a": np.array([[3.0], [0.0]]), "b": np.array([[1.0], [1.0]])}, draws=20_000)
    assert found["a"] == pytest.approx(0.75, abs=0.01)


def test_it_follows_the_normal_law_for_many_classes():
    rng = np.random.default_rng(0)
    lead = rng.normal(0.01, 0.1, 200)
    found = probability_of_best({"a": lead, "b": np.zeros(200)}, draws=20_000)
    assert found["a"] == pytest.approx(stats.norm.cdf(lead.mean() / (lead.std() / 200**0.5)), abs=0.02)


def test_equals_share_and_all_shares_sum_to_one():
    scores = np.random.default_rng(0).random((2, 30))
    found = probability_of_best({"a": scores, "b": scores, "c": scores - 1}, draws=500)
    assert found == pytest.approx({"a": 0.5, "b": 0.5, "c": 0})
    assert sum(found.values()) == pytest.approx(1)


def test_queries_weigh_classes():
    """The class that a wins has nearly all queries; without it in the draw b wins."""
    scores = {"a": np.array([1.0, 0.0]), "b": np.array([0.0, 1.0])}
    found = probability_of_best(scores, queries=np.array([99, 1]), draws=20_000)
    assert found["a"] == pytest.approx(0.75, abs=0.01)


def test_it_repeats_with_its_seed_whatever_the_size_of_the_blocks(monkeypatch: pytest.MonkeyPatch):
    scores = {name: np.random.default_rng(len(name)).random(20) for name in ("a", "bb", "ccc")}
    first = probability_of_best(scores, draws=300, seed=1)
    assert first == probability_of_best(scores, draws=300, seed=1)
    module = sys.modules["vicinal.stats.verdict"]  # the attribute of the package is the function
    monkeypatch.setattr(module, "DRAWS_AT_ONCE", 100)
    assert probability_of_best(scores, draws=4000, seed=1)["a"] == pytest.approx(first["a"], abs=0.1)


def test_bad_input():
    with pytest.raises(InputError, match="at least 1 draw, got 0"):
        probability_of_best({"a": np.ones(2), "b": np.ones(2)}, draws=0)
