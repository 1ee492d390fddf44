"""The weight view: closed forms of the literature, weight rules as losses, types of similarity, curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.mining import MINERS, valid_triplets
from vicinal.objectives import (
    OBJECTIVES,
    binomial_deviance,
    contrastive,
    lifted_structure,
    multi_similarity,
    n_pair,
    proxy_anchor,
    proxy_nca,
    triplet,
)
from vicinal.references import Proxies
from vicinal.weights import SimilarityTypes, objective_from_weights, pair_weights, similarity_types, weight_curves

Pairs = tuple[Tensor, Tensor, Tensor]


@pytest.fixture(params=["batch", "proxies"])
def pairs(request: pytest.FixtureRequest) -> Pairs:
    """Cosines of a batch with itself, or with five references, in float64."""
    generator = torch.Generator().manual_seed(0)
    unit = torch.nn.functional.normalize(torch.randn(9, 4, generator=generator, dtype=torch.float64))
    labels = torch.tensor([0, 1, 0, 2, 2, 1, 0, 1, 2])
    if request.param == "batch":
        same = labels[:, None] == labels
        return unit @ unit.T, same & ~torch.eye(9, dtype=torch.bool), ~same
    references = torch.nn.functional.normalize(torch.randn(5, 4, generator=generator, dtype=torch.float64))
    same = labels[:, None] == torch.tensor([0, 0, 1, 2, 1])
    return unit @ references.T, same, ~same


def by_differences(
    objective: Callable[..., Tensor], pairs: Pairs, *, distances: bool = False, step: float = 1e-6, **options: Any
) -> Tensor:
    """Weights from central differences of the loss, one entry of the matrix at a time."""
    matrix, positive, negative = pairs
    slopes = torch.zeros_like(matrix)
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            moved = []
            for side in (step, -step):
                other = matrix.clone()
                other[i, j] += side
                moved.append(objective(other, positive, negative, **options).item())
            slopes[i, j] = (moved[0] - moved[1]) / (2 * step)
    pull = slopes if distances else -slopes
    return torch.where(positive, pull, torch.where(negative, -pull, 0.0))


def check(objective: Callable[..., Tensor], closed: Tensor, pairs: Pairs, **options: Any) -> None:
    distances = objective in (triplet, proxy_nca)
    assert closed.abs().max() > 0.01
    assert (pair_weights(objective, *pairs, **options) - closed).abs().max() < 1e-9
    assert (by_differences(objective, pairs, distances=distances, **options) - closed).abs().max() < 1e-6


def closed_form(
    pairs: Pairs, pull: Callable[[Tensor, Tensor, Tensor], Tensor], push: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """Row by row: `pull` and `push` of a similarity, those of the anchor's positives and those of its negatives."""
    matrix, positive, negative = pairs
    found = torch.zeros_like(matrix)
    for i, row in enumerate(matrix):
        P, N = row[positive[i]], row[negative[i]]
        for j, s in enumerate(row):
            if positive[i, j]:
                found[i, j] = pull(s, P, N)
            elif negative[i, j]:
                found[i, j] = push(s, P, N)
    return found


def test_contrastive(pairs: Pairs) -> None:
    """Equation 6: one for a positive, one for a negative above the threshold."""
    closed = closed_form(pairs, lambda s, P, N: torch.ones(()), lambda s, P, N: (s > 0.2).double())
    check(contrastive, closed / 9, pairs, threshold=0.2)


def test_triplet(pairs: Pairs) -> None:
    """Equation 8: one for each active triplet [s_an - s_ap + margin]_+ that a pair is in."""
    closed = closed_form(pairs, lambda s, P, N: (N - s + 0.1 > 0).sum(), lambda s, P, N: (s - P + 0.1 > 0).sum())
    active = closed[pairs[1]].sum()
    assert active == closed[pairs[2]].sum()
    check(triplet, closed / active, (1 - pairs[0], *pairs[1:]), margin=0.1)


def test_lifted_structure(pairs: Pairs) -> None:
    """Equation 10, and 11 with its second expression mended: e^s over the sum of e^s, not of e^-s."""

    def is_open(P: Tensor, N: Tensor) -> Tensor:
        return (0.5 + torch.log(torch.exp(-P).sum()) + torch.log(torch.exp(N).sum()) > 0).double()

    closed = closed_form(
        pairs,
        lambda s, P, N: is_open(P, N) / torch.exp(s - P).sum(),
        lambda s, P, N: is_open(P, N) / torch.exp(N - s).sum(),
    )
    check(lifted_structure, closed / 9, pairs, margin=0.5)
    printed = closed_form(pairs, lambda s, P, N: s * 0, lambda s, P, N: is_open(P, N) / torch.exp(s - N).sum())
    assert (pair_weights(lifted_structure, *pairs) - printed / 9)[pairs[2]].abs().max() > 0.01


