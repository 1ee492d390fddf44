"""Choices by validation scores are not optimistic, and prefer what is simple where scores are level."""

import numpy as np
import pytest

from vicinal.stats.choice import choose_setting, level_with_best, mean_and_error

pytestmark = pytest.mark.unit


def test_a_setting_and_a_step_by_hand():
    own = np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]])
    other = own + np.array([0.1, 0.12, 0.11])  # better for every class
    chosen = choose_setting({"own": own, "other": other}, np.array([5, 5, 5]))
    assert (chosen.setting, chosen.step) == ("other", 1)
    np.testing.assert_allclose(chosen.by_class, other[1])


def test_the_first_setting_stays_within_a_standard_error():
    own = np.array([[0.5, 0.5, 0.5, 0.5]])
    other = np.array([[0.9, 0.2, 0.6, 0.31]])  # a little better on average, and not reliably
    assert choose_setting({"own": own, "other": other}, np.full(4, 9)).setting == "own"
    assert choose_setting({"own": own, "other": own + 0.01}, np.full(4, 9)).setting == "other"


def test_large_classes_count_more():
    curve = np.array([[0.9, 0.1], [0.1, 0.5]])
    assert choose_setting({"": curve}, np.array([1, 9])).step == 1
    assert choose_setting({"": curve}, np.array([9, 1])).step == 0


def test_cross_fitted_scores_are_not_optimistic():
    """All settings and steps are equally good, so every difference is noise."""
    rng = np.random.default_rng(0)
    best, fitted = [], []
    for _ in range(300):
        curves = {setting: 0.5 + 0.1 * rng.standard_normal((10, 8)) for setting in range(3)}
        queries = np.full(8, 10)
        best.append(max(curve.mean(axis=1).max() for curve in curves.values()))
        fitted.append(choose_setting(curves, queries).by_class.mean())
    assert np.mean(best) > 0.55
    assert abs(np.mean(fitted) - 0.5) < 4 * np.std(fitted) / np.sqrt(len(fitted))


def test_more_settings_do_not_make_a_choice_worse():
    """A choice among seven settings is about as good as one among three, though noise is as large as the effect."""
    rng = np.random.default_rng(1)
    quality = {3: [], 7: []}
    for _ in range(400):
        true = rng.normal(0, 0.01, 7)
        true[1:] -= 0.005  # settings from the paper are better, as a rule
        curves = {index: true[index] + 0.5 + 0.03 * rng.standard_normal((1, 12)) for index in range(7)}
        for count, values in quality.items():
            chosen = choose_setting({index: curves[index] for index in range(count)}, np.full(12, 10))
            values.append(true[chosen.setting])
    assert np.mean(quality[7]) > np.mean(quality[3]) - 0.001


def test_the_mean_and_its_error_are_those_of_the_formula():
    values, queries = np.array([0.2, 0.4, 0.9]), np.array([10, 10, 10])
    mean, error = mean_and_error(values, queries)
    assert mean == pytest.approx(0.5)
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(3))
    assert mean_and_error(np.array([0.3]), np.array([4])) == (pytest.approx(0.3), 0.0)


def test_candidates_that_are_level_are_listed_best_first():
    rng = np.random.default_rng(2)
    hard = rng.uniform(0, 1, 20)  # classes differ much more than candidates
    scores = np.stack([hard, hard + 0.001 * rng.standard_normal(20), hard - 0.1, hard + 0.05])
    assert level_with_best(scores, np.full(20, 10)) == [3]
    assert sorted(level_with_best(scores[:3], np.full(20, 10))) in ([0, 1], [0], [1])


def test_a_single_candidate_is_level_with_itself():
    assert level_with_best(np.array([[0.5, 0.6]]), np.array([3, 4])) == [0]
