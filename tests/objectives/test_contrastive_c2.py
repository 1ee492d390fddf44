"""Contrastive loss C2: distances, with a positive margin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import distances, losses

from vicinal.criterion import Criterion
from vicinal.objectives import contrastive_c2


def test_by_hand() -> None:
    matrix = torch.tensor([[0.9, 0.2, 0.3, 0.7], [0.1, 0.4, 0.6, 0.5]])
    same = torch.tensor([[True, True, False, False], [False, False, True, False]])
    # positives above 0.25: 0.65 and 0.35; negatives below 0.5: 0.2, 0.4 and 0.1
    loss = contrastive_c2(matrix, same, ~same, positive_margin=0.25, negative_margin=0.5)
    assert loss.item() == pytest.approx(1.0 / 2 + 0.7 / 3)


def test_easy_pairs_do_not_dilute_hard_ones() -> None:
    hard, easy = torch.tensor([[0.9, 0.2]]), torch.full((1, 50), 3.0)
    same = torch.tensor([[True, False]])
    many = torch.cat([hard, easy], 1)
    positive = torch.cat([same, torch.zeros(1, 50, dtype=torch.bool)], 1)
    assert contrastive_c2(many, positive, ~positive) == contrastive_c2(hard, same, ~same)


@pytest.mark.peer
@pytest.mark.parametrize("margins", [(0.0, 0.5), (0.3, 1.2)])
def test_peer_on_distances(same_as_peer: Any, batch: Any, margins: tuple[float, float]) -> None:
    ours = Criterion("contrastive_c2", positive_margin=margins[0], negative_margin=margins[1])
    same_as_peer(ours, losses.ContrastiveLoss(pos_margin=margins[0], neg_margin=margins[1]), *batch)


@pytest.mark.peer
def test_peer_on_cosines(same_as_peer: Any, batch: Any) -> None:
    """The peer's cosine form with margins 0.9 and 0.3 is C2 on 1 - s with margins 0.1 and 0.7."""
    ours = Criterion("contrastive_c2", geometry="cosine_distance", positive_margin=0.1, negative_margin=0.7)
    peer = losses.ContrastiveLoss(pos_margin=0.9, neg_margin=0.3, distance=distances.CosineSimilarity())
    same_as_peer(ours, peer, *batch)
