"""Maximally collapsing metric learning (MCML) over all pairs."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from vicinal.classical.learner import MetricLearner, first_map
from vicinal.classical.relations import Relations
from vicinal.classical.solvers import Solution, over_masks, solve
from vicinal.objectives.mcml import mcml

__all__ = ["MCML"]


class MCML(MetricLearner):
    """Learn the metric that comes closest to collapsing every class to a single point, far from the other classes.

    Args:
        n_components: Dimension of the learned space; None for the number of features. Only for the solver "map".
        solver: "map", L-BFGS over a map G; "matrix", projected gradient over A = G^T G, in which the cost is convex.
        init: Initial map: "auto", "identity", "pca", "lda" or an array.
        max_iter: Largest number of iterations.
        tol: Tolerance of the stopping criterion.

    Reference:
        Globerson and Roweis, "Metric learning by collapsing classes", NIPS 2006. The cost is `vicinal.objectives.mcml`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> MCML(n_components=2).fit_transform(*load_iris(return_X_y=True)).shape
        (150, 2)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        solver: Literal["map", "matrix"] = "map",
        init: Any = "auto",
        max_iter: int = 100,
        tol: float = 1e-5,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.init = init
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        cost = over_masks(mcml, relations.positive, relations.negative, by_anchor=True)
        first = first_map(points, relations, self.n_components, self.init)
        return solve(self.solver, points, cost, first, max_iter=self.max_iter, tol=self.tol)
