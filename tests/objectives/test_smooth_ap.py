"""Smooth-AP: average precision with sigmoids for steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses
from torch import Tensor

from vicinal.objectives import smooth_ap
from vicinal.pairs import cosine


def test_by_hand() -> None:
    matrix = torch.tensor([[0.9, 0.5, 0.7, 0.1]])
    same = torch.tensor([[True, True, False, False]])
    # sharp steps: the first positive is at rank 1, the second at rank 2 of positives and 3 of all
    assert smooth_ap(matrix, same, ~same, temperature=0.001).item() == pytest.approx(1 - (1 + 2 / 3) / 2, abs=1e-6)


def test_ties_count_half() -> None:
    same = torch.tensor([[True, True, False]])
    # each positive: (1 + 0.5) / (1 + 0.5 + 0.5)
    assert smooth_ap(torch.zeros(1, 3), same, ~same).item() == pytest.approx(0.25)


@pytest.mark.peer
def test_peer(same_as_peer: Any) -> None:
    """The peer ranks the anchor itself among its positives, ours never does; given masks with the diagonal, both agree.

    Four classes of four, because the peer takes the number of classes for that of items per class.
    """
    embeddings = torch.randn(16, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(4).repeat_interleave(4)
    same = labels[:, None] == labels

    def ours(x: Tensor, y: Tensor) -> Tensor:
        return smooth_ap(cosine(x, x), same, ~same, temperature=0.05)

    same_as_peer(ours, lambda x, y: losses.SmoothAPLoss(temperature=0.05)(x, y).double(), embeddings, labels)
