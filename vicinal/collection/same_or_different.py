"""Same or different as a scikit-learn estimator: a threshold at a rate of false matches, fitted on embeddings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from vicinal.embedder.calibration import Calibration
from vicinal.errors import InputError
from vicinal.evaluation.threshold import choose_threshold
from vicinal.neighbours.inputs import as_embeddings
from vicinal.neighbours.similarity import exact_pairs, readable, vectors

__all__ = ["SameOrDifferent"]


class SameOrDifferent(BaseEstimator):  # type: ignore[misc]
    """Predicts whether two items belong to the same class, at a rate of false matches for unseen classes.

    What is known of this rate depends on the level, and the level on the number of classes; see
    `vicinal.evaluation.threshold`. Fit it on classes that were not used to train the embeddings.

    It is fitted on items and predicts pairs: an array [n, 2, d], or a matrix [2 n, d] in which two consecutive rows are
    a pair, so that earlier steps of a Pipeline can transform them.

    Args:
        false_matches: Share of the pairs of items of two new classes that may be called the same.
        level: "estimate", "bound", "average", "guarantee" or "auto".
        per: "classes" if every pair of classes counts the same, "items" if every pair of items does.
        confidence: Confidence of a bound, a guarantee or the interval of an estimate.
        distance: "cosine" or "euclidean".
        prior: Prior probability of "same", for `predict_proba`.

    Attributes:
        threshold_: Similarity from which two items are called the same: the cosine, or minus the distance.
        calibration_: The threshold with all that is known of it; `print(rule.calibration_)` says it in words.
        classes_: Different and same: False and True.
        n_features_in_: Dimension of the embeddings.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> labels = np.repeat(np.arange(80), 3)
        >>> items = rng.normal(size=(80, 8))[labels] + 0.2 * rng.normal(size=(240, 8))
        >>> rule = SameOrDifferent(false_matches=0.1).fit(items, labels)
        >>> rule.predict([[items[0], items[1]], [items[0], items[3]]])
        array([ True, False])
    """

    def __init__(
        self,
        false_matches: float = 0.01,
        level: str = "auto",
        per: str = "classes",
        confidence: float = 0.95,
        distance: str = "cosine",
        prior: float = 0.5,
    ) -> None:
        self.false_matches, self.level, self.per, self.confidence = false_matches, level, per, confidence
        self.distance, self.prior = distance, prior

    def fit(self, X: Any, y: Any) -> SameOrDifferent:  # noqa: N803
        """Choose the threshold.

        Args:
            X: One row per item.
            y: Class of each item.

        Raises:
            InputError: If there are too few classes for the level; the message says how many are needed.
        """
        rows = as_embeddings(X)
        chosen = choose_threshold(
            rows,
            y,
            false_matches=self.false_matches,
            level=self.level,
            per=self.per,
            confidence=self.confidence,
            distance=self.distance,
        )
        self.calibration_ = Calibration(**asdict(chosen))
        self.threshold_ = chosen.threshold
        self.classes_, self.n_features_in_ = np.array([False, True]), rows.shape[1]
        return self

    def similarity(self, X: Any) -> Float64[np.ndarray, " n"]:  # noqa: N803
        """Return the cosine of each pair, or minus its distance."""
        check_is_fitted(self, "threshold_")
        first, second = self._sides(X)
        left, right = vectors(first, second, distance=self.distance)
        each = torch.arange(len(first))
        values = readable(exact_pairs(left, each, right, each[:, None]), right)[:, 0].numpy()
        return values if self.distance == "cosine" else 0.0 - values

    def decision_function(self, X: Any) -> Float64[np.ndarray, " n"]:  # noqa: N803
        """Return how far each pair is above the threshold."""
        return self.similarity(X) - self.threshold_

    def predict(self, X: Any) -> Bool[np.ndarray, " n"]:  # noqa: N803
        """Return whether each pair is the same."""
        return self.similarity(X) >= self.threshold_

    def predict_proba(self, X: Any) -> Float64[np.ndarray, "n 2"]:  # noqa: N803
        """Return the probabilities of different and same, by isotonic regression on the classes of the fit."""
        similarity = self.similarity(X)
        same = self.calibration_.probability(similarity, prior=self.prior)
        return np.column_stack([1 - same, same])

    def _sides(self, pairs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        array = np.asarray(pairs.detach().cpu() if isinstance(pairs, torch.Tensor) else pairs)
        if array.ndim == 3 and array.shape[1] == 2:
            array = array.reshape(-1, array.shape[2])
        if array.ndim != 2 or len(array) % 2 or array.shape[1] != self.n_features_in_:
            dim = self.n_features_in_
            raise InputError(
                f"Pairs must be an array [n, 2, {dim}], or a matrix [2 n, {dim}] in which two consecutive rows are a "
                f"pair; got the shape {list(array.shape)}."
            )
        rows = as_embeddings(array)
        return rows[0::2], rows[1::2]
