"""The online learner."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.classical import POLA
from vicinal.errors import InputError


def test_one_step_by_hand() -> None:
    # v = (1, 0), different: the loss is 1 + 1 - 0 = 2, the pace 2 / (1 + 1) = 1
    learner = POLA().partial_fit_pairs(np.array([[1.0, 0.0], [0.0, 0.0]]), [[0, 1]], [False])
    np.testing.assert_allclose(learner.matrix_, [[1.0, 0.0], [0.0, 0.0]])
    assert learner.bound_ == 1.0
    assert learner.losses_.tolist() == [2.0]
    # the same pair, now said to be the same: 1 - 1 + 1 = 1, pace 1/2, and the threshold rises as the distance falls
    learner.partial_fit_pairs(np.array([[1.0, 0.0], [0.0, 0.0]]), [[0, 1]], [True])
    np.testing.assert_allclose(learner.matrix_, [[0.5, 0.0], [0.0, 0.0]])
    assert learner.bound_ == 1.5
    assert learner.threshold_ == pytest.approx(1.5**0.5)


def test_a_stream_that_can_be_separated_is() -> None:
    """Whether a pair is the same depends on the first axis alone, with a gap."""
    random = np.random.RandomState(0)
    first = random.randn(4000, 5)
    second = random.randn(4000, 5)
    apart = np.abs(first[:, 0] - second[:, 0])
    clear = (apart < 0.2) | (apart > 1.5)
    first, second, same = first[clear], second[clear], apart[clear] < 0.2
    points = np.concatenate([first, second])
    pairs = np.column_stack([np.arange(len(first)), np.arange(len(first)) + len(first)])
    learner, losses = POLA(), []
    for _ in range(3):
        learner.partial_fit_pairs(points, pairs, same)
        losses.append(learner.losses_.mean())
        assert np.linalg.eigvalsh(learner.matrix_).min() > -1e-9
    assert losses[0] > losses[2]
    assert losses[2] < 1e-3
    assert learner.matrix_[0, 0] / np.trace(learner.matrix_) > 0.95
    assert (learner.predict_pairs(first, second) == same).mean() > 0.999


def test_the_same_seed_draws_the_same_pairs() -> None:
    points, labels = np.random.RandomState(0).randn(20, 3), np.arange(20) % 2
    np.testing.assert_array_equal(
        POLA(random_state=3).fit(points, labels).components_, POLA(random_state=3).fit(points, labels).components_
    )


def test_bad_input() -> None:
    with pytest.raises(InputError, match="pairs must be at least 2 and passes at least 1; got 1 and 2"):
        POLA(pairs=1).fit(np.eye(4), [0, 0, 1, 1])
    with pytest.raises(InputError, match="pairs of both kinds"):
        POLA().fit_pairs(np.eye(4), [[0, 1]], [True])
