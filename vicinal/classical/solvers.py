"""Two solvers for any cost of squared distances: L-BFGS over a map, projected gradient over a matrix.

A squared Mahalanobis distance is d_ij = (x_i - x_j)^T A (x_i - x_j) with A = G^T G. Let a cost L of all distances have
the pair weights W = dL/dd. Every pair then pulls its two points with a force along their difference,

    f_i = 2 sum_j (W_ij + W_ji) (x_i - x_j)

and the forces on the points are all that a solver needs: dL/dA = X^T f / 2, and dL/dG = f^T X with the forces on the
mapped points G x_i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from torch import Tensor

from vicinal.errors import InputError, UnknownName
from vicinal.pairs import squared_euclidean

__all__ = [
    "Cost",
    "Regulariser",
    "Solution",
    "factor",
    "learn_map",
    "learn_matrix",
    "learn_weights",
    "over_masks",
    "over_triplets",
    "solve",
    "to_cone",
]

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
# (points whose distances count, points that the forces act on) -> (value, forces)
Cost = Callable[[Tensor, Tensor], tuple[float, Tensor]]
# matrix A -> (value, its derivative)
Regulariser = Callable[[Tensor], tuple[float, Tensor]]

# Rows and entries of the distance matrix processed at a time: few enough to stay in the cache.
ROWS, ENTRIES = 160, 2**18


@dataclass(frozen=True)
class Solution:
    """Result of a solver.

    Attributes:
        components: Map G.
        value: Cost at the solution, including the regulariser.
        iterations: Number of iterations.
        converged: Whether the solver converged.
    """

    components: Float[Tensor, "k d"]
    value: float
    iterations: int
    converged: bool


def over_masks(
    objective: Objective, positive: Bool[Tensor, "n n"], negative: Bool[Tensor, "n n"], *, by_anchor: bool = False
) -> Cost:
    """Return an objective of all pairs of points as a cost.

    Args:
        objective: Function of (matrix, positive, negative), with its options bound.
        positive: Pairs that belong together.
        negative: Pairs that do not.
        by_anchor: Whether the objective is a mean over the anchors that have a positive and a negative. Then it is
            computed a few rows at a time, and its memory is not quadratic in the number of points.
    """
    n = len(positive)
    rows = max(1, min(ROWS, ENTRIES // n)) if by_anchor else n
    usable = positive.any(1) & negative.any(1)
    total = max(1, int(usable.sum()))

    def cost(at: Tensor, on: Tensor) -> tuple[float, Tensor]:
        value, forces = 0.0, torch.zeros_like(on)
        for first in range(0, n, rows):
            here = slice(first, first + rows)
            share = int(usable[here].sum()) / total if by_anchor else 1.0
            if share:
                loss, weights = _weigh(objective, squared_euclidean(at[here], at), positive[here], negative[here])
                value += share * loss
                forces[here] += share * (weights.sum(1, keepdim=True) * on[here] - weights @ on)
                forces += share * (weights.sum(0).unsqueeze(1) * on - weights.T @ on[here])
        return value, 2.0 * forces

    return cost


def over_triplets(objective: Objective, triplets: Int[Tensor, "t 3"]) -> Cost:
    """Return an objective of triplets as a cost: each is a separate anchor with one positive and one negative."""
    anchor, others = triplets[:, 0], triplets[:, 1:]
    positive = torch.tensor([True, False]).expand(len(triplets), 2)

    def cost(at: Tensor, on: Tensor) -> tuple[float, Tensor]:
        matrix = (at[anchor].unsqueeze(1) - at[others]).square().sum(2)
        value, weights = _weigh(objective, matrix, positive, ~positive)
        pulls = 2.0 * weights.unsqueeze(2) * (on[anchor].unsqueeze(1) - on[others])
        forces = torch.zeros_like(on).index_add_(0, anchor, pulls.sum(1))
        return value, forces.index_add_(0, others.flatten(), -pulls.flatten(0, 1))

    return cost


def solve(
    solver: str,
    points: Float[Tensor, "n d"],
    cost: Cost,
    start: Float[Tensor, "k d"],
    *,
    regulariser: Regulariser | None = None,
    max_iter: int,
    tol: float,
) -> Solution:
    """Run `learn_map` (solver "map") or `learn_matrix` (solver "matrix") from an initial map."""
    if solver == "map":
        return learn_map(points, cost, start, regulariser=regulariser, max_iter=max_iter, tol=tol)
    if solver != "matrix":
        raise UnknownName("solver", solver, ("map", "matrix"))
    if len(start) < points.shape[1]:
        raise InputError(
            f"The solver 'matrix' learns a metric of all {points.shape[1]} features; "
            f"for n_components={len(start)} use solver='map'."
        )
    return learn_matrix(points, cost, start.T @ start, regulariser=regulariser, max_iter=max_iter, tol=tol)


def learn_map(
    points: Float[Tensor, "n d"],
    cost: Cost,
    start: Float[Tensor, "k d"],
    *,
    regulariser: Regulariser | None = None,
    max_iter: int = 100,
    tol: float = 1e-5,
) -> Solution:
    """Minimise regulariser(G^T G) + cost over maps G with a given number of rows, by L-BFGS.

    Args:
        points: One row per point.
        cost: Cost from `over_masks` or `over_triplets`.
        start: Initial map, which also sets the number of rows.
        regulariser: Regulariser from `frobenius` or `trace`, or another function of A.
        max_iter: Largest number of iterations.
        tol: Tolerance on the relative decrease of the value and on the largest slope.
    """

    def energy(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        components = torch.from_numpy(flat).view_as(start)
        moved = points @ components.T
        value, forces = cost(moved, moved)
        slope = forces.T @ points
        if regulariser is not None:
            toll, incline = regulariser(components.T @ components)
            value, slope = value + toll, slope + 2.0 * components @ incline
        # Values per point would be so small that L-BFGS, which compares them with `tol`, would stop too early.
        return len(points) * value, len(points) * slope.numpy().ravel()

    result = minimize(
        energy, start.numpy().ravel(), jac=True, method="L-BFGS-B", tol=tol, options={"maxiter": max_iter}
    )
    components = torch.from_numpy(result.x).view_as(start)
    return Solution(components, float(result.fun) / len(points), int(result.nit), bool(result.success))


def learn_matrix(
    points: Float[Tensor, "n d"],
    cost: Cost,
    start: Float[Tensor, "d d"],
    *,
    regulariser: Regulariser | None = None,
    max_iter: int = 300,
    tol: float = 1e-6,
) -> Solution:
    """Minimise regulariser(A) + cost over positive semi-definite A, by accelerated projected gradient.

    If the cost is convex in the distances, as for MCML, LMNN and all hinges, the minimum is global.

    Args:
        points: One row per point.
        cost: Cost from `over_masks` or `over_triplets`.
        start: Initial A.
        regulariser: Regulariser from `frobenius` or `trace`, or another function of A.
        max_iter: Largest number of iterations.
        tol: Relative change of A in a step below which the solver stops.
    """

    def energy(matrix: Tensor) -> tuple[float, Tensor]:
        value, forces = cost(points @ factor(matrix).T, points)
        slope = points.T @ forces / 2.0
        slope = (slope + slope.T) / 2.0
        toll, incline = (0.0, torch.zeros_like(matrix)) if regulariser is None else regulariser(matrix)
        return value + toll, slope + incline

    best = ahead = to_cone(start)
    best_value, slope = energy(best)
    ahead_value, pace, momentum = best_value, 1.0 / max(float(slope.norm()), 1e-12), 1.0
    iteration, converged = 0, False
    while iteration < max_iter and not converged:
        iteration += 1
        while True:
            trial = to_cone(ahead - pace * slope)
            step = trial - ahead
            value, _ = energy(trial)
            bound = ahead_value + float((slope * step).sum()) + float(step.square().sum()) / (2.0 * pace)
            if value <= bound + 1e-12 * abs(bound) or pace < 1e-18:
                break
            pace /= 2.0
        change = trial - best
        if value > best_value and ahead is not best:  # the momentum overshot: restart from the best
            ahead, ahead_value, momentum = best, best_value, 1.0
            slope = energy(best)[1]
            continue
        converged = float(change.norm()) <= tol * max(float(best.norm()), 1e-12)
        following = (1.0 + (1.0 + 4.0 * momentum**2) ** 0.5) / 2.0
        if value <= best_value:
            best, best_value = trial, value
        ahead = to_cone(best + (momentum - 1.0) / following * change)
        ahead_value, slope = energy(ahead)
        momentum, pace = following, 1.5 * pace
    return Solution(factor(best), best_value, iteration, converged)


def learn_weights(
    points: Float[Tensor, "n b"],
    cost: Cost,
    toll: Float[Tensor, "b b"],
    *,
    max_iter: int = 200,
    tol: float = 1e-6,
) -> tuple[Float[Tensor, " b"], Solution]:
    """Minimise w^T L w / 2 + cost over weights w >= 0 of the columns, by L-BFGS with bounds.

    Args:
        points: One row per point; distances are sums of weighted squared differences of the columns.
        cost: Cost from `over_masks` or `over_triplets`.
        toll: Positive semi-definite matrix L.
        max_iter: Largest number of iterations.
        tol: Tolerance of the stopping criterion.
    """

    def energy(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        weights = torch.from_numpy(flat)
        value, forces = cost(points * weights.sqrt(), points)
        incline = toll @ weights
        slope = (points * forces).sum(0) / 2.0 + incline
        return len(points) * (value + float(weights @ incline) / 2.0), len(points) * slope.numpy()

    first = np.ones(points.shape[1])
    bounds = [(0.0, None)] * len(first)
    result = minimize(energy, first, jac=True, method="L-BFGS-B", bounds=bounds, tol=tol, options={"maxiter": max_iter})
    weights = torch.from_numpy(result.x)
    return weights, Solution(
        weights.sqrt().diag(), float(result.fun) / len(points), int(result.nit), bool(result.success)
    )


def to_cone(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Return the nearest positive semi-definite matrix: negative eigenvalues become zero.

    Example:
        >>> to_cone(torch.tensor([[1.0, 0.0], [0.0, -2.0]]))
        tensor([[1., 0.],
                [0., 0.]])
    """
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp_min(0.0)) @ vectors.T


def factor(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "k d"]:
    """Return G with G^T G = A, one row per eigenvalue that is nonzero up to rounding, largest first (at least one row).

    Example:
        >>> factor(torch.tensor([[0.0, 0.0], [0.0, 4.0]])).abs()
        tensor([[0., 2.]])
    """
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(0), vectors.flip(1)
    nonzero = values > 1e-12 * values[0].clamp_min(torch.finfo(values.dtype).tiny)
    nonzero[0] = True
    return values[nonzero].clamp_min(0.0).sqrt().unsqueeze(1) * vectors[:, nonzero].T


def _weigh(objective: Objective, matrix: Tensor, positive: Tensor, negative: Tensor) -> tuple[float, Tensor]:
    """Return the value of an objective and its pair weights."""
    matrix.requires_grad_()
    value = objective(matrix, positive, negative)
    (weights,) = torch.autograd.grad(value, matrix)
    return float(value.detach()), weights
