"""ArcFace: additive angular margin, in degrees."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import arcface


def test_by_hand() -> None:
    matrix = torch.tensor([[math.cos(math.radians(30)), 0.0]])
    same = torch.tensor([[True, False]])
    # 30 + 30 degrees: the logit is 4 * cos 60 = 2
    loss = arcface(matrix, same, ~same, margin_degrees=30.0, scale=4.0)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-2)), rel=1e-5)


def test_beyond_a_straight_angle_the_logit_goes_on_falling() -> None:
    angles = torch.linspace(0.02, math.pi - 0.02, 200, dtype=torch.float64)
    same = torch.tensor([[True, False]])
    values = [
        arcface(torch.tensor([[angle.cos(), 0.0]], dtype=torch.float64), same, ~same, margin_degrees=60.0).item()
        for angle in angles
    ]
    assert values == sorted(values)


@pytest.mark.parametrize("cosine", [1.0, -1.0, 1.0000001, -1.0000001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ends_of_the_cosine_are_safe(cosine: float, dtype: torch.dtype) -> None:
    matrix = torch.tensor([[cosine, 0.3]], dtype=dtype, requires_grad=True)
    same = torch.tensor([[True, False]])
    loss = arcface(matrix, same, ~same)
    loss.backward()
    assert loss.isfinite()
    assert matrix.grad.isfinite().all()


@pytest.mark.peer
@pytest.mark.parametrize("degrees", [28.6, 120.0])
def test_peer(same_as_peer: Any, batch: Any, degrees: float) -> None:
    """At 120 degrees most angles pass the straight line, where both go on linearly."""
    ours = Criterion("arcface", classes=6, dim=8, margin_degrees=degrees, scale=16.0).double()
    peer = losses.ArcFaceLoss(6, 8, margin=degrees, scale=16)
    peer.W.data = ours.references[0].vectors.data.T.clone()
    same_as_peer(ours, peer, *batch)
