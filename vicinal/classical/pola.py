"""POLA, an online learner that takes one pair at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from vicinal.classical.learner import Array, MetricLearner
from vicinal.classical.relations import Relations, from_labels, from_pairs
from vicinal.classical.solvers import Solution, factor
from vicinal.errors import InputError

__all__ = ["POLA"]


class POLA(MetricLearner):
    """Learn a metric and a threshold from a stream of pairs, by projection onto the metrics that get each pair right.

    For a pair with difference v, marked s = +1 (same) or -1 (different), A and the threshold b take the smallest step
    that makes s (b - v^T A v) at least 1, and then the nearest values with A positive semi-definite and b >= 1.

    Args:
        pairs: Number of pairs to draw from classes in `fit`, half of them same, half different.
        passes: Number of passes of `fit` over the pairs.
        random_state: Random state of the draw.

    Attributes:
        matrix_: Matrix A.
        bound_: Threshold b; pairs with a smaller squared distance count as the same.
        losses_: Loss of each pair of the last call before its step.

    Reference:
        Shalev-Shwartz, Singer, Ng, "Online and batch learning of pseudo-metrics", ICML 2004.

    Example:
        >>> learner = POLA()
        >>> for _ in range(3):
        ...     _ = learner.partial_fit_pairs(np.eye(3), [[0, 1], [0, 2]], [True, False])
        >>> learner.pair_distance(np.eye(3)[:1], np.eye(3)[1:2]) < learner.pair_distance(np.eye(3)[:1], np.eye(3)[2:])
        array([ True])
    """

    def __init__(self, *, pairs: int = 1200, passes: int = 2, random_state: Any = 0) -> None:
        self.pairs = pairs
        self.passes = passes
        self.random_state = random_state

    def partial_fit(self, X: Any, y: Any) -> MetricLearner:  # noqa: N803
        """Take a step for each of as many random pairs as there are points, drawn from their classes."""
        X, y = self._next_batch(X, y)  # noqa: N806
        relations = from_labels(np.unique(y, return_inverse=True)[1])
        return self._step(X, *_drawn(relations, len(X), check_random_state(self.random_state)))

    def partial_fit_pairs(self, X: Any, pairs: Any, same: Any) -> MetricLearner:  # noqa: N803
        """Take a step for each of the pairs of indices, in their order."""
        X = self._next_batch(X)  # noqa: N806
        from_pairs(len(X), pairs, same)
        return self._step(X, np.asarray(pairs), np.asarray(same) > 0)

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        if self.pairs < 2 or self.passes < 1:
            raise InputError(f"pairs must be at least 2 and passes at least 1; got {self.pairs} and {self.passes}.")
        self._begin(points.shape[1])
        pairs, same = _drawn(relations, self.pairs, check_random_state(self.random_state))
        for _ in range(self.passes):
            self._step(points.numpy(), pairs, same)
        return Solution(torch.from_numpy(self.components_), float(self.losses_.mean()), self.passes, True)

    def _next_batch(self, *arrays: Any) -> Any:
        first = not hasattr(self, "matrix_")
        batch = validate_data(self, *arrays, dtype=np.float64, reset=first)
        if first:
            self._begin(self.n_features_in_)
        return batch

    def _begin(self, features: int) -> None:
        self.matrix_, self.bound_ = np.zeros((features, features)), 1.0

    def _step(self, X: Array, pairs: Array, same: Array) -> MetricLearner:  # noqa: N803
        matrix, bound = self.matrix_.copy(), self.bound_
        losses = np.zeros(len(pairs))
        for t, (difference, together) in enumerate(zip(X[pairs[:, 0]] - X[pairs[:, 1]], same, strict=True)):
            sign = 1.0 if together else -1.0
            losses[t] = max(0.0, sign * (difference @ matrix @ difference - bound) + 1.0)
            if losses[t] == 0.0:
                continue
            pace = losses[t] / ((difference @ difference) ** 2 + 1.0)
            matrix -= sign * pace * np.outer(difference, difference)
            bound = max(1.0, bound + sign * pace)
            if together:  # only then can an eigenvalue become negative, and only one
                values, vectors = np.linalg.eigh(matrix)
                if values[0] < 0:
                    matrix -= values[0] * np.outer(vectors[:, 0], vectors[:, 0])
        self.matrix_, self.bound_, self.losses_ = (matrix + matrix.T) / 2.0, bound, losses
        self.components_ = factor(torch.from_numpy(self.matrix_)).numpy()
        self.threshold_ = float(np.sqrt(bound))
        return self


def _drawn(relations: Relations, count: int, random: Any) -> tuple[Array, Array]:
    """Draw pairs with replacement, half of them positive, in random order."""
    halves = []
    for mask, size in ((relations.positive, count - count // 2), (relations.negative, count // 2)):
        candidates = mask.nonzero().numpy()
        if not len(candidates):
            raise InputError("POLA needs pairs of both kinds; pass some that belong together and some that do not.")
        halves.append(candidates[random.randint(len(candidates), size=size)])
    pairs, same = np.concatenate(halves), np.repeat([True, False], [len(half) for half in halves])
    order = random.permutation(len(pairs))
    return pairs[order], same[order]