def test_binomial_deviance(pairs: Pairs) -> None:
    """Equations 13 and 14: sigmoids of the own similarity, shared out."""
    a, b, g = 2.0, 10.0, 0.3
    closed = closed_form(
        pairs,
        lambda s, P, N: a / len(P) / (1 + torch.exp(-a * (g - s))),
        lambda s, P, N: b / len(N) / (1 + torch.exp(-b * (s - g))),
    )
    check(binomial_deviance, closed / 9, pairs, positive_scale=a, negative_scale=b, threshold=g)


def raw_weights(matrix: Tensor, positive: Tensor, negative: Tensor, a: float, b: float, g: float) -> Tensor:
    """Equations 15 and 16: one over relative plus absolute hardness."""
    return closed_form(
        (matrix, positive, negative),
        lambda s, P, N: 1 / (torch.exp(a * (s - P)).sum() + torch.exp(a * (s - g))),
        lambda s, P, N: 1 / (torch.exp(-b * (s - N)).sum() + torch.exp(-b * (s - g))),
    )


@pytest.mark.parametrize("mined", [False, True])
def test_raw(pairs: Pairs, mined: bool) -> None:
    kept: Pairs = (pairs[0], *valid_triplets(*pairs)) if mined else pairs
    a, b, g = 2.0, 10.0, 0.5
    closed = raw_weights(*kept, a, b, g) / 9
    check(multi_similarity, closed, kept, positive_scale=a, negative_scale=b, threshold=g)
    assert (closed.mul(kept[1]).sum(1) < 1 / 9).all()
    assert (closed.mul(kept[2]).sum(1) < 1 / 9).all()


def test_proxy_anchor(pairs: Pairs) -> None:
    """Equation 2.32 of the thesis with its exponentials restored, column by column."""
    a, m = 8.0, 0.1
    matrix, positive, negative = pairs
    closed = torch.zeros_like(matrix)
    with_positives = int(positive.any(0).sum())
    for j in range(matrix.shape[1]):
        pull, push = torch.exp(-a * (matrix[:, j] - m)), torch.exp(a * (matrix[:, j] + m))
        P, N = positive[:, j], negative[:, j]
        closed[P, j] = a * pull[P] / (1 + pull[P].sum()) / with_positives
        closed[N, j] = a * push[N] / (1 + push[N].sum()) / matrix.shape[1]
    check(proxy_anchor, closed, pairs, margin=m, scale=a)


def test_proxy_nca() -> None:
    """Equation 2.28: a constant pull, and pushes that share one unit by a soft-max over the other proxies."""
    matrix = torch.rand(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    positive = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 3, 0, 1]), 4).bool()
    closed = closed_form(
        (-matrix, positive, ~positive),
        lambda s, P, N: torch.ones(()),
        lambda s, P, N: torch.exp(s) / torch.exp(N).sum(),
    )
    check(proxy_nca, closed / 6, (matrix, positive, ~positive))


def test_symmetric_weights_average_both_directions(pairs: Pairs) -> None:
    if pairs[0].shape[0] != pairs[0].shape[1]:
        with pytest.raises(InputError, match=r"symmetric weights need as many references as anchors; got .*\[9, 5\]"):
            pair_weights(multi_similarity, *pairs, symmetric=True)
        return
    one_way = pair_weights(multi_similarity, *pairs)
    torch.testing.assert_close(pair_weights(multi_similarity, *pairs, symmetric=True), (one_way + one_way.T) / 2)


def test_pair_weights_work_without_gradient_mode_and_leave_the_matrix_alone(pairs: Pairs) -> None:
    expected = pair_weights(multi_similarity, *pairs)
    with torch.no_grad():
        assert torch.equal(pair_weights(multi_similarity, *pairs), expected)
    assert pairs[0].grad is None
    assert not pairs[0].requires_grad


def test_a_weight_rule_is_a_loss_with_that_gradient(pairs: Pairs) -> None:
    rule = partial(raw_weights, a=2.0, b=10.0, g=0.5)
    assert (pair_weights(objective_from_weights(rule), *pairs) - rule(*pairs)).abs().max() < 1e-12


def test_a_weight_rule_on_distances(pairs: Pairs) -> None:
    def nearest_pairs(matrix: Tensor, positive: Tensor, negative: Tensor, *, sharpness: float = 1.0) -> Tensor:
        assert not torch.is_grad_enabled()
        return torch.exp(-sharpness * matrix)

    loss = objective_from_weights(nearest_pairs, similarity=False)
    distances = 1 - pairs[0]
    expected = torch.where(pairs[1] | pairs[2], torch.exp(-3 * distances), 0.0)
    torch.testing.assert_close(pair_weights(loss, distances, *pairs[1:], sharpness=3.0), expected)
    leaf = distances.requires_grad_()
    loss(leaf, *pairs[1:]).backward()
    assert (leaf.grad[pairs[1]] > 0).all()
    assert (leaf.grad[pairs[2]] < 0).all()
    assert loss.__name__ == "nearest_pairs"


