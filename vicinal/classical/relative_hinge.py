"""Relative constraints with a margin: near points must be nearer than far ones, as a convex model."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.classical.learner import MetricLearner, RegulariserName, first_map, regulariser_for
from vicinal.classical.relations import Relations
from vicinal.classical.solvers import Cost, Solution, over_masks, over_triplets, solve
from vicinal.objectives.stable import mean
from vicinal.objectives.triplet import violated_triplets

__all__ = ["RelativeHinge", "relative_cost", "relative_hinge"]


def relative_hinge(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    margin: float = 1.0,
) -> Float[Tensor, ""]:
    """Penalise every positive of an anchor that is not nearer than every negative by a margin; no triplet is listed.

    Formula:
        mean over anchors of  mean over their triplets of (margin + d_ij - d_ik)_+

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> relative_hinge(torch.tensor([[1.0, 1.5, 9.0]]), same, ~same)
        tensor(0.2500)
    """
    columns, per_positive, per_negative = violated_triplets(matrix, positive, negative, margin, "all")
    triplets = positive.sum(1) * negative.sum(1)
    total = (per_positive * matrix.gather(1, columns)).sum(1) - (per_negative * matrix).sum(1)
    return mean((total + margin * per_negative.sum(1)) / triplets.clamp_min(1), triplets > 0)


def relative_cost(relations: Relations, margin: float) -> Cost:
    """Return the relative hinge over the triplets of the relations, or else over all that the masks allow."""
    objective = partial(relative_hinge, margin=margin)
    if relations.triplets is not None:
        return over_triplets(objective, relations.triplets)
    return over_masks(objective, relations.positive, relations.negative, by_anchor=True)


class RelativeHinge(MetricLearner):
    """Learn the simplest metric under which near points are nearer than far ones by a margin.

    With classes it uses all triplets (anchor, same class, other class), without listing them.

    Formula:
        min over A of  r(A) + weight * mean over triplets (i, j, k) of (margin + d_A(i, j) - d_A(i, k))_+

    Args:
        margin: Margin by which far points must be farther, in squared distance.
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
        >>> points = np.array([[0.0, 0.0], [0.0, 5.0], [1.0, 0.0]])
        >>> learner = RelativeHinge().fit_triplets(points, [[0, 1, 2]])
        >>> bool(learner.pair_distance(points[:1], points[1:2]) < learner.pair_distance(points[:1], points[2:3]))
        True
    """

    def __init__(
        self,
        *,
        margin: float = 1.0,
        regulariser: RegulariserName = "frobenius",
        weight: float = 1000.0,
        n_components: int | None = None,
        solver: Literal["map", "matrix"] = "map",
        init: Any = "auto",
        max_iter: int = 200,
        tol: float = 1e-6,
    ) -> None:
        self.margin = margin
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
            relative_cost(relations, self.margin),
            first_map(points, relations, self.n_components, self.init),
            regulariser=regulariser_for(self.regulariser, self.weight, points, relations.positive),
            max_iter=self.max_iter,
            tol=self.tol,
        )
