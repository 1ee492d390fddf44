"""Pairs of methods on the same classes: by hand, against the difference of two models, under the null."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vicinal.errors import InputError
from vicinal.stats import AlignedPair, class_arrays, compare_aligned, compare_pairs, holm, paired_difference
from vicinal.stats.intervals import sign_flip
from vicinal.stats.pair_tests import Spread, paired_delta, spreads

pytestmark = pytest.mark.unit


def test_holm_by_hand():
    """0.005 x 4, 0.01 x 3, 0.03 x 2 = 0.06, and 0.04 x 1 raised to the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]).tolist() == [1, 1]
    assert holm([]).tolist() == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_holm_only_raises_keeps_the_order_and_ignores_where_a_value_stands(values: list[float], random) -> None:
    corrected = holm(values)
    assert (corrected >= values).all()
    assert (corrected <= np.minimum(1, len(values) * np.array(values)) + 1e-12).all()
    order = random.sample(range(len(values)), len(values))
    assert holm([values[at] for at in order]) == pytest.approx(corrected[order])


def test_signs_of_few_classes_are_all_tried():
    differences = np.random.default_rng(0).standard_normal((6, 3))
    expected = [
        np.mean(
            [abs(np.dot(signs, column)) >= abs(column.sum()) - 1e-12 for signs in itertools.product([-1, 1], repeat=6)]
        )
        for column in differences.T
    ]
    assert sign_flip(differences) == pytest.approx(expected)


def test_signs_of_many_classes_are_drawn_and_come_near_the_exact_share(monkeypatch: pytest.MonkeyPatch):
    differences = np.random.default_rng(1).standard_normal((12, 4)) + 0.4
    exact = sign_flip(differences)
    monkeypatch.setattr("vicinal.stats.intervals.EXACT", 0)
    assert sign_flip(differences, draws=40_000) == pytest.approx(exact, abs=0.01)
    assert sign_flip(np.zeros((20, 1))).tolist() == [1]


def test_one_run_agrees_with_the_difference_of_two_models():
    """Per-class means weighted by their queries are the comparison of the queries themselves."""
    rng = np.random.default_rng(0)
    queries = rng.integers(2, 9, 50)
    codes = np.repeat(np.arange(50), queries)
    one = rng.random(len(codes))
    other = np.clip(one + rng.normal(-0.02, 0.2, len(codes)), 0, 1)
    expected = paired_difference(one, other, codes, draws=20_000)
    means = {name: np.bincount(codes, scores) / queries for name, scores in (("one", one), ("other", other))}
    (found,) = compare_pairs(means, queries=queries)
    assert (found.first, found.second) == ("one", "other")
    assert found.difference == pytest.approx(expected.mean)
    assert found.interval == pytest.approx(expected.interval)
    assert found.p_single == pytest.approx(expected.p_value, abs=0.01)
    assert found.p_value == found.p_single
    assert (found.count, found.unit, found.seeds) == (50, "class", 1)


