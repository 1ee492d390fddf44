"""The Mahalanobis distance: Euclidean distance after whitening."""

from __future__ import annotations

from typing import Any, Literal

import torch
from sklearn.covariance import ledoit_wolf
from torch import Tensor

from vicinal.classical.learner import MetricLearner
from vicinal.classical.relations import Relations
from vicinal.classical.solvers import Solution
from vicinal.errors import InputError

__all__ = ["Mahalanobis"]


class Mahalanobis(MetricLearner):
    """Whiten: after the map, features are uncorrelated with variance one. No labels are used.

    Distances do not change under any invertible affine map of the features, so scales and correlations do not matter.

    Args:
        n_components: Number of principal directions to keep; None for all.
        shrinkage: Share from 0 to 1 by which the sample covariance is shrunk towards a multiple of the identity; None
            for no shrinkage, or "auto" for the share of Ledoit and Wolf, useful with more features than points.

    Reference:
        Mahalanobis, "On the generalized distance in statistics", 1936; Ledoit and Wolf, 2004.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> Mahalanobis().fit_transform(load_wine().data).std(0, ddof=1).round(6).tolist()[:3]
        [1.0, 1.0, 1.0]
    """

    def __init__(self, n_components: int | None = None, *, shrinkage: float | Literal["auto"] | None = None) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage

    def fit(self, X: Any, y: Any = None) -> MetricLearner:  # noqa: N803
        """Learn from points alone; classes are accepted and ignored."""
        X = self._validated(X)  # noqa: N806
        nothing = torch.zeros(len(X), len(X), dtype=torch.bool)
        return self._fit(X, Relations(nothing, nothing))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        n, features = points.shape
        rows = features if self.n_components is None else self.n_components
        if not 1 <= rows <= features:
            raise InputError(
                f"n_components must be from 1 to the {features} features, or None for all of them; "
                f"got {self.n_components}."
            )
        covariance = points.T @ points / (n - 1)
        if self.shrinkage is not None:
            share = float(ledoit_wolf(points.numpy())[1] if self.shrinkage == "auto" else self.shrinkage)
            if not 0 <= share <= 1:
                raise InputError(f"shrinkage must be a share from 0 to 1, 'auto' or None; got {self.shrinkage!r}.")
            level = covariance.trace() / features
            covariance = (1 - share) * covariance + share * level * torch.eye(features, dtype=points.dtype)
        values, vectors = torch.linalg.eigh(covariance)
        values, vectors = values.flip(0)[:rows], vectors.flip(1)[:, :rows]
        rank = int((values > 1e-12 * values[0]).sum()) if values[0] > 0 else 0
        if rank < rows:
            raise InputError(
                f"The covariance of {n} points in {features} dimensions is singular (rank {rank}); pass "
                f"shrinkage='auto', or n_components={max(rank, 1)} to keep the directions that vary."
            )
        return Solution((vectors / values.sqrt()).T.contiguous(), 0.0, 1, True)
