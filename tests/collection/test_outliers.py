"""Outliers: planted ones are found, by the numbers of a double loop."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.collection import find_outliers
from vicinal.collection.outliers import LENT, SPREAD, remoteness
from vicinal.errors import InputError


def test_scores_by_hand() -> None:
    # Class 0 has the median 2 and the deviation 1, class 1 has 10 and 0; all have 3 and 2.
    farness, codes = np.array([1.0, 2.0, 3.0, 10.0, 10.0]), np.array([0, 0, 0, 1, 1])
    scores, usual = remoteness(farness, codes)
    first = ((3 * 2 + LENT * 3) / (3 + LENT), (3 * 1 + LENT * 2) / (3 + LENT))
    second = ((2 * 10 + LENT * 3) / (2 + LENT), (2 * 0 + LENT * 2) / (2 + LENT))
    np.testing.assert_allclose(usual, [first[0], second[0]])
    np.testing.assert_allclose(scores[:3], (farness[:3] - first[0]) / (SPREAD * first[1]))
    np.testing.assert_allclose(scores[3:], (farness[3:] - second[0]) / (SPREAD * second[1]))


def test_distances_by_a_double_loop() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 2))
    for outlier in find_outliers(rows, k=3, distance="euclidean", least=-10.0):
        away = sorted(
            (float(np.linalg.norm(rows[outlier.index] - row)), place)
            for place, row in enumerate(rows)
            if place != outlier.index
        )
        assert outlier.nearest == tuple(place for _, place in away[:3])
        assert outlier.distance == pytest.approx(away[2][0])


def test_distances_to_classes_by_loops() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(120, 2)), rng.permutation([0, 1, 2] * 38 + [3] * 4 + [4, 5])
    found = find_outliers(rows, labels, k=4, distance="euclidean", least=-np.inf)
    assert len(found) == 120
    for outlier in found:
        by_class = []
        for label in range(6):
            others = [place for place in range(120) if labels[place] == label and place != outlier.index]
            if others:
                away = sorted(float(np.linalg.norm(rows[outlier.index] - rows[place])) for place in others)
                by_class.append(away[min(4, len(away)) - 1])
        assert outlier.distance == pytest.approx(min(by_class))


def test_strangers_that_are_near_each_other_alone() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 15)
    rows = 4 * rng.normal(size=(20, 16))[labels] + rng.normal(size=(300, 16))
    rows[::15] = 20.0 + 0.01 * rng.normal(size=(20, 16))  # one of each class, and all the same
    found = find_outliers(rows, labels, distance="euclidean")
    assert sorted(outlier.index for outlier in found[:20]) == list(range(0, 300, 15))


@pytest.mark.parametrize("labelled", [True, False])
def test_what_is_near_nothing_comes_first(labelled: bool) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 30)
    rows = np.eye(4)[labels] + 0.05 * rng.normal(size=(60, 4))
    rows[17] = [0, 0, 1, 0]
    found = find_outliers(rows, labels if labelled else None)
    assert found[0].index == 17
    assert found[0].label == (0 if labelled else None)
    assert found[0].as_dict()["index"] == 17


def test_a_wrong_label_is_no_outlier() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 30)
    rows = np.eye(4)[labels] + 0.05 * rng.normal(size=(60, 4))
    labels[3] = 1
    assert 3 not in [outlier.index for outlier in find_outliers(rows, labels)]


def test_copies_of_one_item() -> None:
    assert find_outliers(np.ones((10, 3))) == []


def test_too_few_items() -> None:
    with pytest.raises(InputError, match="from 1 to 3"):
        find_outliers(np.eye(4), k=4)
    assert find_outliers(np.eye(3), least=-np.inf)[0].nearest == (1, 2)  # fewer than 5 where there are fewer
    with pytest.raises(InputError, match="at least 2 items; got 1"):
        find_outliers(np.eye(1))
