"""Neighbourhood components analysis (NCA) over all pairs."""

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

WHOLE = 2**20  # largest number of entries of a weight matrix that is stored whole, which turns two products into one


class NCA(MetricLearner):
    """Learn the map that maximises the probability that a random neighbour, drawn by distance, has the same class.

    Args:
        n_components: Dimension of the learned space; None for the number of features.
        init: Initial map: "auto", "identity", "pca", "lda" or an array. The cost has local minima.
        max_iter: Largest number of L-BFGS iterations.
        tol: Tolerance of the stopping criterion.

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

    A soft-max does not depend on a term that all entries of a row share, so the first term of
    |x_i|^2 + |x_j|^2 - 2 x_i x_j is left out. With p_i the probability of the same class, the pair weights are
    p_ij (positive_ij - p_i) / anchors; they sum to zero in every row.

    Args:
        positive: Pairs that belong together.
        negative: Pairs that do not.
    """
    n, usable = len(positive), positive.any(1) & negative.any(1)
    anchors, neither = max(1, int(usable.sum())), ~(positive | negative)
    rows = max(1, min(ROWS, ENTRIES // n))
    # Allocated once: new memory costs more than the computation in it.
    whole, both = torch.empty(2, n, n, dtype=torch.float64) if n * n <= WHOLE else (None, None)

    def cost(at: Tensor, on: Tensor) -> tuple[float, Tensor]:
        value, forces, squares = 0.0, torch.zeros_like(on), at.square().sum(1)
        for first in range(0, n, rows):
            here = slice(first, first + rows)
            logits = torch.addmm(
                squares, at[here], at.T, beta=-1.0, alpha=2.0, out=None if whole is None else whole[here]
            )
            chances = logits.masked_fill_(neither[here], -FAR).softmax(1)
            weights = logits.copy_(positive[here]).mul_(1.0 / anchors)  # reuses the memory of the logits
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
