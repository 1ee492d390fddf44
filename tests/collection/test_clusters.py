"""Clusters: what HDBSCAN finds with all distances is found on the neighbour graph."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import HDBSCAN
from sklearn.metrics import adjusted_rand_score

from vicinal.collection import propose_clusters
from vicinal.errors import InputError


def clouds(classes: int = 6, each: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    rows = rng.normal(size=(classes, 8))[labels] + 0.1 * rng.normal(size=(classes * each, 8))
    return rows, labels


@pytest.mark.parametrize("k", [5, 20, 119])
def test_agrees_with_all_distances(k: int) -> None:
    rows, labels = clouds()
    found = propose_clusters(rows, least=5, k=k, distance="euclidean")
    peer = HDBSCAN(min_cluster_size=5, copy=True).fit(rows)
    assert adjusted_rand_score(found.codes, labels) == 1
    assert adjusted_rand_score(peer.labels_, found.codes) == 1
    assert len(found) == 6


def test_the_largest_comes_first_with_its_centre() -> None:
    rows, labels = clouds(2)
    order = np.r_[0:10, 20:40]  # ten of the first class, twenty of the second
    found = propose_clusters(rows[order])
    assert found.codes.tolist() == [1] * 10 + [0] * 20
    unit = rows[order] / np.linalg.norm(rows[order], axis=1, keepdims=True)
    middle = unit[10:].mean(axis=0)
    assert found.centres[0] == 10 + np.linalg.norm(unit[10:] - middle, axis=1).argmin()
    assert found.members(1) == list(range(10))
    assert labels[order][found.centres[1]] == 0


def test_duplicates_do_not_break_the_graph() -> None:
    rows = np.repeat(np.eye(4), 6, axis=0)
    assert adjusted_rand_score(propose_clusters(rows, k=5).codes, np.repeat(np.arange(4), 6)) == 1


def test_items_of_no_cluster() -> None:
    rows, _ = clouds(3)
    alone = np.vstack([rows, 30 * np.eye(8)[:2]])
    assert (propose_clusters(alone, distance="euclidean").codes[-2:] == -1).all()


def test_a_cluster_of_more_items_than_there_are() -> None:
    with pytest.raises(InputError, match="2 to 4 items"):
        propose_clusters(np.eye(4))
