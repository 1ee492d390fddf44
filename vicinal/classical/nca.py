"""Neighbourhood components analysis with all pairs at once."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from vicinal.classical.learner import MetricLearner, first_map
from vicinal.classical.relations import Relations
from vicinal.classical.solvers import ENTRIES, ROWS, Cost, Solution, learn_map
from vicinal.objectives.stable import FAR

__all__ = ["NCA", "over_neighbours"]

WHOLE = 2**20  # entries of a matrix of weights that is kept whole, so that two products become one


class NCA(MetricLearner):
    """Learn the map under which a random neighbour, drawn the more often the nearer it is, has the own class.

    Args:
        n_components: Dimensions of the learned space; None for as many as features.
        init: The first map: "auto", "identity", "pca", "lda" or an array. The cost has local minima.
        max_iter: Largest number of L-BFGS iterations.
        tol: When to stop.

    Reference:
        Goldberger, Roweis, Hinton, Salakhutdinov, "Neighbourhood components analysis", NIPS 2005. The cost is
        `vicinal.objectives.nca`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> NCA(n_components=2).fit_transform(*load_iris(return_X_y=True)).shape
        (150, 2)
    """

    def __init__(
        self, n_components: int | None = None, *, init: Any = "auto", max_iter: int = 50, tol: float = 1e-5
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        first = first_map(points, relations, self.n_components, self.init)
        cost = over_neighbours(relations.positive, relations.negative)
        return learn_map(points, cost, first, max_iter=self.max_iter, tol=self.tol)


def over_neighbours(positive: Bool[Tensor, "n n"], negative: Bool[Tensor, "n n"]) -> Cost:
    """Return the objective `nca` of all pairs of points as a cost, exactly as `over_masks` does, in half the passes.

    A soft-max does not change by what all entries of a row have in common, so that of |x_i|^2 + |x_j|^2 - 2 x_i x_j the
    first is left out. With p_i the chance of the own class, the pair weights are p_ij (positive_ij - p_i) / anchors;
    they sum to zero in every row.

    Args:
        positive: Pairs that belong together.
        negative: Pairs that do not.
    """
    n, usable = len(positive), positive.any(1) & negative.any(1)
    anchors, neither = max(1, int(usable.sum())), ~(positive | negative)
    rows = max(1, min(ROWS, ENTRIES // n))
    # Made once: fresh memory costs more than what is computed in it.
    whole, both = torch.empty(2, n, n, dtype=torch.float64) if n * n <= WHOLE else (None, None)

    def cost(at: Tensor, on: Tensor) -> tuple[float, Tensor]:
        value, forces, squares = 0.0, torch.zeros_like(on), at.square().sum(1)
        for first in range(0, n, rows):
            here = slice(first, first + rows)
            logits = torch.addmm(
                squares, at[here], at.T, beta=-1.0, alpha=2.0, out=None if whole is None else whole[here]
            )
            chances = logits.masked_fill_(neither[here], -FAR).softmax(1)
            weights = logits.copy_(positive[here]).mul_(1.0 / anchors)  # in the memory of what is used up
            right = torch.linalg.vecdot(chances, weights)
            value += float((1.0 / anchors - right)[usable[here]].sum())
            weights.sub_(right.unsqueeze(1)).mul_(chances)
            if not usable[here].all():
                weights.mul_(usable[here].unsqueeze(1))
            if whole is None:
                forces[here] -= weights @ on
                forces += weights.sum(0).unsqueeze(1) * on - weights.T @ on[here]
        if whole is not None:
            forces = whole.sum(0).unsqueeze(1) * on - torch.add(whole, whole.T, out=both) @ on
        return value, 2.0 * forces

    return cost
