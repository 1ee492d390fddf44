"""N-pair loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import distances, losses, regularizers
from torch import Tensor

from vicinal.criterion import Criterion
from vicinal.objectives import n_pair
from vicinal.pairs import dot
from vicinal.references import Proxies


def test_by_hand() -> None:
    matrix = torch.tensor([[2.0, 1.0, 1.0], [0.0, 3.0, 0.0]])
    same = torch.tensor([[True, False, False], [False, True, False]])
    expected = (math.log(1 + 2 * math.exp(-1)) + math.log(1 + 2 * math.exp(-3))) / 2
    assert n_pair(matrix, same, ~same).item() == pytest.approx(expected, rel=1e-6)


def test_the_criterion_adds_the_length_of_raw_embeddings() -> None:
    embeddings, labels = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([0, 1])
    assert Criterion("n_pair")(embeddings, labels).item() == pytest.approx(0.02 * 3.5)
    assert Criterion("n_pair", regularisers={})(embeddings, labels) == 0


def test_inner_products_are_of_raw_embeddings_unless_asked(batch: Any) -> None:
    embeddings, labels = batch
    raw, sphere = Criterion("n_pair", regularisers={}), Criterion("n_pair", regularisers={}, normalise="sphere")
    assert abs(raw(3 * embeddings, labels) - raw(embeddings, labels)) > 0.1
    torch.testing.assert_close(sphere(3 * embeddings, labels), sphere(embeddings, labels))
    torch.testing.assert_close(sphere(embeddings, labels), raw(torch.nn.functional.normalize(embeddings), labels))


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    """The peer takes one pair per class, the first item as anchor against the second of every class.

    On all pairs of a batch ours has every item as anchor and all its positives, so both are shown the same six pairs.
    """
    pair_loss = losses.NPairsLoss(
        distance=distances.DotProductSimilarity(normalize_embeddings=False),
        embedding_regularizer=regularizers.LpRegularizer(),
        embedding_reg_weight=0.02,
    )
    embeddings, labels = batch[0][:12], batch[1][:12]
    own = torch.eye(6, dtype=torch.bool)

    def ours(x: Tensor, y: Tensor) -> Tensor:
        return n_pair(dot(x[:6], x[6:]), own, ~own) + 0.02 * x.norm(dim=1).mean()

    same_as_peer(ours, pair_loss, embeddings, labels)
    proxies = Proxies(6, 8).double()
    proxies.assign(embeddings[6:])
    through = Criterion("n_pair", references=proxies, regularisers={})(embeddings[:6], labels[:6])
    torch.testing.assert_close(through, n_pair(dot(embeddings[:6], embeddings[6:]), own, ~own))
