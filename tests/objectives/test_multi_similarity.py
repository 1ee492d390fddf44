"""Multi-similarity loss, also RAW."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses, miners
from torch import Tensor

from vicinal.criterion import Criterion
from vicinal.objectives import multi_similarity, raw


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 0.0, 0.5, 0.52]])
    same = torch.tensor([[True, True, False, False]])
    expected = math.log(1 + 1 + math.e) / 2 + math.log(1 + 1 + math.e) / 50
    assert multi_similarity(matrix, same, ~same).item() == pytest.approx(expected, rel=1e-5)


def test_raw_is_the_same_function(batch: Any) -> None:
    assert raw is multi_similarity
    assert torch.equal(Criterion("raw")(*batch), Criterion("multi_similarity")(*batch))


def paper(embeddings: Tensor, labels: Tensor, epsilon: float, alpha: float, beta: float, threshold: float) -> Tensor:
    """Mining and weighting as the multi-similarity paper defines them, anchor by anchor.

    A negative is kept if its similarity exceeds that of the least similar positive less epsilon, a positive if its
    similarity is below that of the most similar negative plus epsilon; then the sums inside the two logarithms.
    """
    unit = embeddings / embeddings.norm(dim=1, keepdim=True)
    total = embeddings.new_zeros(())
    for i in range(len(labels)):
        similarity = [unit[i] @ unit[k] for k in range(len(labels))]
        positives = [similarity[k] for k in range(len(labels)) if k != i and labels[k] == labels[i]]
        negatives = [similarity[k] for k in range(len(labels)) if labels[k] != labels[i]]
        if positives and negatives:
            kept_positives = [s for s in positives if s < max(negatives) + epsilon]
            kept_negatives = [s for s in negatives if s > min(positives) - epsilon]
            for scale, exponents in (
                (alpha, [-alpha * (s - threshold) for s in kept_positives]),
                (beta, [beta * (s - threshold) for s in kept_negatives]),
            ):
                if exponents:
                    total = total + torch.log1p(torch.stack(exponents).exp().sum()) / scale
    return total / len(labels)


def differences(found: Tensor, expected: Tensor, embeddings: Tensor) -> tuple[float, float]:
    slopes = [torch.autograd.grad(loss, embeddings)[0] for loss in (found, expected)]
    assert slopes[0].abs().max() > 1e-3
    return (found - expected).abs().item(), float((slopes[0] - slopes[1]).abs().max())


@pytest.mark.parametrize("settings", [(0.1, 2.0, 50.0, 0.5), (0.39, 17.97, 75.66, 0.77), (0.0, 2.0, 40.0, 1.0)])
def test_with_its_miner_it_is_the_paper(settings: tuple[float, ...], batch: Any) -> None:
    epsilon, alpha, beta, threshold = settings
    embeddings, labels = batch[0].requires_grad_(), torch.cat([batch[1][:24], torch.tensor([0, 0, 7, 8, 9, 9])])
    ours = Criterion(
        "raw",
        mining="valid_triplets",
        mining_options={"margin": epsilon},
        positive_scale=alpha,
        negative_scale=beta,
        threshold=threshold,
    )
    found, expected = ours(embeddings, labels), paper(embeddings, labels, epsilon, alpha, beta, threshold)
    assert max(differences(found, expected, embeddings)) < 1e-12


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    same_as_peer(Criterion("multi_similarity"), losses.MultiSimilarityLoss(), *batch)


@pytest.mark.peer
def test_peer_with_its_miner(batch: Any) -> None:
    mine, peer = miners.MultiSimilarityMiner(epsilon=0.1), losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)
    ours = Criterion("multi_similarity", mining="valid_triplets")
    embeddings, labels = batch[0].requires_grad_(), batch[1]
    found, expected = ours(embeddings, labels), peer(embeddings, labels, mine(embeddings.detach(), labels))
    assert max(differences(found, expected, embeddings)) < 1e-12
