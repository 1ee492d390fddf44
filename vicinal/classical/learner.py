"""What all classical learners share: the estimator contract of scikit-learn, and distances of pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from vicinal.classical.former_names import take_former_names
from vicinal.classical.relations import Relations, from_labels, from_pairs, from_triplets
from vicinal.classical.solvers import Solution
from vicinal.classical.threshold import best_threshold
from vicinal.errors import InputError

__all__ = ["MetricLearner"]

Array = npt.NDArray[Any]


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classical learners: each adds its arguments and a `_learn`, from points and relations to a map.

    scikit-learn finds an estimator's arguments in the signature of its class, so every learner is a class of its own.

    Attributes:
        components_: The map G, one row per dimension of the learned space; the learned metric is A = G^T G.
        n_iter_: Iterations that the solver took.
        converged_: Whether it stopped because it was done, not because of `max_iter`.
        threshold_: Distance up to which a pair counts as the same, set by `calibrate`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        take_former_names(cls)

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
        one, two = self._mapped(first), self._mapped(second)
        if one.shape != two.shape:
            raise InputError(f"Pairs need as many first as second points; got {len(one)} and {len(two)}.")
        return np.linalg.norm(one - two, axis=1)

    def pair_score(self, first: Any, second: Any) -> Array:
        """Return the negative distance of each pair: the larger, the more alike."""
        return -self.pair_distance(first, second)

    def get_metric(self) -> Callable[[Any, Any], float]:
        """Return the distance of two single points as a function, for what takes a `metric`."""
        check_is_fitted(self, "components_")
        components, features = self.components_.copy(), self._features

        def metric(first: Any, second: Any) -> float:
            one, two = features(np.array([first, second], dtype=float))
            return float(np.linalg.norm(components @ (one - two)))

        return metric

    def calibrate(
        self, first: Any, second: Any, same: Any, *, strategy: str = "accuracy", beta: float = 1.0, limit: float = 0.05
    ) -> MetricLearner:
        """Choose the distance up to which pairs count as the same, on pairs kept from training.

        Args:
            first: First points of the pairs.
            second: Second points.
            same: Which of the pairs belong together.
            strategy: "accuracy"; "f_beta", which trades precision for recall; or "false_positives", the most true
                matches with a share of at most `limit` of the different pairs taken for the same.
            beta: Above 1, recall counts more.
            limit: The largest share of false positives.
        """
        self.threshold_ = best_threshold(
            self.pair_distance(first, second), np.asarray(same), strategy=strategy, beta=beta, limit=limit
        )
        return self

    def predict_pairs(self, first: Any, second: Any) -> npt.NDArray[np.bool_]:
        """Return which pairs are the same, by the distance that `calibrate` chose."""
        check_is_fitted(self, "threshold_", msg="Choose a threshold first: calibrate(first, second, same).")
        return self.pair_distance(first, second) <= self.threshold_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _fit(self, X: Array, relations: Relations) -> MetricLearner:  # noqa: N803
        # Distances do not know where the origin is; near the points they lose the fewest digits.
        solution = self._learn(torch.from_numpy(X - X.mean(0)), relations)
        self.components_ = solution.components.numpy()
        self.n_iter_, self.converged_ = max(1, solution.iterations), solution.converged
        return self

    def _validated(self, X: Any) -> Array:  # noqa: N803
        return validate_data(self, X, dtype=np.float64, ensure_min_samples=2)

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        raise NotImplementedError

    def _features(self, X: Array) -> Array:  # noqa: N803
        """Return what the map is applied to."""
        return X

    def _mapped(self, points: Any) -> Array:
        check_is_fitted(self, "components_")
        return self._features(check_array(points, dtype=np.float64)) @ self.components_.T
