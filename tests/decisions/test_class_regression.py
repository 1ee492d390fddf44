"""Regressions that leave an item out: what is left out has no say, and small classes are no trouble."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from vicinal.decisions.class_regression import left_out_likelihoods


def test_an_item_has_no_say_in_its_own_likelihood() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(3), 10)
    rows = rng.normal(size=(3, 4))[codes] + rng.normal(size=(30, 4))
    rows -= rows.mean(axis=0)
    weights = rng.uniform(0.2, 1.0, 30)
    likely = left_out_likelihoods(rows, codes, weights)
    assert likely.sum(axis=1) == pytest.approx(1.0)
    others = np.arange(30) % 5 != 7 % 5  # the eighth item is in the third fifth, with every fifth from there on
    scaled = (rows / np.sqrt(np.square(rows).sum(axis=1).mean())).astype(np.float32)
    by_hand = LogisticRegression(C=10.0, max_iter=200).fit(scaled[others], codes[others], sample_weight=weights[others])
    assert likely[7] == pytest.approx(by_hand.predict_proba(scaled[7:8])[0], abs=1e-6)


def test_a_class_of_one_item_is_not_known_without_it() -> None:
    rng = np.random.default_rng(0)
    codes = np.array([0] * 6 + [1] * 6 + [2])
    likely = left_out_likelihoods(rng.normal(size=(13, 3)), codes, np.ones(13))
    assert likely[12, 2] == 0.0
    assert likely[12].sum() == pytest.approx(1.0)


def test_where_one_class_is_left() -> None:
    likely = left_out_likelihoods(np.arange(6.0)[:, None] - 2.5, np.array([0, 0, 0, 0, 0, 1]), np.ones(6))
    assert likely.sum(axis=1) == pytest.approx(1.0)
    assert likely[5].tolist() == [1.0, 0.0]
