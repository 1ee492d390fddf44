"""Margin loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses, miners

from vicinal.criterion import Criterion, Learned
from vicinal.objectives import contrastive_c2, margin
from vicinal.weights import pair_weights


def test_by_hand() -> None:
    matrix = torch.tensor([[1.3, 0.5, 1.1, 1.9], [1.1, 1.39, 1.0, 1.2]])
    same = torch.tensor([[True, True, False, False], [True, False, False, False]])
    # above zero: positives 1.3 -> 0.3 and 1.1 -> 0.1; negatives 1.1 -> 0.3, 1.39 -> 0.01, 1.0 -> 0.4, 1.2 -> 0.2
    assert margin(matrix, same, ~same).item() == pytest.approx(1.31 / 6)


def test_a_boundary_per_class_belongs_to_the_anchor() -> None:
    same = torch.eye(2, dtype=torch.bool)
    # anchor 1: 0.2 and 0.2; anchor 2: (0.2 + 1 - 2)_+ = 0 and 0.2 + 2 - 1 = 1.2
    loss = margin(torch.ones(2, 2), same, ~same, boundary=torch.tensor([[1.0], [2.0]]))
    assert loss.item() == pytest.approx(1.6 / 3)


def test_its_pairs_are_those_of_c2(pairs: Any) -> None:
    drawn = pairs("margin", "batch")
    arguments = (drawn.matrix, drawn.positive, drawn.negative)
    ours = pair_weights(margin, *arguments, boundary=1.0, margin=0.25)
    c2 = pair_weights(contrastive_c2, *arguments, positive_margin=0.75, negative_margin=1.25)
    assert torch.equal(ours > 0, c2 > 0)
    assert (ours > 0).any()


@pytest.mark.peer
@pytest.mark.parametrize("classes", [None, 6])
def test_peer(same_as_peer: Any, batch: Any, classes: int | None) -> None:
    """The peer counts a positive pair once for each negative beside it; ours counts every pair once.

    With one positive and one negative per anchor, as batch-hard mining leaves them, both are the same.
    """
    mine = miners.BatchHardMiner()
    peer = losses.MarginLoss(margin=0.2, beta=1.1, learn_beta=True, num_classes=classes)
    ours = Criterion("margin", mining="hard", margin=0.2, boundary=Learned(1.1, classes=classes))
    same_as_peer(ours, lambda x, y: peer(x, y, mine(x.detach(), y)), *batch)
    (expected,) = torch.autograd.grad(peer(*batch, mine(*batch)), peer.beta)
    (found,) = torch.autograd.grad(ours(*batch), ours.learned["boundary"])
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-5, atol=1e-6)