def test_raw_as_a_rule_trains_like_multi_similarity() -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(9, 4, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.arange(9) % 3

    def rule(matrix: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return raw_weights(matrix, positive, negative, 2.0, 50.0, 0.5) / len(matrix)

    gradients = [
        torch.autograd.grad(Criterion(loss, mining="valid_triplets")(embeddings, labels), embeddings)[0]
        for loss in (objective_from_weights(rule), multi_similarity)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_a_weight_rule_must_return_one_weight_per_pair(pairs: Pairs) -> None:
    loss = objective_from_weights(lambda matrix, positive, negative: matrix.sum(1))
    with pytest.raises(InputError, match=r"A weight rule must return one weight per pair, \[9, \d\]; got \[9\]"):
        loss(*pairs)


@pytest.mark.parametrize(
    ("objective", "mining", "types"),
    [
        (contrastive, None, "S"),
        (triplet, None, "P"),
        (lifted_structure, None, "N"),
        (n_pair, None, "N"),
        (multi_similarity, valid_triplets, "SNP"),
        (binomial_deviance, None, "S"),
        (multi_similarity, None, "SN"),
    ],
)
def test_types_of_similarity(objective: Any, mining: Any, types: str) -> None:
    """Table 1 of the thesis (the first five), and what taking parts of multi-similarity away leaves."""
    found = similarity_types(objective, mining=mining, seed=1)
    assert found == SimilarityTypes(own="S" in types, negative="N" in types, positive="P" in types)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_types_and_curves_of_every_objective(name: str) -> None:
    assert isinstance(similarity_types(OBJECTIVES[name], trials=5), SimilarityTypes)
    curves = weight_curves(OBJECTIVES[name], points=9)
    assert curves.similarity.shape == curves.positive.shape == curves.negative.shape == (9,)
    assert curves.positive.isfinite().all()
    assert curves.negative.isfinite().all()
    # proxy_repulsion and proxy_gram push references, not items, apart: what they do to a negative pair may be nothing.
    # Cross-entropy leaves the other classes to the soft-max.
    assert curves.positive.any()
    assert curves.negative.any() or name in ("proxy_repulsion", "cross_entropy")


def test_curve_of_multi_similarity_in_closed_form() -> None:
    positives, negatives = (0.4, 0.6), (0.1, 0.3)
    curves = weight_curves(multi_similarity, points=21, positives=positives, negatives=negatives)
    for s, pull, push in zip(curves.similarity.tolist(), curves.positive, curves.negative, strict=True):
        pulled = 1 / (1 + math.exp(2 * (s - 0.6)) + math.exp(2 * (s - 0.5)))
        pushed = 1 / (1 + math.exp(-50 * (s - 0.3)) + math.exp(-50 * (s - 0.5)))
        assert pull.item() == pytest.approx(pulled, rel=1e-9)
        assert push.item() == pytest.approx(pushed, rel=1e-9)


def test_curves_with_a_miner_and_of_distances() -> None:
    mined = weight_curves(multi_similarity, mining=MINERS["valid_triplets"], points=41)
    free = weight_curves(multi_similarity, points=41)
    dropped = mined.negative == 0
    assert dropped.any()
    assert (free.negative[dropped] > 0).all()
    c2 = weight_curves(OBJECTIVES["contrastive_c2"], points=41)
    # A negative is pushed while its distance is below 0.5, that is while its cosine is above 1 - 0.5^2 / 2.
    assert torch.equal(c2.negative > 0, c2.similarity > 0.875)


def test_weights_of_proxies_match_what_the_criterion_trains() -> None:
    """Through the criterion the gradient of an embedding is the weighted sum over references."""
    generator = torch.Generator().manual_seed(0)
    unit = torch.nn.functional.normalize(torch.randn(5, 4, generator=generator, dtype=torch.float64)).requires_grad_()
    proxies = Proxies(3, 4).double()
    proxies.assign(torch.nn.functional.normalize(proxies.vectors.detach()))
    labels = torch.tensor([0, 1, 2, 0, 1])
    criterion = Criterion("proxy_anchor", references=proxies, geometry="dot")
    (found,) = torch.autograd.grad(criterion(unit, labels), unit)
    positive = labels[:, None] == torch.arange(3)
    weights = pair_weights(proxy_anchor, unit.detach() @ proxies.vectors.detach().T, positive, ~positive)
    expected = torch.where(positive, -weights, weights) @ proxies.vectors.detach()
    torch.testing.assert_close(found, expected)


def test_a_loss_on_distances_is_a_step_in_the_cosine_view() -> None:
    curve = weight_curves(OBJECTIVES["triplet"], points=41, geometry="cosine")
    assert len(set(curve.negative[2:-2].round(decimals=6).tolist())) <= 4  # a step for each positive that it passes
    with pytest.raises(InputError, match="cannot be used with geometry"):
        weight_curves(OBJECTIVES["contrastive"], geometry="euclidean")
