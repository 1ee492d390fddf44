"""NT-Xent, also InfoNCE."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import nt_xent


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 0.1, 0.0, 0.0]])
    same = torch.tensor([[True, True, False, False]])
    # the other positive is not in the denominator
    expected = (math.log(1 + 2 * math.exp(-5)) + math.log(1 + 2 * math.exp(-1))) / 2
    assert nt_xent(matrix, same, ~same, temperature=0.1).item() == pytest.approx(expected, rel=1e-5)


def test_alias(batch: Any) -> None:
    assert torch.equal(Criterion("info_nce")(*batch), Criterion("nt_xent")(*batch))


@pytest.mark.peer
@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_peer(same_as_peer: Any, batch: Any, temperature: float) -> None:
    same_as_peer(Criterion("nt_xent", temperature=temperature), losses.NTXentLoss(temperature=temperature), *batch)
