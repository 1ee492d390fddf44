"""Thresholds: the levels, what each needs, the choice, and how often each is right over many drawn worlds."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest

from vicinal.errors import InputError, UnknownName
from vicinal.evaluation.threshold import (
    LEVELS,
    Target,
    choose_threshold,
    classes_needed,
    effective_classes,
    least_false_matches,
    most_false_matches_seen,
    threshold_below,
    upper_limit,
)

pytestmark = pytest.mark.unit

WORLDS = 80


@pytest.mark.parametrize("false_matches", [0.3, 0.05, 0.001])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_how_many_classes_a_guarantee_needs(false_matches, confidence):
    needed = classes_needed("guarantee", false_matches, confidence)
    assert (1 - false_matches) ** (needed // 2) <= 1 - confidence < (1 - false_matches) ** (needed // 2 - 1)
    assert most_false_matches_seen(needed - 1, false_matches, confidence) == -1
    assert 0 <= most_false_matches_seen(needed, false_matches, confidence) < false_matches


@pytest.mark.parametrize("false_matches", [0.3, 0.05, 0.001])
def test_how_many_classes_an_average_needs(false_matches):
    def worst(classes):  # nothing seen, and two new classes that match everything
        return (2 * classes + 1) / math.comb(classes + 2, 2)

    needed = classes_needed("average", false_matches)
    assert worst(needed) <= false_matches < worst(needed - 1)


@pytest.mark.parametrize("level", ["bound", "average", "guarantee"])
def test_the_least_rate_is_the_inverse(level):
    least = least_false_matches(level, 150)
    assert classes_needed(level, least) <= 150 < classes_needed(level, least - 1e-4)


def test_the_bound_is_chernoffs():
    for classes in (700, 5000):
        seen = most_false_matches_seen(classes, 0.01, 0.95)
        kl = seen * math.log(seen / 0.01) + (1 - seen) * math.log((1 - seen) / 0.99)
        assert math.exp(-(classes // 2) * kl) == pytest.approx(0.05, rel=1e-6)


def test_thresholds_by_hand():
    values, weights = np.array([3.0, 1.0, 2.0, 2.0]), np.full(4, 0.25)
    assert 3 < threshold_below(values, weights, 0.0) < 3.00001
    assert threshold_below(values, weights, 0.25) == 3
    assert threshold_below(values, weights, 0.74) == 3
    assert threshold_below(values, weights, 0.75) == 2
    assert threshold_below(values, weights, 1.0) == 1.0


class LineWorld:
    """Classes at random points of a line, one in ten of them wide; the rate of every threshold is known."""

    def __init__(self, classes, items=2):
        self.classes, self.items = classes, items

    def draw(self, seed):
        rng = np.random.default_rng(seed)
        wide = rng.choice([0.1, 3.0], self.classes, p=[0.9, 0.1])
        labels = np.repeat(np.arange(self.classes), self.items)
        points = rng.normal(0, 4, self.classes)[labels] + wide[labels] * rng.standard_normal(len(labels))
        return points[:, None], labels

    def rate(self, threshold):  # the difference of two new items is normal, with one of three variances
        spreads = {0.81: 0.02, 0.18: 9.01, 0.01: 18.0}
        return sum(
            share * math.erf(max(0.0, -threshold) / math.sqrt(2 * (32 + spread))) for share, spread in spreads.items()
        )


def chosen_in_worlds(world, level, worlds=WORLDS, **target):
    return [choose_threshold(*world.draw(seed), level=level, distance="euclidean", **target) for seed in range(worlds)]


def test_how_often_each_level_is_right():
    world, target = LineWorld(60), {"false_matches": 0.15, "confidence": 0.9}
    rates = {
        level: np.array([world.rate(chosen.threshold) for chosen in chosen_in_worlds(world, level, **target)])
        for level in LEVELS
    }
    right = {level: (rate <= 0.15).mean() for level, rate in rates.items()}
    assert 0.3 < right["estimate"] < 0.7  # nothing is claimed
    assert right["bound"] >= 0.9
    assert right["guarantee"] >= 0.9
    means = {level: rate.mean() for level, rate in rates.items()}
    assert means["average"] <= 0.15
    assert means["guarantee"] < means["average"] < means["bound"] < means["estimate"]
    assert means["bound"] > 0.1  # it uses two thirds of the rate or more


@pytest.mark.parametrize("classes", [5, 12, 40])
def test_the_interval_of_an_estimate_covers_the_rate_of_its_threshold(classes):
    world = LineWorld(classes, items=4)
    estimates = chosen_in_worlds(world, "estimate", worlds=60, false_matches=0.1)
    rates = np.array([world.rate(estimate.threshold) for estimate in estimates])
    low, high = np.array([estimate.interval for estimate in estimates]).T
    assert ((low <= rates) & (rates <= high)).mean() >= 0.9
    assert all(estimate.interval[0] <= estimate.seen <= estimate.interval[1] for estimate in estimates)


def test_cross_fitting_is_not_optimistic():
    """With few classes, the rate on the classes that a threshold was chosen on is too low."""
    world = LineWorld(6, items=3)
    estimates = chosen_in_worlds(world, "estimate", false_matches=0.1)
    truth = np.mean([world.rate(estimate.threshold) for estimate in estimates])
    assert truth > 0.11
    assert np.mean([estimate.seen for estimate in estimates]) == pytest.approx(truth, abs=0.03)


def test_a_guarantee_is_never_stricter_than_chernoffs_bound():
    world = LineWorld(80, items=3)
    most = most_false_matches_seen(80, 0.15, 0.9)
    stricter = []
    for seed in range(20):
        points, labels = world.draw(seed)
        chosen = choose_threshold(
            points, labels, false_matches=0.15, confidence=0.9, level="guarantee", distance="euclidean"
        )
        first, second = np.triu_indices(len(points), 1)
        apart = labels[first] != labels[second]
        values = -np.abs(points[first[apart], 0] - points[second[apart], 0])
        chernoff = threshold_below(values, np.full(len(values), 1 / len(values)), most)
        assert chosen.threshold <= chernoff + 1e-9
        stricter.append(chosen.threshold < chernoff - 1e-9)
    assert np.mean(stricter) > 0.9


def test_the_limit_of_a_bound():
    equal = upper_limit(np.full(200, 2.0), np.full(200, 199.0), 0.95)
    assert equal == pytest.approx(2 / 199, rel=1e-3)  # classes do not differ, so that nothing is uncertain
    hub = np.full(200, 1.0)
    hub[0] = 199.0
    several = upper_limit(np.stack([hub, np.full(200, hub.mean())], axis=1), np.full(200, 199.0), 0.95)
    assert several[0] > 2 * several[1]  # one class has half of the matches
    nothing = float(upper_limit(np.zeros(200), np.full(200, 199.0), 0.95))
    assert nothing == pytest.approx(1 - 0.05 ** (1 / 100), rel=1e-3)  # 100 disjoint pairs, no match


def test_auto_takes_what_the_number_of_classes_supports():
    for classes, level in ((5, "estimate"), (99, "estimate"), (100, "bound"), (3800, "bound"), (3900, "guarantee")):
        assert Target(0.01).level_for(np.full(classes, 4)) == level
    assert Target(0.01, per="items").level_for(np.full(5000, 4)) == "bound"
    uneven = np.array([500] * 5 + [2] * 500)  # worth few classes, if pairs of items count
    assert effective_classes(uneven, "items") < 10
    assert Target(0.01, per="items").level_for(uneven) == "estimate"
    assert Target(0.01).level_for(uneven) == "bound"


def embedded(seed, classes, dim=4, noise=0.4):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), rng.integers(1, 5, classes))
    return rng.standard_normal((classes, dim))[labels] + noise * rng.standard_normal((len(labels), dim)), labels


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("per", ["classes", "items"])
def test_rates_on_embeddings_are_those_of_all_pairs(monkeypatch, distance, few, per):
    if not few:
        monkeypatch.setattr(sys.modules["vicinal.evaluation.threshold"], "FEW_PAIRS", 0)
        monkeypatch.setattr(sys.modules["vicinal.evaluation.threshold"], "BLOCK_CLASSES", 15)
    points, labels = embedded(0, 80)
    chosen = choose_threshold(points, labels, false_matches=0.2, level="bound", per=per, distance=distance)

    def same(a, b):
        value = -np.linalg.norm(a - b) if distance == "euclidean" else a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        return value >= chosen.threshold - 1e-9

    shares, own = [], []  # matches and number of pairs, for each pair of classes and for each class
    for a in range(80):
        mine = points[labels == a]
        inside = [same(x, y) for x, y in itertools.combinations(mine, 2)]
        own += [(sum(inside), len(inside))] if inside else []
        for b in range(a):
            matches = [same(x, y) for x in mine for y in points[labels == b]]
            shares.append((sum(matches), len(matches)))

    def mean(counts):
        matches, pairs = np.array(counts, dtype=float).T
        return np.mean(matches / pairs) if per == "classes" else matches.sum() / pairs.sum()

    tolerance = 1e-9 if few else 2e-3
    assert chosen.seen == pytest.approx(mean(shares), abs=tolerance)
    assert chosen.true_matches == pytest.approx(mean(own), abs=tolerance)
    assert 0.1 < chosen.seen < 0.2
    assert (chosen.classes, chosen.level, chosen.per) == (80, "bound", per)


def test_pairs_of_items_and_pairs_of_classes_differ_if_large_classes_are_alike():
    rng = np.random.default_rng(0)
    sizes = np.where(np.arange(120) < 20, 30, 2)
    centres = np.where(np.arange(120)[:, None] < 20, 2.0, 0.0) + rng.standard_normal((120, 8))
    labels = np.repeat(np.arange(120), sizes)
    points = centres[labels] + 0.3 * rng.standard_normal((len(labels), 8))
    by_classes, by_items = (
        choose_threshold(points, labels, false_matches=0.05, level="estimate", per=per) for per in ("classes", "items")
    )
    assert by_items.threshold > by_classes.threshold + 0.05
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    apart = labels[:, None] != labels
    assert ((unit @ unit.T)[apart] >= by_classes.threshold).mean() > 0.2  # of pairs of items, four times the rate
    assert ((unit @ unit.T)[apart] >= by_items.threshold).mean() <= 0.05


def test_probabilities_rise_and_tell_the_truth_on_other_classes():
    points, labels = embedded(1, 150)
    chosen = choose_threshold(points, labels, false_matches=0.1, confidence=0.9)
    chances = np.array(chosen.probabilities)
    assert (np.diff(chosen.similarities) > 0).all()
    assert (np.diff(chances) >= 0).all()
    assert chances.min() >= 1 / 152
    assert chances.max() <= 1 - 1 / 152
    other, codes = embedded(2, 150)
    unit = other / np.linalg.norm(other, axis=1, keepdims=True)
    first, second = np.triu_indices(len(unit), 1)
    values, same = (unit[first] * unit[second]).sum(axis=1), codes[first] == codes[second]
    weights = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())  # both equally likely
    predicted = np.interp(values, chosen.similarities, chosen.probabilities)
    for low, high in ((0, 0.2), (0.2, 0.6), (0.6, 0.85), (0.85, 1)):
        part = (predicted >= low) & (predicted < high)
        truth = (weights * same)[part].sum() / weights[part].sum()
        assert truth == pytest.approx(np.average(predicted[part], weights=weights[part]), abs=0.08)


def test_refusals_say_how_many_classes_it_takes():
    points, labels = embedded(3, 50)
    with pytest.raises(InputError, match=r"50 classes are too few for the level 'guarantee' at a rate of 0\.01.* 598"):
        choose_threshold(points, labels, level="guarantee")
    with pytest.raises(InputError, match=r"'guarantee'.*or a rate of 0\.113 \(--false-matches 0\.113\)"):
        choose_threshold(points, labels, level="guarantee")
    assert choose_threshold(points, labels, level="guarantee", false_matches=0.113).level == "guarantee"
    assert choose_threshold(points, labels).level == "estimate"
    with pytest.raises(InputError, match=r"4 classes are too few for the level 'estimate'.*takes 5"):
        choose_threshold(points[labels < 4], labels[labels < 4])
    with pytest.raises(InputError, match="proved for pairs of classes only"):
        choose_threshold(points, labels, level="average", per="items")
    with pytest.raises(InputError, match="between 0 and 1"):
        choose_threshold(points, labels, false_matches=0.0)
    with pytest.raises(UnknownName, match="'sure'"):
        choose_threshold(points, labels, level="sure")
    with pytest.raises(InputError, match="No class has two items"):
        choose_threshold(np.eye(60), np.arange(60), false_matches=0.2)


def test_a_bound_that_no_threshold_has_is_refused_and_auto_estimates():
    centres = np.eye(40)
    centres[:7] = centres[0]  # seven classes cannot be distinguished, all others can
    labels = np.repeat(np.arange(40), 4)
    points = centres[labels]
    with pytest.raises(InputError, match=r"No threshold has a bound of 0\.0625"):
        choose_threshold(points, labels, false_matches=0.0625, level="bound")
    assert choose_threshold(points, labels, false_matches=0.0625).level == "estimate"
