"""Forces, solvers and what they reach."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from torch import Tensor

from vicinal.classical import LMNN, MCML, NCA, RelativeHinge, SimilarityHinge
from vicinal.classical import lmnn as impostors
from vicinal.classical.kwok_tsang import idealised
from vicinal.classical.learner import frobenius, regulariser_for, spread
from vicinal.classical.nca import over_neighbours
from vicinal.classical.relations import Relations, from_labels, from_triplets, nearest_positives
from vicinal.classical.relative_hinge import relative_hinge
from vicinal.classical.similarity_hinge import similarity_hinge
from vicinal.classical.solvers import factor, learn_map, learn_matrix, over_masks, over_triplets, to_cone
from vicinal.objectives import lmnn, mcml, nca
from vicinal.pairs import squared_euclidean

BEFORE = torch.rand(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(9)) * 4
OBJECTIVES = {
    "nca": nca,
    "mcml": mcml,
    "lmnn": lmnn,
    "similarity": partial(similarity_hinge, near=1.0, far=5.0),
    "relative": relative_hinge,
    "idealised": partial(idealised, before=BEFORE, share=0.3),
}
BY_ANCHOR = ("nca", "mcml", "lmnn", "relative")


@pytest.fixture
def problem() -> tuple[Tensor, Relations]:
    random = np.random.RandomState(3)
    return torch.from_numpy(random.randn(12, 4)), from_labels(np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3]))


def slope_of(function: Callable[[Tensor], float], at: Tensor, width: float = 1e-5) -> Tensor:
    """Central differences."""
    slope = torch.zeros_like(at)
    for entry in range(at.numel()):
        there = torch.zeros_like(at)
        there.view(-1)[entry] = width
        slope.view(-1)[entry] = (function(at + there) - function(at - there)) / (2 * width)
    return slope


@pytest.mark.parametrize("name", OBJECTIVES)
def test_forces_are_the_derivatives_for_map_and_matrix(problem: Any, name: str) -> None:
    points, known = problem
    cost = over_masks(OBJECTIVES[name], known.positive, known.negative)
    start = torch.from_numpy(np.random.RandomState(4).randn(3, 4))
    moved = points @ start.T
    by_forces = cost(moved, moved)[1].T @ points
    expected = slope_of(lambda g: cost(points @ g.T, points)[0], start)
    assert (by_forces - expected).norm() < 1e-6 * expected.norm()

    matrix = start.T @ start
    by_matrix = points.T @ cost(moved, points)[1] / 2
    torch.testing.assert_close(2 * start @ by_matrix, by_forces, rtol=1e-10, atol=1e-12)  # dL/dG = 2 G dL/dA
    weights = weights_of(OBJECTIVES[name], squared_euclidean(moved, moved), known)
    loops = sum(
        float(weights[i, j]) * torch.outer(points[i] - points[j], points[i] - points[j])
        for i in range(12)
        for j in range(12)
    )
    torch.testing.assert_close(by_matrix, loops, rtol=1e-10, atol=1e-12)
    assert torch.linalg.matrix_rank(matrix) == 3


def weights_of(objective: Any, matrix: Tensor, known: Relations) -> Tensor:
    leaf = matrix.clone().requires_grad_()
    return torch.autograd.grad(objective(leaf, known.positive, known.negative), leaf)[0]


@pytest.mark.parametrize("name", BY_ANCHOR)
def test_rows_at_a_time_change_nothing(problem: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points, known = problem
    whole = over_masks(OBJECTIVES[name], known.positive, known.negative)(points, points)
    monkeypatch.setattr("vicinal.classical.solvers.ENTRIES", 30)  # two rows of twelve
    parts = over_masks(OBJECTIVES[name], known.positive, known.negative, by_anchor=True)(points, points)
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    torch.testing.assert_close(parts[1], whole[1], rtol=1e-10, atol=1e-12)


def test_triplets_are_anchors_of_their_own(problem: Any) -> None:
    points, _ = problem
    triplets = torch.tensor([[0, 1, 4], [0, 2, 5], [7, 6, 3], [0, 1, 5]])
    value, forces = over_triplets(relative_hinge, triplets)(points, points)
    leaf = points.clone().requires_grad_()
    near, far = ((leaf[triplets[:, 0]] - leaf[triplets[:, column]]).square().sum(1) for column in (1, 2))
    expected = (1 + near - far).relu().mean()
    assert value == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(forces, torch.autograd.grad(expected, leaf)[0], rtol=1e-10, atol=1e-12)
    assert torch.equal(from_triplets(12, triplets.numpy()).triplets, triplets)


def test_relative_hinge_visits_every_triplet(problem: Any) -> None:
    points, known = problem
    matrix = squared_euclidean(points, points)
    means = []
    for row, positive, negative in zip(matrix, known.positive, known.negative, strict=True):
        hinges = [max(0.0, 1 + float(near - far)) for near in row[positive] for far in row[negative]]
        means += [np.mean(hinges)] if hinges else []
    assert relative_hinge(matrix, known.positive, known.negative).item() == pytest.approx(np.mean(means), rel=1e-12)


def test_the_gap_of_the_idealised_kernel_is_the_best_one(problem: Any) -> None:
    points, known = problem
    matrix = squared_euclidean(points, points)
    gained = (matrix - BEFORE)[known.negative]
    best = min(
        float((gap - gained).relu().mean() - 0.3 * gap) for gap in torch.linspace(0, 40, 40001, dtype=torch.float64)
    )
    pulled = float((matrix - BEFORE)[known.positive].relu().mean())
    found = idealised(matrix, known.positive, known.negative, before=BEFORE, share=0.3).item()
    assert found == pytest.approx(pulled + best, abs=1e-3)
    assert found <= pulled + best + 1e-12


@pytest.mark.parametrize("name", ["mcml", "lmnn", "similarity", "relative", "idealised"])
def test_convex_in_the_matrix(problem: Any, name: str) -> None:
    points, known = problem
    cost = over_masks(OBJECTIVES[name], known.positive, known.negative)
    random = np.random.RandomState(5)

    def value(matrix: Tensor) -> float:
        return cost(points @ factor(matrix).T, points)[0]

    for _ in range(200):
        one, two = (torch.from_numpy(g.T @ g) for g in random.randn(2, 4, 4))
        t = random.rand()
        assert value(t * one + (1 - t) * two) <= t * value(one) + (1 - t) * value(two) + 1e-9


def test_the_spread_of_positives_makes_the_trace_their_mean_distance(problem: Any) -> None:
    points, known = problem
    start = torch.from_numpy(np.random.RandomState(4).randn(3, 4))
    toll = regulariser_for("trace", 1.0, points, known.positive)
    assert toll is not None
    moved = points @ start.T
    expected = squared_euclidean(moved, moved)[known.positive].mean().item()
    assert toll(start.T @ start)[0] == pytest.approx(expected, rel=1e-10)
    torch.testing.assert_close(spread(points, known.positive), spread(points, known.positive).T)


def test_cone_and_factor() -> None:
    matrix = torch.tensor([[2.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(to_cone(matrix), torch.tensor([[2.0, 0.0], [0.0, 0.0]], dtype=torch.float64))
    wide = torch.from_numpy(np.random.RandomState(0).randn(3, 6))
    found = factor(wide.T @ wide)
    assert found.shape == (3, 6)
    torch.testing.assert_close(found.T @ found, wide.T @ wide)
    assert factor(torch.zeros(3, 3, dtype=torch.float64)).shape == (1, 3)


@pytest.mark.parametrize("name", ["mcml", "similarity", "relative"])
def test_both_solvers_reach_the_same_minimum_of_a_convex_model(iris: Any, name: str) -> None:
    points, known = torch.from_numpy(iris[0][::3].copy()), from_labels(iris[1][::3])
    objective = partial(similarity_hinge, near=0.5, far=8.0) if name == "similarity" else OBJECTIVES[name]
    cost = over_masks(objective, known.positive, known.negative)
    simple = frobenius(1e-2)
    start = torch.eye(4, dtype=torch.float64)
    by_map = learn_map(points, cost, start, regulariser=simple, max_iter=500, tol=1e-9)
    by_matrix = learn_matrix(points, cost, start, regulariser=simple, max_iter=1000, tol=1e-7)
    assert by_matrix.value == pytest.approx(by_map.value, rel=2e-3)
    far_start = 5 * torch.eye(4, dtype=torch.float64)
    again = learn_matrix(points, cost, far_start, regulariser=simple, max_iter=1000, tol=1e-7)
    assert again.value == pytest.approx(by_matrix.value, rel=2e-3)


@pytest.mark.parametrize("learner", [MCML, LMNN, SimilarityHinge, RelativeHinge])
def test_the_matrix_solver_learns_as_the_map_solver(learner: Any, wine: Any) -> None:
    points, labels = wine
    first, second = (learner(solver=solver).fit(points, labels).transform(points) for solver in ("map", "matrix"))
    distances = [np.linalg.norm(z[:60, None] - z[None, 60:], axis=2).ravel() for z in (first, second)]
    assert np.corrcoef(*distances)[0, 1] > 0.99


def test_targets_are_the_nearest_of_the_own_class(problem: Any) -> None:
    points, known = problem
    kept = nearest_positives(points, known, 2)
    assert kept.sum(1).tolist() == [2] * 11 + [0]
    assert not (kept & ~known.positive).any()
    without_classes = Relations(known.positive, known.negative)  # which then searches among all points
    assert torch.equal(kept, nearest_positives(points, without_classes, 2))


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("dim", [None, 2])
def test_nca_minimises_what_scikit_learn_minimises(wine: Any, dim: int | None) -> None:
    points, labels = wine
    start = np.eye(13)[:dim]
    ours = NCA(dim, init=start, max_iter=10, tol=1e-12).fit(points, labels)
    peer = NeighborhoodComponentsAnalysis(dim, init=start, max_iter=10, tol=1e-12)
    peer.fit(points, labels)
    a, b = (z.components_.T @ z.components_ for z in (ours, peer))
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(b).max())


@pytest.mark.parametrize("whole", [0, 2**20])
def test_nca_by_its_formula_is_nca(problem: Any, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    points, known = problem  # whose last class has a single point, which is no anchor
    monkeypatch.setattr("vicinal.classical.nca.ENTRIES", 30)
    monkeypatch.setattr("vicinal.classical.nca.WHOLE", whole)
    for scale in (0.1, 1.0, 30.0):
        moved = scale * points
        value, forces = over_neighbours(known.positive, known.negative)(moved, points)
        expected = over_masks(nca, known.positive, known.negative)(moved, points)
        assert value == pytest.approx(expected[0], rel=1e-12)
        torch.testing.assert_close(forces, expected[1], rtol=1e-10, atol=1e-12)


def wandering_maps(points: Tensor, count: int, step: float) -> list[Tensor]:
    """Points under maps that change a little from one to the next, and now and then a lot."""
    random = np.random.RandomState(5)
    size, moved = points.shape[1], []
    components = np.eye(size)
    for number in range(count):
        components = components + (10 * step if number % 7 == 6 else step) * random.randn(size, size)
        moved.append(points @ torch.from_numpy(components).T * (1 + 0.1 * number))
    return moved


@pytest.mark.parametrize(("spread_of_classes", "share"), [(6.0, 0.05), (1.0, 0.05), (1.0, 1.0)])
def test_lmnn_from_its_impostors_alone_is_lmnn(
    spread_of_classes: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether few are impostors or many: then the list is given up, unless it may hold all pairs."""
    monkeypatch.setattr("vicinal.classical.lmnn.MANY", share)
    random = np.random.RandomState(0)
    labels = np.append(np.repeat(np.arange(6), 20), 6)  # the last point is alone and no anchor
    points = torch.from_numpy(spread_of_classes * random.randn(7, 5)[labels] + 0.3 * random.randn(len(labels), 5))
    known = from_labels(labels)
    targets = nearest_positives(points, known, 3)
    targets[0, targets[0].nonzero()[0]] = False  # one with fewer targets than the others
    searches, plain = [], over_masks(partial(lmnn, push=0.7, margin=2.0), targets, known.negative, by_anchor=True)
    search = impostors._ListedNegatives._search
    monkeypatch.setattr(impostors._ListedNegatives, "_search", lambda *given: searches.append(1) or search(*given))
    cost = impostors.over_impostors(targets, known.negative, push=0.7, margin=2.0)
    for moved in wandering_maps(points, 30, 0.0005):
        value, forces = cost(moved, points)
        expected = plain(moved, points)
        assert value == pytest.approx(expected[0], rel=1e-10)
        torch.testing.assert_close(forces, expected[1], rtol=1e-9, atol=1e-11)
    assert 0 < len(searches) < 30  # of 30 evaluations: the list, or the whole matrix, did for the rest


@pytest.mark.parametrize(("scale", "away"), [(1.0, 0.0), (1.0, 300.0), (1e-3, 0.0), (1e17, 0.0)])
def test_impostors_are_found_in_single_precision_however_large_or_far_the_points(scale: float, away: float) -> None:
    random = np.random.RandomState(1)
    labels = np.repeat(np.arange(10), 20)
    points = torch.from_numpy(scale * (4.0 * random.randn(10, 6)[labels] + random.randn(200, 6)) + away)
    known = from_labels(labels)
    apart = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").square()
    reach = apart.masked_fill(~known.positive, torch.inf).amin(1) * 3.0
    listed = impostors._ListedNegatives(known.negative, torch.ones(200, dtype=torch.bool))
    found = listed.inside(points, reach)
    assert found is not None
    anchors, others, distances = found
    expected = (known.negative & (apart < reach.unsqueeze(1))).nonzero()
    assert len(expected) > 20
    assert torch.equal(torch.stack([anchors, others], 1), expected)
    torch.testing.assert_close(distances, apart[anchors, others], rtol=1e-12, atol=0.0)
