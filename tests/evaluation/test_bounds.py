"""Generalisation bounds: each term against loops, the bound against the measured gap."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InputError
from vicinal.spaces.cover_bounds import cover_bound, sample_bound

pytestmark = pytest.mark.unit

Arrays = tuple[np.ndarray, np.ndarray]


def blobs(seed: int, *, classes: int = 3, size: int = 8, spread: float = 0.2) -> Arrays:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), size)
    points = rng.normal(size=(classes, 2))[labels] + spread * rng.normal(size=(len(labels), 2))
    return points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0), labels


def loss(one: np.ndarray, other: np.ndarray, same: bool, margins: tuple[float, float]) -> float:
    distance = float(np.linalg.norm(one - other))
    return max(0.0, distance - margins[0] if same else margins[1] - distance)


def mean_loss(anchors: Arrays, references: Arrays, margins: tuple[float, float]) -> float:
    pairs = product(zip(*anchors, strict=True), zip(*references, strict=True))
    return float(np.mean([loss(x, y, a == b, margins) for (x, a), (y, b) in pairs]))


def nearest(point: np.ndarray, others: np.ndarray) -> float:
    return min(float(np.linalg.norm(point - other)) for other in others)


@pytest.mark.parametrize("margins", [(0.0, 0.5), (0.2, 0.7)])
def test_every_term_of_the_cover_bound_against_loops(margins: tuple[float, float]) -> None:
    points, labels = blobs(0)
    chosen = np.array([0, 3, 9, 17])
    found = cover_bound(points, labels, chosen, positive_margin=margins[0], negative_margin=margins[1], lipschitz=2.0)
    all_, few = (points, labels), (points[chosen], labels[chosen])
    error = mean_loss(few, all_, margins)
    delta = max(nearest(points[i], points[[c for c in chosen if labels[c] == labels[i]]]) for i in range(24))
    mates = [[j for j in range(24) if labels[j] == labels[i] and j != i] for i in range(24)]
    epsilon = max(nearest(points[i], points[mates[i]]) for i in range(24))
    largest = max(2 * np.linalg.norm(points, axis=1).max() - margins[0], margins[1])
    tail = math.log(20)
    assert found.gap == pytest.approx(abs(mean_loss(all_, all_, margins) - error))
    assert found.radius == pytest.approx(delta)
    assert found.cover == pytest.approx(2 * (3 * delta + epsilon))
    assert found.error == pytest.approx(error)
    sampling = 2 * math.sqrt(tail / 48) + math.sqrt((2 * 4 * math.log(2) + 2 * tail) / 24)
    assert found.sampling == pytest.approx(largest * sampling)
    assert found.total == pytest.approx(found.cover + found.error + found.sampling)


def test_every_term_of_the_sample_bound_against_loops() -> None:
    points, labels = blobs(1)
    some = np.array([1, 2, 8, 12, 16])
    found = sample_bound(points[some], labels[some], points, labels, failure=0.1)
    all_, few = (points, labels), (points[some], labels[some])
    gap = abs(mean_loss(all_, all_, (0.0, 0.5)) - mean_loss(few, all_, (0.0, 0.5)))
    delta = max(nearest(points[i], points[[c for c in some if labels[c] == labels[i]]]) for i in range(24))
    balls = 0
    for label in range(3):
        mine = points[labels == label]
        centres = [int(np.linalg.norm(mine - mine.mean(0), axis=1).argmin())]
        while max(away := [nearest(point, mine[centres]) for point in mine]) > delta / 2:
            centres.append(int(np.argmax(away)))
        balls += len(centres)
    largest = max(2 * np.linalg.norm(points, axis=1).max(), 0.5)
    assert found.gap == pytest.approx(gap)
    assert found.cover == found.radius == pytest.approx(delta)
    assert found.error == 0
    assert found.sampling == pytest.approx(largest * math.sqrt((2 * balls * math.log(2) + 2 * math.log(10)) / 5))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.01, 1.0), count=st.integers(1, 8))
def test_gaps_are_within_their_bounds(seed: int, spread: float, count: int) -> None:
    points, labels = blobs(seed, spread=spread)
    chosen = np.concatenate([np.arange(8 * c, 8 * c + count) for c in range(3)])
    for bound in (cover_bound(points, labels, chosen), sample_bound(points[chosen], labels[chosen], points, labels)):
        assert bound.gap <= bound.total


def test_the_bound_grows_with_the_radius_and_a_full_cover_leaves_no_gap() -> None:
    points, labels = blobs(2, size=20)
    bounds = [
        cover_bound(points, labels, np.concatenate([20 * c + np.arange(k) for c in range(3)])) for k in (1, 5, 20)
    ]
    assert bounds[0].radius > bounds[1].radius > bounds[2].radius == 0
    assert bounds[0].cover > bounds[1].cover > bounds[2].cover
    assert bounds[2].gap == pytest.approx(0, abs=1e-12)
    assert sample_bound(points, labels, points, labels).radius == 0


def test_classes_of_one_item_have_no_other_to_be_near_to() -> None:
    assert cover_bound([[0.0], [1.0]], [0, 1], [0, 1]).cover == 0


def test_bad_input() -> None:
    points, labels = blobs(0)
    with pytest.raises(InputError, match=r"Every class needs a chosen item; 2 classes have none \(first: \[1, 2\]\)"):
        cover_bound(points, labels, [0])
    with pytest.raises(InputError, match=r"no item of 1 class of the population \(first: \[2\]\)"):
        sample_bound(points[:16], labels[:16], points, labels)
    with pytest.raises(InputError, match="failure between 0 and 1"):
        cover_bound(points, labels, [0, 8, 16], failure=0.0)
