"""Intervals, tests and P(best) on simulated classes and seeds: a small form of benchmarks/coverage.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.unit

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "coverage.py"


@pytest.fixture(scope="module")
def simulations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("classes", [10, 20, 50])
@pytest.mark.parametrize("population", ["independent", "sizes", "harder"])
def test_an_interval_covers_as_often_as_it_says(simulations: ModuleType, population: str, classes: int) -> None:
    covered = [simulations.score_coverage(population, classes, level, 400) for level in (0.5, 2.5)]
    assert all(0.92 <= share <= 0.985 for share in covered)
    assert 0.93 <= np.mean(covered) <= 0.975


def test_scores_near_one_have_an_interval_that_covers(simulations: ModuleType) -> None:
    """With 10 easy classes all queries are often right, which does not prove that all classes are easy."""
    assert 0.93 <= simulations.score_coverage("independent", 10, 4.5, 400) <= 0.985


def test_classes_of_families_need_an_interval_over_families(simulations: ModuleType) -> None:
    assert simulations.score_coverage("families", 50, 0.5, 300) < 0.8
    assert 0.92 <= simulations.score_coverage("families", 50, 0.5, 300, together=simulations.FAMILY) <= 0.98


@pytest.mark.parametrize(("methods", "seeds", "loudness"), [(2, 2, 0.4), (2, 3, 0.4), (5, 2, 1.5), (5, 3, 0.1)])
def test_seeds_that_move_all_classes_are_not_taken_for_a_difference(
    simulations: ModuleType, methods: int, seeds: int, loudness: float
) -> None:
    claims = simulations.pair_claims(
        "independent", 50, methods=methods, seeds=seeds, loudness=loudness, simulations=200 if methods == 5 else 500
    )
    assert claims.covered >= 0.925
    assert claims.significant <= 0.075
    assert claims.any_significant <= 0.075


def test_one_seed_compares_models(simulations: ModuleType) -> None:
    claims = simulations.pair_claims("sizes", 20, methods=2, seeds=1, loudness=0.0, simulations=300)
    assert 0.925 <= claims.covered <= 0.99
    assert claims.significant <= 0.075


@pytest.mark.parametrize("seeds", [2, 3])
def test_the_method_that_is_called_best_is_best(simulations: ModuleType, seeds: int) -> None:
    outcomes = simulations.best_claims(
        50, methods=2, seeds=seeds, loudness=0.4, advantages=(0.05, 0.4, 1.0), simulations=600
    )
    sure = outcomes[outcomes[:, 0] >= 0.95]
    assert len(sure) > 40
    assert sure[:, 1].mean() >= 0.9
    assert outcomes[:, 1].mean() == pytest.approx(outcomes[:, 0].mean(), abs=0.05)