def test_all_pairs_come_best_first_and_corrected():
    rng = np.random.default_rng(0)
    base = rng.random(60)
    found = compare_pairs({"c": base, "a": base + 0.2 * rng.random(60), "b": base + 0.1 * rng.random(60)})
    assert [(test.first, test.second) for test in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert all(test.difference > 0 and test.interval.low > 0 and test.p_value < 0.05 for test in found)
    assert [test.p_value for test in found] == pytest.approx(holm([test.p_single for test in found]))
    assert str(found[1]).startswith("a - c: +0.1")
    assert str(found[1]).endswith("effect +1.00, p < 0.001, over 60 classes and 1 seed")


def test_the_effect_counts_classes():
    assert paired_delta(np.array([1.0, 2, 3]), np.array([0.0, 2, 5])) == 0
    assert paired_delta(np.array([1.0, 2, 3, 4]), np.array([0.0, 1, 2, 9])) == 0.5


@pytest.mark.parametrize("weighted", [False, True])
def test_p_is_uniform_where_two_models_are_the_same(weighted: bool):
    rng = np.random.default_rng(2)
    queries = rng.integers(1, 30, 40) if weighted else None
    values = []
    for trial in range(250):
        difficulty = rng.random(40)
        methods = {name: difficulty + rng.normal(0, 0.1, 40) for name in "ab"}
        (found,) = compare_pairs(methods, queries=queries, draws=500, seed=trial)
        values.append(found.p_single)
    assert stats.kstest(values, "uniform").pvalue > 0.01


def runs(rng: np.random.Generator, advantage: float, seeds: int = 5, classes: int = 40) -> dict[str, np.ndarray]:
    """Two methods whose scores vary by class, by seed, by how each takes to each class, and by chance."""
    difficulty = rng.normal(0, 0.2, classes)
    return {
        name: better
        + difficulty
        + rng.normal(0, 0.03, classes)
        + rng.normal(0, 0.01, (seeds, 1))
        + rng.normal(0, 0.02, (seeds, classes))
        for name, better in (("a", advantage), ("b", 0.0))
    }


def test_with_several_seeds_equal_methods_are_rarely_told_apart():
    """Seeds shift all classes of a run together, which a test over classes alone takes for a real difference."""
    rng = np.random.default_rng(3)
    both, classes_alone, covered = [], [], 0
    for _ in range(1000):
        scores = runs(rng, 0.0)
        (found,) = compare_pairs(scores)
        (averaged,) = compare_pairs({name: values.mean(axis=0) for name, values in scores.items()}, draws=200)
        both.append(found.p_single)
        classes_alone.append(averaged.p_single)
        covered += found.interval.low <= 0 <= found.interval.high
    assert 0.02 < np.mean(np.array(both) < 0.05) < 0.065
    assert np.mean(np.array(classes_alone) < 0.05) > 0.1
    assert 935 <= covered <= 980


def test_with_several_seeds_a_planted_advantage_is_found():
    rng = np.random.default_rng(4)
    found = [compare_pairs(runs(rng, 0.05))[0] for _ in range(50)]
    assert all(test.first == "a" for test in found)
    assert np.mean([test.p_value < 0.05 for test in found]) > 0.95
    assert (found[0].seeds, found[0].count) == (5, 40)


def test_the_two_way_test_by_hand():
    """Two seeds, two classes: differences 1, 3 and 2, 4 vary by 0.25 over seeds and by 1 over classes."""
    (found,) = compare_pairs({"a": np.array([[1.0, 3], [2, 4]]), "b": np.zeros((2, 2))})
    quantile = stats.t.ppf(0.975, 1)
    assert found.difference == 2.5
    assert found.spread == (0.25, 1, 1, 1)
    assert found.interval.high - 2.5 == pytest.approx(quantile * 1.25**0.5)
    assert found.p_single == pytest.approx(2 * stats.t.sf(2.5 / 1.25**0.5, 1))


def test_what_classes_and_seeds_vary_together_is_counted_once():
    """Differences 0, 2 and 2, 0: seeds and classes have equal means, and all variation is that of the cells."""
    (spread,) = spreads(np.array([[0.0, 2], [2, 0]])[..., None], np.full(2, 0.5))
    assert (spread.of_seeds, spread.of_classes) == (0, 0)
    rng = np.random.default_rng(0)
    cells = [spreads(rng.standard_normal((5, 40, 1)), np.full(40, 1 / 40))[0] for _ in range(300)]
    both = np.mean([spread.of_seeds + spread.of_classes for spread in cells])
    assert both == pytest.approx(1 / 200, rel=0.4)  # without the subtraction it would be twice this
    assert both < 1.5 / 200


def test_the_variance_over_seeds_is_pooled_but_never_smaller_than_that_of_the_pair():
    differences = np.random.default_rng(0).standard_normal((3, 8, 3)) * [1, 1, 5]
    pooled = spreads(differences, np.full(8, 1 / 8), methods=3)
    alone = [spreads(differences[..., [pair]], np.full(8, 1 / 8))[0] for pair in range(3)]
    mean = np.mean([spread.of_seeds for spread in alone])
    assert [spread.of_seeds for spread in pooled] == pytest.approx([max(mean, spread.of_seeds) for spread in alone])
    assert [spread.seed_degrees for spread in (*pooled, alone[0])] == [4, 4, 4, 2]
    assert [spread.of_classes for spread in pooled] == pytest.approx([spread.of_classes for spread in alone])


def test_p_and_interval_agree_and_two_seeds_that_agree_by_luck_keep_their_single_degree():
    spread = Spread(1e-3, 1, 1e-3, 49)
    assert spread.p_value(spread.reach(0.9)) == pytest.approx(0.1)
    assert spread.p_value(-spread.reach(0.99)) == pytest.approx(0.01)
    assert spread.reach(0.95) == pytest.approx(2e-3**0.5 * (stats.t.ppf(0.975, 1) + stats.t.ppf(0.975, 49)) / 2)
    assert (spread.p_value(0.0), Spread(0, 1, 0, 1).p_value(0.1), Spread(0, 1, 0, 1).reach(0.95)) == (1, 0, 0)
    assert spread.p_value(1e300) < 1e-9


def test_runs_without_any_variation():
    (found,) = compare_pairs({"a": np.ones((3, 4)), "b": np.zeros((3, 4))})
    assert (found.difference, found.p_single, found.interval) == (1, 0, (1, 1))
    (same,) = compare_pairs({"a": np.ones((3, 4)), "b": np.ones((3, 4))})
    assert (same.difference, same.p_single, same.effect) == (0, 1, 0)


def test_classes_are_put_in_one_order():
    """Scores.per_class lists the worst class first, which differs between models."""
    found = class_arrays({"a": [{7: 0.1, 3: 0.5}, {3: 0.4, 7: 0.6}], "b": [{3: 0.2, 7: 0.9}, {7: 0.3, 3: 0.8}]})
    assert found["a"].tolist() == [[0.5, 0.1], [0.4, 0.6]]
    assert found["b"].tolist() == [[0.2, 0.9], [0.8, 0.3]]
    with pytest.raises(InputError, match=r"Run 1 of a has no score for 1 of 2 classes \(7\)"):
        class_arrays({"a": [{7: 0.1, 3: 0.5}, {3: 0.4}]})


def test_bad_input():
    with pytest.raises(InputError, match="at least 2 methods, got 1"):
        compare_pairs({"a": np.ones(3)})
    with pytest.raises(InputError, match=r"got a \(1, 3\), b \(2, 3\)"):
        compare_pairs({"a": np.ones(3), "b": np.ones((2, 3))})
    with pytest.raises(InputError, match=r"got a \(1, 0\), b \(1, 0\)"):
        compare_pairs({"a": np.ones(0), "b": np.ones(0)})
    with pytest.raises(InputError, match="b has no score for 1 class, first for number 2 in run 0"):
        compare_pairs({"a": np.ones(3), "b": np.array([1, 1, np.nan])})
    with pytest.raises(InputError, match="a count above 0 for each of 3 classes"):
        compare_pairs({"a": np.ones(3), "b": np.ones(3)}, queries=np.array([1, 0, 2]))


def test_pairs_that_share_different_seeds_are_each_tested_as_by_themselves_and_corrected_together():
    rng = np.random.default_rng(5)
    scores = {name: rng.random((3, 20)) for name in "abc"}
    queries = rng.integers(1, 9, 20)
    pairs = [
        AlignedPair("a", "b", scores["a"], scores["b"], queries),
        AlignedPair("a", "c", scores["a"][:1, :7], scores["c"][:1, :7], queries[:7], folds=2),
        AlignedPair("b", "c", scores["b"][:2], scores["c"][:2]),
    ]
    found = compare_aligned(pairs)
    assert [test.basis for test in found] == [
        "20 classes and 3 seeds",
        "7 classes and 1 seed (2 folds in all)",
        "20 classes and 2 seeds",
    ]
    assert [test.p_value for test in found] == pytest.approx(holm([test.p_single for test in found]))
    for pair, test in zip(pairs, found, strict=True):
        alone = compare_pairs({pair.first: pair.first_scores, pair.second: pair.second_scores}, queries=pair.queries)[0]
        sign = 1 if alone.first == pair.first else -1
        assert test.difference == pytest.approx(sign * alone.difference)
        assert (test.effect, test.p_single) == (pytest.approx(sign * alone.effect), pytest.approx(alone.p_single))
        assert sorted(map(abs, test.interval)) == pytest.approx(sorted(map(abs, alone.interval)), abs=0.02)
    assert compare_aligned([]) == []
    with pytest.raises(InputError, match="a and b need scores of the same seeds and classes"):
        compare_aligned([AlignedPair("a", "b", np.ones((2, 3)), np.ones((1, 3)))])
    with pytest.raises(InputError, match="Some classes have no score for a or b"):
        compare_aligned([AlignedPair("a", "b", np.ones(3), np.array([1, 1, np.nan]))])
