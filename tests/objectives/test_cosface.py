"""CosFace: additive cosine margin."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import cosface


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 0.1, 0.2]])
    same = torch.tensor([[True, False, False]])
    # logits 10 * (0.5 - 0.3), 1 and 2
    expected = math.log(1 + math.exp(-1) + 1)
    assert cosface(matrix, same, ~same, margin=0.3, scale=10.0).item() == pytest.approx(expected, rel=1e-5)


def test_without_margin_it_is_normalised_softmax(pairs: Any) -> None:
    drawn = pairs("cosface", "proxies")
    softmax = drawn.loss("normalised_softmax", temperature=0.05)
    torch.testing.assert_close(drawn.loss("cosface", margin=0.0, scale=20.0), softmax)


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    ours = Criterion("cosface", classes=6, dim=8, margin=0.35, scale=16.0).double()
    peer = losses.CosFaceLoss(6, 8, margin=0.35, scale=16)
    peer.W.data = ours.references[0].vectors.data.T.clone()
    same_as_peer(ours, peer, *batch)
