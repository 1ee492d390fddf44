"""Supervised contrastive loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import supervised_contrastive


def test_by_hand() -> None:
    matrix = torch.tensor([[0.3, 0.1, 0.0], [0.0, 0.0, 0.0]])
    same = torch.tensor([[True, True, False], [False, False, False]])
    # the second anchor has no positive and is left out
    expected = math.log(math.exp(3) + math.exp(1) + 1) - 2
    assert supervised_contrastive(matrix, same, ~same).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.peer
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_peer(same_as_peer: Any, batch: Any, temperature: float) -> None:
    ours = Criterion("supcon", temperature=temperature)
    same_as_peer(ours, losses.SupConLoss(temperature=temperature), *batch)
