"""Smooth triplet loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import soft_triplet


def test_by_hand() -> None:
    matrix = torch.tensor([[1.0, 1.0, 3.0]])
    same = torch.tensor([[True, False, False]])
    # the logarithms of 1 + e^0 and of 1 + e^-2
    assert soft_triplet(matrix, same, ~same).item() == pytest.approx((0.693147 + 0.126928) / 2, rel=1e-5)


def test_a_large_scale_approaches_the_hinge(pairs: Any) -> None:
    drawn = pairs("soft_triplet", "batch")
    hinge = (drawn.matrix[:, :, None] - drawn.matrix[:, None, :]).clamp_min(0)
    triplets = drawn.positive[:, :, None] & drawn.negative[:, None, :]
    assert drawn.loss("soft_triplet", scale=1e5).item() / 1e5 == pytest.approx(hinge[triplets].mean().item(), rel=1e-4)


@pytest.mark.peer
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_peer(same_as_peer: Any, batch: Any, margin: float) -> None:
    peer = losses.TripletMarginLoss(margin=margin, smooth_loss=True)
    same_as_peer(Criterion("soft_triplet", margin=margin), peer, *batch)
