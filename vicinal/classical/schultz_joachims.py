"""Weights of features or of training points, learned from relative comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.classical.learner import MetricLearner
from vicinal.classical.relations import Relations
from vicinal.classical.relative_hinge import relative_cost
from vicinal.classical.solvers import Solution, factor, learn_weights
from vicinal.errors import InputError, UnknownName

__all__ = ["SchultzJoachims"]


class SchultzJoachims(MetricLearner):
    """Learn weights w >= 0 of fixed directions B, A = B diag(w) B^T, from comparisons "i is nearer to j than to k".

    With so few parameters it is the most robust to uninformative features. The solver, L-BFGS with bounds, is designed
    for smooth costs: on the hinge it may stop at a kink shortly before the minimum.

    Formula:
        min over w >= 0 of  ||A||_F^2 / 2 + weight * mean over triplets (i, j, k) of (1 + d_A(i, j) - d_A(i, k))_+

    Args:
        basis: Columns of B. "features": one weight per feature, divided by its standard deviation; "identity": one
            weight per feature as it is; "points": one weight per training point (within `Kernelised` this is the kernel
            form of the paper); or an array with one row per feature.
        weight: Weight of the comparisons relative to the norm (C).
        max_iter: Largest number of iterations.
        tol: Tolerance of the stopping criterion.

    Attributes:
        weights_: Weights w, one per column of the basis.

    Reference:
        Schultz and Joachims, "Learning a distance metric from relative comparisons", NIPS 2003.

    Example:
        >>> points = np.array([[0.0, 0.0], [0.1, 5.0], [1.0, 0.0], [1.1, 5.0]])
        >>> telling, other = SchultzJoachims().fit(points, [0, 0, 1, 1]).weights_
        >>> bool(telling > other)
        True
    """

    def __init__(
        self, basis: Any = "features", *, weight: float = 100.0, max_iter: int = 200, tol: float = 1e-6
    ) -> None:
        self.basis = basis
        self.weight = weight
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        if not self.weight > 0:
            raise InputError(f"weight must be above 0; got {self.weight!r}.")
        basis = self._directions(points)
        toll = (basis.T @ basis).square() / self.weight
        cost = relative_cost(relations, 1.0)
        weights, solution = learn_weights(points @ basis, cost, toll, max_iter=self.max_iter, tol=self.tol)
        self.weights_ = weights.numpy()
        components = weights.sqrt().unsqueeze(1) * basis.T
        if len(components) > points.shape[1]:
            components = factor(components.T @ components)
        return Solution(components, solution.value, solution.iterations, solution.converged)

    def _directions(self, points: Tensor) -> Tensor:
        if not isinstance(self.basis, str):
            columns = torch.tensor(np.asarray(self.basis), dtype=points.dtype)
            if columns.ndim != 2 or len(columns) != points.shape[1]:
                raise InputError(
                    f"basis must have {points.shape[1]} rows, one per feature; got shape {list(columns.shape)}."
                )
            return columns
        if self.basis == "features":
            scale = points.std(0)
            return torch.where(scale > 0, 1.0 / scale.clamp_min(1e-300), 0.0).diag()
        if self.basis == "identity":
            return torch.eye(points.shape[1], dtype=points.dtype)
        if self.basis == "points":
            return points.T.contiguous()
        raise UnknownName("basis", self.basis, ("features", "identity", "points"))
