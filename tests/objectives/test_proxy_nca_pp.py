"""ProxyNCA++."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import proxy_nca_pp
from vicinal.references import Proxies


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 0.6, 0.7]])
    same = torch.tensor([[True, False, False]])
    expected = math.log(1 + math.exp(-1) + math.exp(-2))
    assert proxy_nca_pp(matrix, same, ~same).item() == pytest.approx(expected, rel=1e-5)


def test_on_the_sphere_it_is_normalised_softmax_at_half_the_temperature(batch: Any) -> None:
    ours = Criterion("proxy_nca_pp", temperature=0.2, classes=6, dim=8).double()
    other = Criterion("normalised_softmax", temperature=0.1, classes=6, dim=8).double()
    torch.testing.assert_close(ours(*batch), other(*batch))


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    """What the peer calls ProxyNCA keeps the own class in the denominator: the form of ProxyNCA++."""
    proxies = Proxies(6, 8)
    peer = losses.ProxyNCALoss(6, 8, softmax_scale=10)
    peer.proxies.data = proxies.vectors.data.double()
    same_as_peer(Criterion("proxy_nca_pp", references=proxies, temperature=0.1).double(), peer, *batch)
