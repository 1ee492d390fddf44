"""Idealised kernels: similar pairs no farther apart than before, dissimilar ones farther by an adaptive margin."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.classical.learner import MetricLearner, first_map, frobenius
from vicinal.classical.relations import Relations
from vicinal.classical.solvers import Solution, over_masks, solve
from vicinal.errors import InputError
from vicinal.objectives.stable import mean
from vicinal.pairs import squared_euclidean

__all__ = ["KwokTsang", "idealised"]


def idealised(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    before: Float[Tensor, "n m"],
    pull: float = 1.0,
    push: float = 1.0,
    share: float = 0.5,
) -> Float[Tensor, ""]:
    """Penalise positives that are farther than before, and negatives that are not farther by the best margin.

    Formula:
        pull * mean over positives of (d_ij - before_ij)_+
        + push * min over gap >= 0 of ( mean over negatives of (gap - (d_ij - before_ij))_+ - share * gap )

    The best gap is the quantile at `share` of the gains of the negatives: as in a nu-SVM, about that share of them
    stays within the margin.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> before = torch.ones(1, 3)
        >>> idealised(torch.tensor([[1.5, 3.0, 2.0]]), same, ~same, before=before)
        tensor(0.)
    """
    gained = matrix - before
    pulled = mean(gained.relu(), positive)
    count = int(negative.sum())
    if count == 0:
        return pull * pulled
    gap = gained[negative].kthvalue(max(1, math.ceil(share * count))).values.clamp_min(0.0)
    return pull * pulled + push * (mean((gap - gained).relu(), negative) - share * gap)


class KwokTsang(MetricLearner):
    """Learn the metric of least norm that keeps similar pairs as near as they were and moves dissimilar ones apart.

    Formula:
        min over A of  ||A||_F^2 / 2 + weight * `idealised`(d_A)

    Args:
        weight: Weight of the constraints relative to the norm.
        pull: Weight of similar pairs among the constraints.
        push: Weight of dissimilar pairs among the constraints.
        share: Approximate share of dissimilar pairs that may stay within the margin (nu).
        n_components: Dimension of the learned space; None for the number of features. Only for the solver "map".
        solver: "map", L-BFGS over a map G; "matrix", projected gradient over A = G^T G, in which the model is convex.
        init: Initial map: "auto", "identity", "pca", "lda" or an array.
        max_iter: Largest number of iterations.
        tol: Tolerance of the stopping criterion.

    Reference:
        Kwok and Tsang, "Learning with idealized kernels", ICML 2003.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> KwokTsang(n_components=2).fit_transform(*load_iris(return_X_y=True)).shape
        (150, 2)
    """

    def __init__(
        self,
        *,
        weight: float = 100.0,
        pull: float = 1.0,
        push: float = 1.0,
        share: float = 0.2,
        n_components: int | None = None,
        solver: Literal["map", "matrix"] = "map",
        init: Any = "auto",
        max_iter: int = 200,
        tol: float = 1e-6,
    ) -> None:
        self.weight = weight
        self.pull = pull
        self.push = push
        self.share = share
        self.n_components = n_components
        self.solver = solver
        self.init = init
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        if not self.weight > 0 or not 0 < self.share <= 1:
            raise InputError(
                f"weight must be above 0 and share above 0 and at most 1; got {self.weight!r} and {self.share!r}."
            )
        before = squared_euclidean(points, points)
        # At the identity no pair has gained anything and every hinge is at its kink: start slightly away from it.
        first = 1.1 * first_map(points, relations, self.n_components, self.init)
        objective = partial(idealised, before=before, pull=self.pull, push=self.push, share=self.share)
        return solve(
            self.solver,
            points,
            over_masks(objective, relations.positive, relations.negative),
            first,
            regulariser=frobenius(1.0 / self.weight),
            max_iter=self.max_iter,
            tol=self.tol,
        )
