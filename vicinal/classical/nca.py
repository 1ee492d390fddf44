"""Neighbourhood components analysis with all pairs at once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vicinal.classical.learner import MetricLearner
from vicinal.classical.relations import Relations
from vicinal.classical.solvers import Solution, learn_map, over_masks
from vicinal.classical.start import first_map
from vicinal.objectives.nca import nca

__all__ = ["NCA"]


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
        cost = over_masks(nca, relations.positive, relations.negative, by_anchor=True)
        return learn_map(points, cost, first, max_iter=self.max_iter, tol=self.tol)
