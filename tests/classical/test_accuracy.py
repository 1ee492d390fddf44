"""What the learners reach, each against a bound a little below what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler
from torch.utils._python_dispatch import TorchDispatchMode

from vicinal.classical import LMNN, MCML, NCA, POLA, KwokTsang, RelativeHinge, SchultzJoachims, SimilarityHinge
from vicinal.classical.lmnn import over_impostors
from vicinal.classical.relations import from_labels, nearest_positives
from vicinal.classical.solvers import ENTRIES, over_masks
from vicinal.objectives import lmnn

pytestmark = pytest.mark.recipe

BOUNDS = [
    (LMNN(), "wine", 0.965),
    (LMNN(), "iris+noise", 0.86),
    (MCML(), "wine", 0.965),
    (MCML(), "iris+noise", 0.89),
    (RelativeHinge(), "wine", 0.96),
    (RelativeHinge(), "iris+noise", 0.82),
    (RelativeHinge(regulariser="trace", weight=10.0), "wine", 0.96),
    (RelativeHinge(regulariser="trace", weight=10.0), "iris+noise", 0.82),
    (SimilarityHinge(), "wine", 0.965),
    (SimilarityHinge(), "iris+noise", 0.84),
    (SchultzJoachims(), "iris+noise", 0.90),
    (KwokTsang(), "wine", 0.96),
    (KwokTsang(), "iris+noise", 0.78),
    (POLA(), "wine", 0.96),
]


@pytest.mark.parametrize(
    ("learner", "data", "bound"),
    BOUNDS,
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else str(value),
)
def test_three_neighbours(accuracy: Any, learner: Any, data: str, bound: float) -> None:
    assert accuracy(learner, data) >= bound


def test_noise_columns_mislead_the_euclidean_distance(accuracy: Any) -> None:
    assert accuracy(None, "iris+noise") < 0.75


def test_feature_weights_need_no_standardising(accuracy: Any) -> None:
    assert accuracy(None, "wine", standardise=False) < 0.70
    assert accuracy(SchultzJoachims(), "wine", standardise=False) >= 0.94


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("data", ["iris", "wine"])
def test_nca_is_as_good_as_that_of_scikit_learn(accuracy: Any, data: str) -> None:
    peer = NeighborhoodComponentsAnalysis(init="identity", max_iter=50)
    assert accuracy(NCA(init="identity"), data) == pytest.approx(accuracy(peer, data), abs=0.01)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, ...]:
    points, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(points))
    train, test = order[:600], order[600:1200]
    scaler = StandardScaler().fit(points[train])
    return scaler.transform(points[train]), labels[train], scaler.transform(points[test]), labels[test]


def find_neighbours(learner: Any, digits: tuple[np.ndarray, ...]) -> float:
    seen, classes, new, expected = digits
    learner.fit(seen, classes)
    return KNeighborsClassifier(3).fit(learner.transform(seen), classes).score(learner.transform(new), expected)


def test_digits_in_two_dimensions(digits: Any) -> None:
    assert find_neighbours(NCA(2), digits) >= 0.68
    assert find_neighbours(MCML(2), digits) >= 0.69


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_nca_of_digits_is_as_good_as_that_of_scikit_learn(digits: Any) -> None:
    peer = NeighborhoodComponentsAnalysis(init="identity", max_iter=50)
    assert find_neighbours(NCA(init="identity"), digits) == pytest.approx(find_neighbours(peer, digits), abs=0.01)


class Largest(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())  # not its storage: the masks are views of theirs
        return result


def test_lmnn_of_digits_never_makes_the_whole_matrix() -> None:
    points, labels = load_digits(return_X_y=True)
    tensor, known = torch.from_numpy(points / 16), from_labels(labels)
    targets = nearest_positives(tensor, known, 3)
    plain, listed = over_masks(lmnn, targets, known.negative, by_anchor=True), over_impostors(targets, known.negative)
    to_targets = points.size * 3
    for cost, most in ((plain, ENTRIES), (listed, max(ENTRIES, to_targets))):
        with Largest() as seen:
            cost(tensor, tensor)
        assert 0 < seen.elements <= most < len(points) ** 2 / 5
