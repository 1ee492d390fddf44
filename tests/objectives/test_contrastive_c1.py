"""Contrastive loss C1: similarities, summed per anchor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers

from vicinal.criterion import Criterion
from vicinal.objectives import contrastive_c1


def test_by_hand() -> None:
    matrix = torch.tensor([[0.9, 0.2, 0.8, 0.4], [0.1, 0.7, 0.6, 0.5]])
    same = torch.tensor([[True, True, False, False], [False, False, True, False]])
    # anchor 1: 0.1 + 0.8 + 0.3; anchor 2: 0.4 + 0.2; each of the three positives less 1e-5
    assert contrastive_c1(matrix, same, ~same).item() == pytest.approx((1.8 - 3e-5) / 2, rel=1e-6)


def test_a_positive_that_has_arrived_is_left_alone() -> None:
    matrix = torch.tensor([[1.0]], requires_grad=True)
    same = torch.tensor([[True]])
    loss = contrastive_c1(matrix, same, ~same)
    loss.backward()
    assert loss == 0
    assert matrix.grad == 0


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    """The peer averages each side over its non-zero terms; its sum over the number of anchors is ours."""
    summed = losses.ContrastiveLoss(
        pos_margin=1 - 1e-5, neg_margin=0.3, distance=distances.CosineSimilarity(), reducer=reducers.SumReducer()
    )
    same_as_peer(Criterion("contrastive_c1", threshold=0.3), lambda x, y: summed(x, y) / len(x), *batch)
