"""A threshold with a promise: the bound, the choice, and that the promise is kept in a thousand drawn worlds."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.evaluation.threshold import (
    classes_needed,
    least_false_matches,
    most_false_matches_seen,
    promise_threshold,
    threshold_below,
)

pytestmark = pytest.mark.unit

WORLDS = 1000


@pytest.mark.parametrize("false_matches", [0.3, 0.05, 0.001])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_too_few_classes_promise_nothing(false_matches, confidence):
    needed = classes_needed(false_matches, confidence)
    assert (1 - false_matches) ** (needed // 2) <= 1 - confidence < (1 - false_matches) ** (needed // 2 - 1)
    assert most_false_matches_seen(needed - 1, false_matches, confidence) == -1
    assert 0 <= most_false_matches_seen(needed, false_matches, confidence) < false_matches
    assert least_false_matches(needed, confidence) <= false_matches < least_false_matches(needed - 2, confidence)


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


def pair_table(points, labels):
    """Similarities and weights of pairs of two classes: every pair of classes counts the same."""
    first, second = np.triu_indices(len(points), 1)
    apart = labels[first] != labels[second]
    first, second = first[apart], second[apart]
    sizes = np.bincount(labels)
    weights = 1.0 / sizes[labels[first]] / sizes[labels[second]]
    return -np.abs(points[first] - points[second]), weights / weights.sum()


def held(draw, rate, classes, false_matches, confidence):
    """In how many of a thousand worlds the threshold's true rate is at most what was promised."""
    most = most_false_matches_seen(classes, false_matches, confidence)
    assert most >= 0
    return sum(
        rate(threshold_below(*draw(np.random.default_rng(seed)), most)) <= false_matches for seed in range(WORLDS)
    )


def test_the_promise_is_kept_in_a_thousand_worlds_of_classes_on_a_line():
    classes, items = 60, 2

    def draw(rng):  # places of classes, some wide: pairs of a class fail together
        wide = rng.choice([0.1, 3.0], classes, p=[0.9, 0.1])
        places = rng.normal(0, 4, classes)
        labels = np.repeat(np.arange(classes), items)
        return pair_table(places[labels] + wide[labels] * rng.standard_normal(len(labels)), labels)

    def rate(threshold):  # the difference of two new items is normal, with one of three variances
        spreads = {0.81: 0.02, 0.18: 9.01, 0.01: 18.0}
        return sum(
            share * math.erf(max(0.0, -threshold) / math.sqrt(2 * (32 + spread))) for share, spread in spreads.items()
        )

    kept = held(draw, rate, classes, false_matches=0.15, confidence=0.9)
    assert kept >= 0.9 * WORLDS
    # a plain quantile of the pairs, without the bound, breaks it about every other time
    naive = sum(rate(threshold_below(*draw(np.random.default_rng(s)), 0.15)) <= 0.15 for s in range(200))
    assert naive < 0.75 * 200


def test_the_promise_is_kept_in_the_worst_world_there_is():
    classes, chance = 46, 0.0526  # a class that matches everything; unseen, the threshold is wrong

    def draw(rng):
        matches = rng.random(classes) < chance
        pairs = list(itertools.combinations(matches, 2))
        return np.array([float(a or b) for a, b in pairs]), np.full(len(pairs), 1 / len(pairs))

    true_rate = 1 - (1 - chance) ** 2
    kept = held(draw, lambda threshold: true_rate if threshold <= 1 else 0.0, classes, 0.1, 0.9)
    broken = (1 - chance) ** classes  # 8.3 % of the worlds show nothing
    assert true_rate > 0.1
    assert kept >= 0.9 * WORLDS
    assert 1 - kept / WORLDS == pytest.approx(broken, abs=3 * math.sqrt(broken / WORLDS))


def embedded(seed, classes, dim=4, noise=0.4):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), rng.integers(1, 5, classes))
    return rng.standard_normal((classes, dim))[labels] + noise * rng.standard_normal((len(labels), dim)), labels


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("few", [True, False])
def test_on_embeddings_every_pair_of_classes_counts_the_same(monkeypatch, distance, few):
    if not few:
        monkeypatch.setattr(sys.modules["vicinal.evaluation.threshold"], "FEW_PAIRS", 0)
        monkeypatch.setattr(sys.modules["vicinal.evaluation.pairs"], "GROUPS", 6)
    points, labels = embedded(0, 80)
    promise = promise_threshold(points, labels, false_matches=0.2, confidence=0.9, distance=distance)

    def similar(a, b):
        return -np.linalg.norm(a - b) if distance == "euclidean" else a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    shares, own = [], []
    for a in range(80):
        mine = points[labels == a]
        inside = [similar(x, y) >= promise.threshold - 1e-9 for x, y in itertools.combinations(mine, 2)]
        own += [np.mean(inside)] if inside else []
        shares += [
            np.mean([similar(x, y) >= promise.threshold - 1e-9 for x in mine for y in points[labels == b]])
            for b in range(a)
        ]
    tolerance = 1e-9 if few else 2e-3
    assert promise.seen == pytest.approx(np.mean(shares), abs=tolerance)
    assert promise.true_matches == pytest.approx(np.mean(own), abs=tolerance)
    assert promise.seen <= most_false_matches_seen(80, 0.2, 0.9)
    assert promise.classes == 80


def test_probabilities_rise_and_tell_the_truth_on_other_classes():
    points, labels = embedded(1, 150)
    promise = promise_threshold(points, labels, false_matches=0.1, confidence=0.9)
    chances = np.array(promise.probabilities)
    assert (np.diff(promise.similarities) > 0).all()
    assert (np.diff(chances) >= 0).all()
    assert chances.min() >= 1 / 152
    assert chances.max() <= 1 - 1 / 152
    other, codes = embedded(2, 150)
    unit = other / np.linalg.norm(other, axis=1, keepdims=True)
    first, second = np.triu_indices(len(unit), 1)
    values, same = (unit[first] * unit[second]).sum(axis=1), codes[first] == codes[second]
    weights = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())  # both equally likely
    told = np.interp(values, promise.similarities, promise.probabilities)
    for low, high in ((0, 0.2), (0.2, 0.6), (0.6, 0.85), (0.85, 1)):
        chosen = (told >= low) & (told < high)
        truth = (weights * same)[chosen].sum() / weights[chosen].sum()
        assert truth == pytest.approx(np.average(told[chosen], weights=weights[chosen]), abs=0.08)


def test_refusals_say_how_many_classes_it_takes():
    points, labels = embedded(3, 50)
    with pytest.raises(InputError, match=r"50 classes cannot promise.*takes 5,990 classes.*can promise 0\.113"):
        promise_threshold(points, labels)
    promise_threshold(points, labels, false_matches=0.1130)
    with pytest.raises(InputError, match="between 0 and 1"):
        promise_threshold(points, labels, false_matches=0.0)
    with pytest.raises(InputError, match="No class has two items"):
        promise_threshold(np.eye(60), np.arange(60), false_matches=0.2)
