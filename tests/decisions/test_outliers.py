"""Outliers: planted ones are found, by the numbers of a double loop."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.decisions import find_outliers
from vicinal.decisions.outliers import LENT, SPREAD, remoteness
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
            (float(np.linalg.norm(rows[outlier.place] - row)), place)
            for place, row in enumerate(rows)
            if place != outlier.place
        )
        assert outlier.nearest == tuple(place for _, place in away[:3])
        assert outlier.distance == pytest.approx(away[2][0])


@pytest.mark.parametrize("labelled", [True, False])
def test_what_is_near_nothing_comes_first(labelled: bool) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 30)
    rows = np.eye(4)[labels] + 0.05 * rng.normal(size=(60, 4))
    rows[17] = [0, 0, 1, 0]
    found = find_outliers(rows, labels if labelled else None)
    assert found[0].place == 17
    assert found[0].label == (0 if labelled else None)
    assert found[0].as_dict()["place"] == 17


def test_a_wrong_label_is_no_outlier() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 30)
    rows = np.eye(4)[labels] + 0.05 * rng.normal(size=(60, 4))
    labels[3] = 1
    assert 3 not in [outlier.place for outlier in find_outliers(rows, labels)]


def test_copies_of_one_item() -> None:
    assert find_outliers(np.ones((10, 3))) == []


def test_too_few_items() -> None:
    with pytest.raises(InputError, match="from 1 to 3"):
        find_outliers(np.eye(4), k=4)
