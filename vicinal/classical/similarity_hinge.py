"""Absolute constraints: similar pairs within one bound, dissimilar pairs beyond another, as a convex model."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.classical.learner import MetricLearner, RegulariserName, first_map, regulariser_for
from vicinal.classical.relations import Relations
from vicinal.classical.solvers import Solution, over_masks, solve
from vicinal.objectives.stable import mean
from vicinal.pairs import squared_euclidean

__all__ = ["SimilarityHinge", "similarity_hinge"]


def similarity_hinge(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    near: float,
    far: float,
) -> Float[Tensor, ""]:
    """Penalise positives beyond one distance and negatives within another.

    Formula:
        mean over positive pairs of (d_ij - near)_+  +  mean over negative pairs of (far - d_ij)_+

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> similarity_hinge(torch.tensor([[3.0, 1.0, 9.0]]), same, ~same, near=1.0, far=4.0)
        tensor(3.5000)
    """
    return mean((matrix - near).relu(), positive) + mean((far - matrix).relu(), negative)


class SimilarityHinge(MetricLearner):
    """Learn the simplest metric under which similar pairs are within a bound and dissimilar ones beyond another.

    Formula:
        min over A of  r(A) + weight ( mean over similar pairs of (d_A - near)_+ + mean over dissimilar (far - d_A)_+ )

    Args:
        near: Largest squared distance of similar pairs; None for the 5th percentile of all pairs before learning.
        far: Smallest squared distance of dissimilar pairs; None for the 95th percentile.
        regulariser: "frobenius", r = ||A||^2 / 2; "trace", r = tr(A C) with C the mean of (x_i - x_j)(x_i - x_j)^T over
            similar pairs; "identity", r = tr(A); "none".
        weight: Weight of the constraints relative to the regulariser (lambda).
        n_components: Dimension of the learned space; None for the number of features. Only for the solver "map".
        solver: "map", L-BFGS over a map G; "matrix", projected gradient over A = G^T G, in which the model is convex.
        init: Initial map: "auto", "identity", "pca", "lda" or an array.
        max_iter: Largest number of iterations.
        tol: Tolerance of the stopping criterion.

    Reference:
        Kulis, "Metric learning: a survey", 2013, section 2.2.

    Example:
        >>> points = np.array([[0.0, 0.0], [0.0, 5.0], [1.0, 0.0], [1.0, 5.0]])
        >>> learner = SimilarityHinge().fit_pairs(points, [[0, 1], [2, 3], [0, 2], [1, 3]], [1, 1, 0, 0])
        >>> bool(learner.pair_distance(points[:1], points[1:2]) < learner.pair_distance(points[:1], points[2:3]))
        True
    """

    def __init__(
        self,
        *,
        near: float | None = None,
        far: float | None = None,
        regulariser: RegulariserName = "frobenius",
        weight: float = 100.0,
        n_components: int | None = None,
        solver: Literal["map", "matrix"] = "map",
        init: Any = "auto",
        max_iter: int = 200,
        tol: float = 1e-6,
    ) -> None:
        self.near = near
        self.far = far
        self.regulariser = regulariser
        self.weight = weight
        self.n_components = n_components
        self.solver = solver
        self.init = init
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        before = squared_euclidean(points, points)[torch.triu(torch.ones(len(points), len(points)), 1) > 0]
        defaults = before.sort().values[[int(0.05 * (len(before) - 1)), int(0.95 * (len(before) - 1))]].tolist()
        near, far = (
            requested if requested is not None else bound
            for requested, bound in zip((self.near, self.far), defaults, strict=True)
        )
        objective = partial(similarity_hinge, near=near, far=far)
        return solve(
            self.solver,
            points,
            over_masks(objective, relations.positive, relations.negative),
            first_map(points, relations, self.n_components, self.init),
            regulariser=regulariser_for(self.regulariser, self.weight, points, relations.positive),
            max_iter=self.max_iter,
            tol=self.tol,
        )
