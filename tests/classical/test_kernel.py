"""Kernels, and the exclusive or that no linear metric learns."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from vicinal.classical import (
    MCML,
    NCA,
    Kernelised,
    KernelNeighbours,
    RelativeHinge,
    SchultzJoachims,
    gaussian,
    polynomial,
)
from vicinal.classical.kernel import coordinates
from vicinal.errors import InputError
from vicinal.evaluation import evaluate

CORNERS = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
CLASSES = np.array([0, 0, 1, 1])
TRIPLETS = [(i, j, k) for i, j, k in product(range(4), repeat=3) if i != j and CLASSES[i] == CLASSES[j] != CLASSES[k]]


def held(points: np.ndarray) -> int:
    """How many of the triplets hold."""
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    return sum(distance[i, j] < distance[i, k] - 1e-9 for i, j, k in TRIPLETS)


def noisy(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(seed)
    which = np.arange(100) % 4
    return CORNERS[which] + 0.25 * random.randn(100, 2), CLASSES[which]


def r_precision(points: np.ndarray, labels: np.ndarray) -> float:
    return evaluate(np.ascontiguousarray(points), labels, distance="euclidean", intervals=None)["P@R"]


@pytest.mark.parametrize("kernel", [polynomial(2), polynomial(3, 0.5), gaussian(0.7)])
def test_coordinates_reproduce_the_kernel(kernel: Any, iris: Any) -> None:
    points = iris[0]
    gram = kernel(points, points)
    mapped = gram @ coordinates(gram)
    np.testing.assert_allclose(mapped @ mapped.T, gram, atol=1e-8 * np.abs(gram).max())


def test_neighbours_of_a_gaussian_or_linear_kernel_are_the_euclidean_ones() -> None:
    random = np.random.RandomState(0)
    points, queries = random.randn(60, 4), random.randn(20, 4)
    expected = np.argsort(np.linalg.norm(queries[:, None] - points[None], axis=2), axis=1)
    for options in ({"kernel": "gaussian", "width": 1.5}, {"kernel": "polynomial", "degree": 1}):
        found = KernelNeighbours(60, **options).fit(points, np.arange(60) % 3).kneighbours(queries)[1]
        np.testing.assert_array_equal(found, expected)


def test_kernel_distances_by_their_definition() -> None:
    random = np.random.RandomState(0)
    points, queries = random.randn(8, 2), random.randn(3, 2)
    far, nearest = KernelNeighbours(8, kernel="polynomial").fit(points, np.arange(8) % 2).kneighbours(queries)

    def features(x: np.ndarray) -> np.ndarray:  # of (x . y + 1)^2
        root = 2**0.5
        return np.column_stack([x**2, root * x[:, 0] * x[:, 1], root * x, np.ones(len(x))])

    expected = np.linalg.norm(features(queries)[:, None] - features(points)[None], axis=2)
    np.testing.assert_allclose(far, np.take_along_axis(expected, nearest, 1), rtol=1e-9)


def test_no_linear_map_holds_more_than_four_of_the_eight_triplets() -> None:
    assert len(TRIPLETS) == 8
    random = np.random.RandomState(0)
    assert max(held(CORNERS @ random.randn(2, 2)) for _ in range(5000)) == 4
    for learner in (NCA(), MCML(), RelativeHinge()):
        assert held(learner.fit_transform(CORNERS, CLASSES)) <= 4


@pytest.mark.parametrize("kernel", ["polynomial", "gaussian"])
@pytest.mark.parametrize("learner", [NCA(), MCML(), RelativeHinge()], ids=lambda learner: type(learner).__name__)
def test_a_kernel_holds_all_eight(learner: Any, kernel: Any) -> None:
    untrained = (polynomial(2) if kernel == "polynomial" else gaussian(2.0))(CORNERS, CORNERS)
    assert held(untrained @ coordinates(untrained)) == 0
    fitted = Kernelised(learner, kernel=kernel).fit(CORNERS, CLASSES)
    assert held(fitted.transform(CORNERS)) == 8


def test_kernel_form_of_schultz_and_joachims_weighs_training_points() -> None:
    points, labels = noisy(0)
    fitted = Kernelised(SchultzJoachims("points"), kernel="polynomial").fit(points, labels)
    gram = polynomial(2)(points, points)
    mapped = gram @ coordinates(gram)
    mapped -= mapped.mean(0)
    weights, components = fitted.learner_.weights_, fitted.learner_.components_
    assert len(weights) == 100
    assert weights.min() >= 0
    expected = mapped.T @ (weights[:, None] * mapped)
    np.testing.assert_allclose(components.T @ components, expected, atol=1e-8 * np.abs(expected).max())


def test_the_product_of_the_two_features_is_what_the_polynomial_adds() -> None:
    fitted = Kernelised(MCML(), kernel="polynomial").fit(*noisy(0))
    points = np.random.RandomState(1).randn(50, 2)
    sign = points[:, 0] * points[:, 1] > 0
    apart = fitted.pair_distance(points[sign][:10], points[~sign][:10])
    near = fitted.pair_distance(points[sign][:10], points[sign][10:20])
    assert np.median(apart) > np.median(near)


@pytest.mark.parametrize("seed", range(2))
def test_noisy_exclusive_or(seed: int) -> None:
    train, (points, labels) = noisy(2 * seed), noisy(2 * seed + 1)
    random = np.random.RandomState(seed)
    assert max(r_precision(points @ random.randn(2, 2), labels) for _ in range(40)) <= 0.85
    assert r_precision(NCA().fit(*train).transform(points), labels) <= 0.85
    for options in ({"kernel": "polynomial"}, {"kernel": "gaussian", "width": 1.0}):
        assert r_precision(Kernelised(MCML(), **options).fit(*train).transform(points), labels) >= 0.95


def test_a_new_point_is_mapped_as_if_it_had_been_there() -> None:
    points, labels = noisy(0)
    fitted = Kernelised(MCML(max_iter=20), kernel="polynomial").fit(points, labels)
    again = fitted.learner_.transform(fitted.kernel_(points, points) @ coordinates(fitted.kernel_(points, points)))
    np.testing.assert_allclose(fitted.transform(points), again, atol=1e-6 * np.abs(again).max())


def test_bad_kernels() -> None:
    for options, message in (
        ({"kernel": "gausian"}, "Unknown kernel 'gausian'; did you mean 'gaussian'"),
        ({"kernel": "polynomial", "degree": 0}, "degree >= 1"),
        ({"width": -1.0}, "width above 0; got -1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            KernelNeighbours(1, **options).fit(CORNERS, CLASSES)
    with pytest.raises(InputError, match="n_neighbors must be at least 1; got 0"):
        KernelNeighbours(0).fit(CORNERS, CLASSES)
