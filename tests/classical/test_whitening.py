"""Mahalanobis' distance: an invariance, not a score."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import mahalanobis

from vicinal.classical import Mahalanobis


def test_whitened_features_are_uncorrelated_and_of_variance_one(wine: Any) -> None:
    whitened = Mahalanobis().fit_transform(wine[0])
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(13), atol=1e-10)


def test_distances_do_not_change_under_affine_maps(wine: Any) -> None:
    points = wine[0]
    random = np.random.RandomState(0)
    moved = points @ random.randn(13, 13) + random.randn(13)
    before = Mahalanobis().fit(points).pair_distance(points[:50], points[50:100])
    after = Mahalanobis().fit(moved).pair_distance(moved[:50], moved[50:100])
    np.testing.assert_allclose(after, before, rtol=1e-8)


def test_equals_scipy(wine: Any) -> None:
    points = wine[0]
    inverse = np.linalg.inv(np.cov(points.T))
    learner = Mahalanobis().fit(points)
    expected = [mahalanobis(a, b, inverse) for a, b in zip(points[:20], points[20:40], strict=True)]
    np.testing.assert_allclose(learner.pair_distance(points[:20], points[20:40]), expected, rtol=1e-10)


def test_shrunk_wholly_it_is_the_euclidean_distance_up_to_scale(wine: Any) -> None:
    points = wine[0]
    found = Mahalanobis(shrinkage=1.0).fit(points).pair_distance(points[:20], points[20:40])
    ratio = found / np.linalg.norm(points[:20] - points[20:40], axis=1)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)
