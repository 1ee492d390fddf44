"""Contrastive loss on cosine similarities."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers

from vicinal.criterion import Criterion
from vicinal.objectives import contrastive, contrastive_c1
from vicinal.weights import pair_weights


def test_by_hand() -> None:
    matrix = torch.tensor([[0.9, 0.2, 0.8, 0.4], [0.1, 0.7, 0.6, 0.5]])
    same = torch.tensor([[True, True, False, False], [False, False, True, False]])
    # anchor 1: (0.8 - 0.5) - (0.9 + 0.2) = -0.8; anchor 2: (0.7 - 0.5) - 0.6 = -0.4 (0.1 and 0.5 are not above 0.5)
    assert contrastive(matrix, same, ~same).item() == pytest.approx(-0.6)


def test_weights_are_a_step() -> None:
    matrix = torch.tensor([[0.9, 0.2, 0.8, 0.4]])
    same = torch.tensor([[True, True, False, False]])
    assert pair_weights(contrastive, matrix, same, ~same).tolist() == [[1, 1, 1, 0]]


def test_differs_from_c1_by_a_constant_per_positive(pairs: Any) -> None:
    drawn = pairs("contrastive", "batch")
    constant = (1 - 1e-5) * int(drawn.positive.sum()) / 10
    difference = drawn.loss("contrastive_c1") - drawn.loss("contrastive")
    assert difference.item() == pytest.approx(constant, rel=1e-12)
    arguments = (drawn.matrix, drawn.positive, drawn.negative)
    assert torch.equal(pair_weights(contrastive, *arguments), pair_weights(contrastive_c1, *arguments))


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    """The peer takes 1 - s for a positive and can only average each side: its sum, less that constant, is ours."""
    summed = losses.ContrastiveLoss(
        pos_margin=1, neg_margin=0.3, distance=distances.CosineSimilarity(), reducer=reducers.SumReducer()
    )
    same_as_peer(Criterion("contrastive", threshold=0.3), lambda x, y: (summed(x, y) - len(x) * 4) / len(x), *batch)
