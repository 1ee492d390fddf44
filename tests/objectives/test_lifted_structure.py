"""Generalised lifted structure loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import distances, losses

from vicinal.criterion import Criterion
from vicinal.objectives import lifted_structure


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 0.5, 0.1, 0.1, 0.1], [0.9, 0.0, -1.0, -1.0, -1.0]])
    same = torch.tensor([[True, True, False, False, False], [True, False, False, False, False]])
    # anchor 1: 0.5 + (log 2 - 0.5) + (log 3 + 0.1); anchor 2: 0.5 - 0.9 + log(1 + 3/e)
    first, second = math.log(2) + math.log(3) + 0.1, 0.5 - 0.9 + math.log(1 + 3 / math.e)
    assert lifted_structure(matrix, same, ~same).item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_the_hinge_closes() -> None:
    matrix = torch.tensor([[1.0, -1.0]], requires_grad=True)
    same = torch.tensor([[True, False]])
    loss = lifted_structure(matrix, same, ~same)  # 0.5 - 1 - 1 < 0
    loss.backward()
    assert loss == 0
    assert not matrix.grad.any()


def test_harder_negatives_weigh_more() -> None:
    """The sign printed in one paper would give the least similar negative the largest push."""
    matrix = torch.tensor([[0.5, 0.2, 0.4]], requires_grad=True)
    same = torch.tensor([[True, False, False]])
    lifted_structure(matrix, same, ~same).backward()
    assert matrix.grad[0, 2] > matrix.grad[0, 1] > 0


def test_a_common_shift_changes_nothing(pairs: Any) -> None:
    drawn = pairs("lifted_structure", "batch")
    before = drawn.loss("lifted_structure")
    drawn.matrix = drawn.matrix + 0.37
    torch.testing.assert_close(drawn.loss("lifted_structure"), before)


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    """Margins 0.5 and 0 of the peer add to ours of 0.5.

    Every anchor has both sorts of pairs here: where one is missing the peer keeps the log-sum-exp of the other side,
    which has no meaning alone, and we leave the anchor out.
    """
    peer = losses.GeneralizedLiftedStructureLoss(pos_margin=0.5, neg_margin=0.0, distance=distances.CosineSimilarity())
    same_as_peer(Criterion("lifted_structure", margin=0.5), peer, *batch)
