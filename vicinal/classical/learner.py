"""Base of all classical learners: the estimator, its initial map, its regularisers and its threshold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from vicinal.classical.relations import Relations, from_labels, from_pairs, from_triplets
from vicinal.classical.solvers import Regulariser, Solution
from vicinal.errors import InputError, UnknownName

__all__ = ["MetricLearner", "RegulariserName", "best_threshold", "first_map", "frobenius", "regulariser_for", "spread"]


# Threshold: the distance up to which a pair counts as the same.


def best_threshold(
    distances: Float[np.ndarray, " n"],
    same: Bool[np.ndarray, " n"],
    *,
    strategy: str = "accuracy",
    beta: float = 1.0,
    limit: float = 0.05,
) -> float:
    """Return the best threshold on some pairs, half-way between two of their distances.

    Args:
        distances: Distance of each pair.
        same: Whether each pair belongs together.
        strategy: "accuracy"; "f_beta"; or "false_positives", the most true matches with few false ones.
        beta: Weight of recall for "f_beta": above 1, recall counts more than precision.
        limit: Largest share of different pairs that may count as the same, for "false_positives".

    Example:
        >>> best_threshold(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, False]))
        2.5
    """
    if same.dtype != np.bool_ or same.shape != distances.shape or same.all() or not same.any():
        raise InputError(
            f"same must be booleans, one per pair, with both kinds among them; got {same.dtype} of shape "
            f"{list(same.shape)} for {len(distances)} pairs."
        )
    steps, position = np.unique(distances, return_inverse=True)
    # Entry k counts the pairs called the same if the threshold is above the first k distinct distances.
    true, false = (
        np.concatenate([[0], np.cumsum(np.bincount(position[kind], minlength=len(steps)))]) for kind in (same, ~same)
    )
    if strategy == "accuracy":
        merit = (true - false).astype(float)
    elif strategy == "f_beta":
        if not beta > 0:
            raise InputError(f"beta must be above 0; got {beta!r}.")
        merit = (1 + beta**2) * true / (true + false + beta**2 * same.sum())
    elif strategy == "false_positives":
        if not 0 <= limit <= 1:
            raise InputError(f"limit must be a share from 0 to 1; got {limit!r}.")
        merit = np.where(false <= limit * (~same).sum(), true, -1).astype(float)
    else:
        raise UnknownName("strategy", strategy, ("accuracy", "f_beta", "false_positives"))
    edges = np.concatenate([[steps[0] / 2], (steps[:-1] + steps[1:]) / 2, [steps[-1]]])
    return float(edges[merit.argmax()])


# Initial maps of the solvers.


def first_map(
    points: Float[Tensor, "n d"], relations: Relations, n_components: int | None, init: Any
) -> Float[Tensor, "k d"]:
    """Return the initial map of a solver.

    Args:
        points: One row per point.
        relations: Relations of the points.
        n_components: Number of rows of the map; None for the number of features.
        init: "identity", "pca", "lda", an array, or "auto": the identity for a full map, otherwise LDA if there are
            classes and enough of them, else PCA.

    Example:
        >>> points = torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.1, 4.0]])
        >>> known = Relations(torch.zeros(3, 3) > 0, torch.zeros(3, 3) > 0)
        >>> first_map(points, known, 1, "pca").abs().round(decimals=2)
        tensor([[0.0200, 1.0000]])
    """
    features = points.shape[1]
    rows = features if n_components is None else n_components
    if not 1 <= rows <= features:
        raise InputError(
            f"n_components must be from 1 to the {features} features, or None for all of them; got {n_components}."
        )
    if not isinstance(init, str):
        array = torch.tensor(np.asarray(init), dtype=points.dtype)
        if array.shape != (rows, features):
            raise InputError(f"init must be an array of shape [{rows}, {features}]; got {list(array.shape)}.")
        return array
    classes = 0 if relations.labels is None else int(relations.labels.max()) + 1
    if init == "auto":
        init = "identity" if rows == features else "lda" if rows < classes else "pca"
    if init == "identity":
        return torch.eye(rows, features, dtype=points.dtype)
    if init == "pca":
        directions = torch.linalg.svd(points - points.mean(0), full_matrices=True).Vh
        return directions[:rows].contiguous()
    if init == "lda":
        if rows >= classes:
            raise InputError(
                f"LDA gives at most {max(classes - 1, 0)} dimensions here; got n_components={rows}: use init='pca'."
            )
        lda = LinearDiscriminantAnalysis(n_components=rows).fit(points.numpy(), relations.labels)
        return torch.from_numpy(np.ascontiguousarray(lda.scalings_.T[:rows]))
    raise UnknownName("init", init, ("auto", "identity", "pca", "lda"))


# Regularisers: functions of A with their derivatives.

RegulariserName = Literal["frobenius", "trace", "identity", "none"]


def frobenius(strength: float = 1.0) -> Regulariser:
    """Return strength times half the squared Frobenius norm of A, whose derivative is A.

    Example:
        >>> frobenius()(torch.eye(2))[0]
        1.0
    """
    return lambda matrix: (0.5 * strength * float(matrix.square().sum()), strength * matrix)


def trace(weights: Float[Tensor, "d d"]) -> Regulariser:
    """Return tr(A C), whose derivative is C.

    Example:
        >>> trace(torch.eye(2))(2 * torch.eye(2))[0]
        4.0
    """
    return lambda matrix: (float((matrix * weights).sum()), weights)


def spread(points: Float[Tensor, "n d"], positive: Bool[Tensor, "n n"]) -> Float[Tensor, "d d"]:
    """Return the mean of (x_i - x_j)(x_i - x_j)^T over the positive pairs.

    Example:
        >>> spread(torch.tensor([[0.0, 0.0], [2.0, 1.0]]), torch.tensor([[False, True], [False, False]]))
        tensor([[4., 2.],
                [2., 1.]])
    """
    pairs = positive.to(points.dtype)
    degree = pairs.sum(0) + pairs.sum(1)
    half = points.T @ pairs @ points
    return ((points.T * degree) @ points - half - half.T) / pairs.sum().clamp_min(1)


def regulariser_for(
    name: str, weight: float, points: Float[Tensor, "n d"], positive: Bool[Tensor, "n n"]
) -> Regulariser | None:
    """Return a regulariser by name, divided by the weight of the cost it is added to."""
    if not weight > 0:
        raise InputError(f"weight must be above 0; got {weight!r}.")
    if name == "none":
        return None
    if name == "frobenius":
        return frobenius(1.0 / weight)
    if name == "trace":
        return trace(spread(points, positive) / weight)
    if name == "identity":
        return trace(torch.eye(points.shape[1], dtype=points.dtype) / weight)
    raise UnknownName("regulariser", name, ("frobenius", "trace", "identity", "none"))


Array = npt.NDArray[Any]


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classical learners: each adds its arguments and a `_learn`, from points and relations to a map.

    scikit-learn reads an estimator's arguments from the signature of its class, so every learner is a separate class.

    Attributes:
        components_: Map G, one row per dimension of the learned space; the learned metric is A = G^T G.
        n_iter_: Number of iterations of the solver.
        converged_: Whether the solver converged before `max_iter`.
        threshold_: Distance up to which a pair counts as the same, set by `calibrate`.
    """

    def fit(self, X: Any, y: Any) -> MetricLearner:  # noqa: N803
        """Learn from points and their classes."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)  # noqa: N806
        check_classification_targets(y)
        return self._fit(X, from_labels(np.unique(y, return_inverse=True)[1]))

    def fit_pairs(self, X: Any, pairs: Any, same: Any) -> MetricLearner:  # noqa: N803
        """Learn from points and pairs of their indices, each marked in `same` as belonging together or not."""
        X = self._validated(X)  # noqa: N806
        return self._fit(X, from_pairs(len(X), pairs, same))

    def fit_triplets(self, X: Any, triplets: Any) -> MetricLearner:  # noqa: N803
        """Learn from points and rows (anchor, near, far) of their indices."""
        X = self._validated(X)  # noqa: N806
        return self._fit(X, from_triplets(len(X), triplets))

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Return the points in the learned space, where the learned distance is the Euclidean one."""
        check_is_fitted(self, "components_")
        X = validate_data(self, X, dtype=np.float64, reset=False)  # noqa: N806
        return self._features(X) @ self.components_.T

    def pair_distance(self, first: Any, second: Any) -> Array:
        """Return the learned distance of each row of `first` to the same row of `second`."""
        left, right = self._mapped(first), self._mapped(second)
        if left.shape != right.shape:
            raise InputError(
                f"Pairs need the same number of first and second points; got {len(left)} and {len(right)}."
            )
        return np.linalg.norm(left - right, axis=1)

    def pair_score(self, first: Any, second: Any) -> Array:
        """Return the negative distance of each pair: larger is more similar."""
        return -self.pair_distance(first, second)

    def get_metric(self) -> Callable[[Any, Any], float]:
        """Return the distance of two single points as a function, for estimators with a `metric` argument."""
        check_is_fitted(self, "components_")
        components, features = self.components_.copy(), self._features

        def metric(first: Any, second: Any) -> float:
            left, right = features(np.array([first, second], dtype=float))
            return float(np.linalg.norm(components @ (left - right)))

        return metric

    def calibrate(
        self, first: Any, second: Any, same: Any, *, strategy: str = "accuracy", beta: float = 1.0, limit: float = 0.05
    ) -> MetricLearner:
        """Choose the distance up to which pairs count as the same, on pairs held out from training.

        Args:
            first: First points of the pairs.
            second: Second points.
            same: Whether each pair belongs together.
            strategy: "accuracy"; "f_beta", which trades precision for recall; or "false_positives", the most true
                matches with at most a share `limit` of the different pairs counted as the same.
            beta: Weight of recall; above 1, recall counts more.
            limit: Largest share of false positives.
        """
        self.threshold_ = best_threshold(
            self.pair_distance(first, second), np.asarray(same), strategy=strategy, beta=beta, limit=limit
        )
        return self

    def predict_pairs(self, first: Any, second: Any) -> npt.NDArray[np.bool_]:
        """Return which pairs are the same, by the distance that `calibrate` chose."""
        check_is_fitted(self, "threshold_", msg="There is no threshold yet; call calibrate(first, second, same) first.")
        return self.pair_distance(first, second) <= self.threshold_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _fit(self, X: Array, relations: Relations) -> MetricLearner:  # noqa: N803
        # Distances do not depend on the origin; with centred points they lose the fewest digits.
        solution = self._learn(torch.from_numpy(X - X.mean(0)), relations)
        self.components_ = solution.components.numpy()
        self.n_iter_, self.converged_ = max(1, solution.iterations), solution.converged
        return self

    def _validated(self, X: Any) -> Array:  # noqa: N803
        return validate_data(self, X, dtype=np.float64, ensure_min_samples=2)

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        raise NotImplementedError

    def _features(self, X: Array) -> Array:  # noqa: N803
        """Return the features that the map is applied to."""
        return X

    def _mapped(self, points: Any) -> Array:
        check_is_fitted(self, "components_")
        return self._features(check_array(points, dtype=np.float64)) @ self.components_.T
