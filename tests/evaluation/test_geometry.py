"""The shape of the space, by hand and by double loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from vicinal.evaluation import (
    alignment,
    class_distances,
    collapse_warning,
    covering_radius,
    effective_rank,
    geometry_scores,
    hubness,
    spectral_decay,
    uniformity,
)
from vicinal.neighbours import find_neighbours

pytestmark = pytest.mark.unit
DISTANCES = ("cosine", "euclidean")


def cloud(n: int = 40, d: int = 6, classes: int = 5):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, n)
    return rng.standard_normal((n, d)) + rng.standard_normal((classes, d))[labels], labels


def unit(points, distance):
    return points / np.linalg.norm(points, axis=1, keepdims=True) if distance == "cosine" else points


def loop_radius(points, labels):
    """Greedy k-Center for each class, one distance at a time."""
    means = []
    for label in sorted(set(labels.tolist())):
        mine = [point for point, other in zip(points, labels, strict=True) if other == label]
        middle = np.mean(mine, axis=0)
        centres = [min(range(len(mine)), key=lambda i: math.dist(mine[i], middle))]
        radii = []
        for _ in mine:
            reach = [min(math.dist(point, mine[centre]) for centre in centres) for point in mine]
            radii.append(max(reach))
            centres.append(int(np.argmax(reach)))
        means.append(sum(radii) / len(radii))
    return sum(means) / len(means)


@pytest.mark.parametrize("distance", DISTANCES)
def test_covering_radius_equals_the_loop(distance):
    points, labels = cloud()
    assert covering_radius(points, labels, distance=distance) == pytest.approx(
        loop_radius(unit(points, distance), labels)
    )


def test_covering_radius_by_hand():
    # Starting from 1, the point nearest to the mean 5/3: radii 3, 1, 0.
    assert covering_radius([[0.0], [1.0], [4.0]], [0, 0, 0], distance="euclidean") == pytest.approx(4 / 3)
    assert covering_radius([[0.0], [9.0]], [0, 1], distance="euclidean") == 0


def test_covering_radius_does_not_depend_on_the_order():
    points, labels = cloud()
    order = np.random.default_rng(1).permutation(len(points))
    assert covering_radius(points[order], labels[order]) == pytest.approx(covering_radius(points, labels), abs=1e-12)


@pytest.mark.parametrize("distance", DISTANCES)
def test_class_distances_and_alignment_equal_the_loop(distance):
    points, labels = cloud()
    shown = unit(points, distance)
    groups = [shown[labels == label] for label in range(5)]
    centres = [group.mean(axis=0) for group in groups]
    inter = np.mean([math.dist(a, b) for i, a in enumerate(centres) for b in centres[:i]])
    pairs = [[math.dist(a, b) for i, a in enumerate(group) for b in group[:i]] for group in groups]
    intra = np.mean([np.mean(distances) for distances in pairs])
    assert class_distances(points, labels, distance=distance) == pytest.approx((inter, intra))
    squares = [distance**2 for distances in pairs for distance in distances]
    assert alignment(points, labels, distance=distance) == pytest.approx(np.mean(squares))


@pytest.mark.parametrize("distance", DISTANCES)
def test_uniformity_equals_the_loop(distance):
    points, _ = cloud(n=600)
    shown = unit(points, distance)
    squares = [((a - b) ** 2).sum() for i, a in enumerate(shown) for b in shown[:i]]
    assert uniformity(points, distance=distance) == pytest.approx(
        math.log(np.mean(np.exp(-2 * np.array(squares)))), abs=1e-5
    )


def test_uniformity_of_points_too_far_apart_for_float32():
    assert uniformity([[0.0], [100.0]], distance="euclidean") == pytest.approx(-20000)


def test_spectral_decay_and_effective_rank():
    points, _ = cloud(n=300)
    values = np.linalg.svd(unit(points, "cosine"), compute_uv=False)
    shares = values / values.sum()
    assert spectral_decay(points) == pytest.approx(stats.entropy(np.full(6, 1 / 6), shares), abs=1e-9)
    assert effective_rank(points) == pytest.approx(math.exp(stats.entropy(shares)))
    line = np.outer(np.arange(1.0, 9), np.ones(3))
    assert spectral_decay(line) > 4
    assert effective_rank(line) == pytest.approx(1, abs=1e-6)


def test_hubness_is_the_skewness_of_occurrences():
    points, _ = cloud(n=80)
    found = find_neighbours(points, 5).indices
    times = np.bincount(found.flatten().numpy(), minlength=80)
    assert hubness(points, k=5) == pytest.approx(stats.skew(times))
    assert hubness(points, k=5, indices=found) == hubness(points, k=5)
    star = np.concatenate([np.zeros((1, 12)), np.eye(12)])
    assert hubness(star, k=1, distance="euclidean") > 3


def test_collapse_is_told():
    points, _ = cloud(n=200, d=20)
    assert collapse_warning(points) is None
    assert "collapsed: they spread over 0 %" in str(collapse_warning(np.ones((5, 3))))
    assert "around one point" in str(collapse_warning(points * 1e-3 + 5))
    line = np.outer(np.linspace(-1, 1, 200), np.ones(20))
    assert "1.0 of 20 directions" in str(collapse_warning(line, distance="euclidean"))
    assert "collapsed" in str(collapse_warning(np.zeros((5, 3)), distance="euclidean"))
    assert collapse_warning(np.ones((1, 3))) is None


def test_one_class_one_item_and_one_item_each():
    alone = geometry_scores(np.eye(3), [0, 1, 2])
    assert alone["inter-class distance"] == pytest.approx(2**0.5)
    assert math.isnan(alone["intra-class distance"])
    assert math.isnan(alone["alignment"])
    assert alone["covering radius"] == 0
    together = geometry_scores(np.eye(3), [0, 0, 0])
    assert math.isnan(together["inter-class distance"])
    assert math.isnan(together["density"])
    single = geometry_scores([[1.0, 0.0]], [0])
    assert math.isnan(single["uniformity"])
    assert single["hubness"] == 0


def test_scaling_leaves_cosine_geometry_alone():
    points, labels = cloud()
    scaled = points * np.random.default_rng(0).uniform(0.5, 2, (len(points), 1))
    first, second = geometry_scores(points, labels), geometry_scores(scaled, labels)
    assert first == pytest.approx(second, abs=1e-6)
    assert isinstance(first["hubness"], float)
    assert torch.is_tensor(torch.tensor(list(first.values())))
