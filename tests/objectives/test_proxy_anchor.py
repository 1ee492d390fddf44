"""Proxy-anchor loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import proxy_anchor


def test_by_hand() -> None:
    matrix = torch.tensor([[0.1, -0.1, 0.15], [0.35, -0.1, -0.1]])
    same = torch.tensor([[True, False, False], [True, False, False]])
    # scale 4: the first proxy pulls with exponents 0 and -1; the others push with 0, 0 and with 1, 0
    pull = math.log(2 + math.exp(-1))
    push = (0 + math.log(3) + math.log(2 + math.e)) / 3
    assert proxy_anchor(matrix, same, ~same, scale=4.0).item() == pytest.approx(pull + push, rel=1e-5)


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    """Ten classes, of which the batch holds six: the two means are over different numbers of proxies."""
    ours = Criterion("proxy_anchor", classes=10, dim=8).double()
    peer = losses.ProxyAnchorLoss(10, 8, margin=0.1, alpha=32)
    peer.proxies.data = ours.references[0].vectors.data.clone()
    same_as_peer(ours, peer, *batch)
    (found,) = torch.autograd.grad(ours(*batch), ours.references[0].vectors)
    (expected,) = torch.autograd.grad(peer(*batch), peer.proxies)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
