"""General metric learner: any objective of squared distances with any regulariser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from vicinal._util.code import Trust
from vicinal.classical.learner import MetricLearner, RegulariserName, first_map, regulariser_for
from vicinal.classical.relations import Relations
from vicinal.classical.solvers import Solution, over_masks, solve
from vicinal.errors import InputError
from vicinal.objectives import OBJECTIVES, find_objective, traits_of

__all__ = ["General"]


class General(MetricLearner):
    """Learn a metric with any objective of distances: those of deep networks, or a custom one.

    Formula:
        min over A of  r(A) + weight * objective(d_A, positive, negative)

    Args:
        objective: Name in `vicinal.objectives`, or function of (matrix, positive, negative). An objective written for
            distances gets distances; every other function gets squared distances.
        options: Options of the objective.
        regulariser: "frobenius", r = ||A||^2 / 2; "trace", r = tr(A C) with C the mean of (x_i - x_j)(x_i - x_j)^T over
            similar pairs; "identity", r = tr(A); "none".
        weight: Weight of the objective relative to the regulariser (lambda).
        n_components: Dimension of the learned space; None for the number of features. Only for the solver "map".
        solver: "map", L-BFGS over a map G; "matrix", projected gradient over A = G^T G.
        init: Initial map: "auto", "identity", "pca", "lda" or an array.
        max_iter: Largest number of iterations.
        tol: Tolerance of the stopping criterion.

    Reference:
        Kulis, "Metric learning: a survey", 2013, equation 2.1.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> General("triplet", {"margin": 1.0}, n_components=2).fit_transform(*load_iris(return_X_y=True)).shape
        (150, 2)
    """

    def __init__(
        self,
        objective: str | Callable[..., Tensor] = "nca",
        options: Mapping[str, Any] | None = None,
        *,
        regulariser: RegulariserName = "none",
        weight: float = 1.0,
        n_components: int | None = None,
        solver: Literal["map", "matrix"] = "map",
        init: Any = "auto",
        max_iter: int = 100,
        tol: float = 1e-5,
    ) -> None:
        self.objective = objective
        self.options = options
        self.regulariser = regulariser
        self.weight = weight
        self.n_components = n_components
        self.solver = solver
        self.init = init
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        return solve(
            self.solver,
            points,
            over_masks(self._function(), relations.positive, relations.negative),
            first_map(points, relations, self.n_components, self.init),
            regulariser=regulariser_for(self.regulariser, self.weight, points, relations.positive),
            max_iter=self.max_iter,
            tol=self.tol,
        )

    def _function(self) -> Callable[..., Tensor]:
        """Return the objective as a function of squared distances, with its options."""
        chosen = self.objective
        function = find_objective(chosen, Trust.typed([chosen])) if isinstance(chosen, str) else chosen
        bound = partial(function, **(self.options or {}))
        traits = traits_of(function)
        if traits is None or traits.geometry == "squared_euclidean":
            return bound
        if traits.geometry != "euclidean" or traits.needs:
            fitting = [
                name
                for name, other in OBJECTIVES.items()
                if (candidate := traits_of(other))
                and candidate.geometry in ("euclidean", "squared_euclidean")
                and not candidate.needs
            ]
            raise InputError(
                f"{chosen!r} is not a function of distances alone, which a metric needs. Choose from: "
                f"{', '.join(sorted(fitting))}."
            )
        smallest = torch.finfo(torch.float64).tiny
        return lambda matrix, positive, negative: bound(matrix.clamp_min(smallest).sqrt(), positive, negative)
