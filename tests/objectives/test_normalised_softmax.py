"""Normalised soft-max over class references."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import normalised_softmax


def test_by_hand() -> None:
    matrix = torch.tensor([[0.1, 0.0, 0.05]])
    same = torch.tensor([[True, False, False]])
    expected = math.log(1 + math.exp(-2) + math.exp(-1))
    assert normalised_softmax(matrix, same, ~same).item() == pytest.approx(expected, rel=1e-5)


def test_is_the_cross_entropy_of_scaled_cosines(batch: Any) -> None:
    embeddings, labels = batch
    criterion = Criterion("normalised_softmax", classes=6, dim=8).double()
    logits = torch.nn.functional.cosine_similarity(embeddings[:, None], criterion.references[0].vectors[None], dim=2)
    torch.testing.assert_close(criterion(embeddings, labels), torch.nn.functional.cross_entropy(logits / 0.05, labels))


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    ours = Criterion("normalised_softmax", classes=6, dim=8).double()
    peer = losses.NormalizedSoftmaxLoss(6, 8, temperature=0.05)
    peer.W.data = ours.references[0].vectors.data.T.clone()
    same_as_peer(ours, peer, *batch)
