"""Large-margin nearest neighbours with all impostors at once."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from vicinal.classical.impostors import over_impostors
from vicinal.classical.learner import MetricLearner
from vicinal.classical.relations import Relations, nearest_positives
from vicinal.classical.solvers import Solution, solve
from vicinal.classical.start import first_map

__all__ = ["LMNN"]


class LMNN(MetricLearner):
    """Learn the metric that pulls each point to its target neighbours and keeps other classes a margin away.

    The target neighbours of a point are its nearest ones of the own class before learning; a class with fewer other
    members gives those it has. Impostors are counted exactly, among all points, in every iteration.

    Args:
        n_neighbors: Target neighbours of each point (k).
        push: From 0, pull only, to 1, push only (mu).
        margin: How far impostors must stay beyond a target neighbour, in squared distance.
        n_components: Dimensions of the learned space; None for as many as features. Only for the solver "map".
        solver: "map", L-BFGS over a map G; "matrix", projected gradient over A = G^T G, in which the cost is convex.
        init: The first map: "auto", "identity", "pca", "lda" or an array.
        max_iter: Largest number of iterations.
        tol: When to stop.

    Reference:
        Weinberger and Saul, "Distance metric learning for large margin nearest neighbor classification", JMLR 2009. The
        cost is `vicinal.objectives.lmnn`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> LMNN(n_neighbors=3, n_components=2).fit_transform(*load_iris(return_X_y=True)).shape
        (150, 2)
    """

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        push: float = 0.5,
        margin: float = 1.0,
        n_components: int | None = None,
        solver: Literal["map", "matrix"] = "map",
        init: Any = "auto",
        max_iter: int = 100,
        tol: float = 1e-5,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push = push
        self.margin = margin
        self.n_components = n_components
        self.solver = solver
        self.init = init
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        targets = nearest_positives(points, relations, self.n_neighbors)
        cost = over_impostors(targets, relations.negative, push=self.push, margin=self.margin)
        first = first_map(points, relations, self.n_components, self.init)
        return solve(self.solver, points, cost, first, max_iter=self.max_iter, tol=self.tol)
