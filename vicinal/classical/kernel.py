"""Kernels: any linear learner in the feature space of a kernel, and nearest neighbours there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from vicinal.classical.learner import Array, MetricLearner
from vicinal.classical.mcml import MCML
from vicinal.classical.relations import Relations
from vicinal.errors import InputError, UnknownName

__all__ = ["KernelNeighbours", "Kernelised", "coordinates", "gaussian", "polynomial"]

Kernel = Callable[[Array, Array], Array]


def polynomial(degree: int = 2, constant: float = 1.0) -> Kernel:
    """Return the kernel (x . y + constant)^degree.

    Example:
        >>> float(polynomial(2)(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0]]))[0, 0])
        16.0
    """
    if degree < 1 or constant < 0:
        raise InputError(f"A polynomial kernel needs degree >= 1 and constant >= 0; got {degree} and {constant}.")
    return partial(_polynomial, degree=degree, constant=constant)


def gaussian(width: float = 1.0) -> Kernel:
    """Return the kernel e^(-||x - y||^2 / (2 width^2)).

    Example:
        >>> float(gaussian(1.0)(np.array([[0.0]]), np.array([[0.0]]))[0, 0])
        1.0
    """
    if not width > 0:
        raise InputError(f"A Gaussian kernel needs a width above 0; got {width!r}.")
    return partial(_gaussian, width=width)


def coordinates(gram: Array) -> Array:
    """Return P such that the rows of gram @ P have the inner products of the kernel: z(x) = P^T k_x.

    Directions whose eigenvalue is zero up to rounding are left out.

    Example:
        >>> gram = np.array([[2.0, 1.0], [1.0, 2.0]])
        >>> z = gram @ coordinates(gram)
        >>> (z @ z.T).round(9).tolist()
        [[2.0, 1.0], [1.0, 2.0]]
    """
    values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
    if values[0] < -1e-8 * max(values[-1], 0.0) or not values[-1] > 0:
        raise InputError(
            "The kernel is not positive semi-definite on these points: the eigenvalues of its matrix are "
            f"{values[0]:.3g} to {values[-1]:.3g}."
        )
    positive = values > 1e-10 * values[-1]
    return (vectors[:, positive] / np.sqrt(values[positive]))[:, ::-1]


class Kernelised(MetricLearner):
    """Any linear learner, in the feature space of a kernel.

    The training points have exact coordinates there, at most as many as there are points; the learner works on those.

    Args:
        learner: Metric learner; None for `MCML()`.
        kernel: "gaussian", "polynomial", or a function of two arrays of points that returns their kernel matrix.
        width: Width of the Gaussian kernel; None for the median distance of the training points.
        degree: Degree of the polynomial kernel.
        constant: Constant of the polynomial kernel.

    Attributes:
        learner_: Learner that was trained in the feature space of the kernel.
        points_: Training points.
        components_: Map from the kernel values of a point with the training points to the learned space.

    Reference:
        Chatpatanasiri et al., "A new kernelization framework for Mahalanobis distance learning", 2010.

    Example:
        >>> xor = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
        >>> learner = Kernelised(MCML(), kernel="polynomial").fit(xor, [0, 0, 1, 1])
        >>> bool(learner.pair_distance(xor[:1], xor[1:2])[0] < learner.pair_distance(xor[:1], xor[2:3])[0])
        True
    """

    def __init__(
        self,
        learner: MetricLearner | None = None,
        *,
        kernel: str | Kernel = "gaussian",
        width: float | None = None,
        degree: int = 2,
        constant: float = 1.0,
    ) -> None:
        self.learner = learner
        self.kernel = kernel
        self.width = width
        self.degree = degree
        self.constant = constant

    def _fit(self, X: Array, relations: Relations) -> MetricLearner:  # noqa: N803
        self.points_ = X
        self.kernel_ = _kernel(self, X)
        gram = self.kernel_(X, X)
        basis = coordinates(gram)
        self.learner_ = MCML() if self.learner is None else clone(self.learner)
        mapped = gram @ basis
        self.learner_.n_features_in_ = mapped.shape[1]
        self.learner_._fit(mapped, relations)
        self.components_ = self.learner_.components_ @ basis.T
        self.n_iter_, self.converged_ = self.learner_.n_iter_, self.learner_.converged_
        return self

    def _features(self, X: Array) -> Array:  # noqa: N803
        return self.kernel_(X, self.points_)


class KernelNeighbours(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify by the nearest neighbours in the feature space of a kernel, without computing coordinates there.

    Formula:
        d(q, x)^2 = k(q, q) - 2 k(q, x) + k(x, x)

    With a Gaussian or a linear kernel, the neighbours are those of the Euclidean distance.

    Args:
        n_neighbors: Number of neighbours that vote.
        kernel: "gaussian", "polynomial", or a function of two arrays of points that returns their kernel matrix.
        width: Width of the Gaussian kernel; None for the median distance of the training points.
        degree: Degree of the polynomial kernel.
        constant: Constant of the polynomial kernel.

    Reference:
        Yu, Ji, Zhang, "Kernel nearest-neighbor algorithm", 2002.

    Example:
        >>> points = np.array([[0.0], [1.0], [9.0]])
        >>> KernelNeighbours(1).fit(points, ["a", "a", "b"]).predict([[7.0]]).tolist()
        ['b']
    """

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        kernel: str | Kernel = "gaussian",
        width: float | None = None,
        degree: int = 2,
        constant: float = 1.0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.kernel = kernel
        self.width = width
        self.degree = degree
        self.constant = constant

    def fit(self, X: Any, y: Any) -> KernelNeighbours:  # noqa: N803
        """Store the training points and their classes."""
        X, y = validate_data(self, X, y, dtype=np.float64)  # noqa: N806
        check_classification_targets(y)
        if self.n_neighbors < 1:
            raise InputError(f"n_neighbors must be at least 1; got {self.n_neighbors}.")
        self.classes_, self.labels_ = np.unique(y, return_inverse=True)
        self.points_, self.kernel_ = X, _kernel(self, X)
        self.lengths_ = _lengths(self.kernel_, X)
        return self

    def kneighbours(self, X: Any, neighbours: int | None = None) -> tuple[Array, Array]:  # noqa: N803
        """Return the distances and the indices of the nearest training points, the nearest first."""
        check_is_fitted(self, "points_")
        X = validate_data(self, X, dtype=np.float64, reset=False)  # noqa: N806
        squared = _lengths(self.kernel_, X)[:, None] - 2.0 * self.kernel_(X, self.points_) + self.lengths_
        count = min(neighbours or self.n_neighbors, len(self.points_))
        nearest = np.argsort(squared, axis=1, kind="stable")[:, :count]
        return np.sqrt(np.maximum(np.take_along_axis(squared, nearest, 1), 0.0)), nearest

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return each class's share of the nearest neighbours."""
        _, nearest = self.kneighbours(X)
        votes = (self.labels_[nearest][:, :, None] == np.arange(len(self.classes_))).sum(1)
        return votes / nearest.shape[1]

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the class of most of the nearest neighbours; ties go to the first class."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(1)]


def _polynomial(a: Array, b: Array, degree: int, constant: float) -> Array:
    return (a @ b.T + constant) ** degree


def _gaussian(a: Array, b: Array, width: float) -> Array:
    squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2.0 * a @ b.T
    return np.exp(-np.maximum(squared, 0.0) / (2.0 * width**2))


def _lengths(kernel: Kernel, points: Array) -> Array:
    """Return k(x, x) of each point without computing the whole matrix."""
    return np.concatenate([np.diagonal(kernel(part, part)) for part in np.array_split(points, -(-len(points) // 256))])


def _kernel(estimator: Any, points: Array) -> Kernel:
    """Return the kernel that the arguments of an estimator specify."""
    if callable(estimator.kernel):
        return estimator.kernel
    if estimator.kernel == "polynomial":
        return polynomial(estimator.degree, estimator.constant)
    if estimator.kernel != "gaussian":
        raise UnknownName("kernel", estimator.kernel, ("gaussian", "polynomial"))
    if estimator.width is not None:
        return gaussian(estimator.width)
    median = float(np.median(pdist(points))) if len(points) > 1 else 1.0
    return gaussian(median or 1.0)
