"""SoftTriple: several centres per class."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.objectives import soft_triple
from vicinal.references import Proxies


def test_by_hand() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    matrix = torch.tensor([[math.log(3) / 10, 0.0, 0.5, 0.5]])
    same = torch.tensor([[True, True, False, False]])
    # at temperature 0.1 the shares of the own centres are 3/4 and 1/4
    own = 0.75 * math.log(3) / 10
    expected = math.log(1 + math.exp(20 * (0.5 - own + 0.01)))
    assert soft_triple(matrix, same, ~same, reference_labels=labels).item() == pytest.approx(expected, rel=1e-5)


def test_with_one_centre_it_is_cosface(pairs: Any) -> None:
    drawn = pairs("cosface", "proxies")
    drawn.positive = torch.nn.functional.one_hot(torch.arange(7), 8).bool()
    drawn.negative = ~drawn.positive
    cosface = drawn.loss("cosface", margin=0.2, scale=20.0)
    drawn.supplied = {"reference_labels": torch.arange(8)}
    torch.testing.assert_close(drawn.loss("soft_triple", margin=0.2), cosface)


@pytest.mark.parametrize("labels", [[0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1]])
def test_classes_must_be_equal_and_in_order(labels: list[int]) -> None:
    same = torch.tensor(labels)[None] == 0
    with pytest.raises(
        InputError, match=r"same number of references for every class, stored class by class.*per_class"
    ):
        soft_triple(torch.zeros(1, len(labels)), same, ~same, reference_labels=torch.tensor(labels))


def test_mining_chooses_among_centres() -> None:
    """A class counts when any of its centres is kept, not only the first, and dropped centres have no share."""
    labels = torch.tensor([0, 0, 1, 1])
    matrix = torch.tensor([[0.9, 0.2, 0.3, 0.1]])
    positive = torch.tensor([[False, True, False, False]])
    negative = torch.tensor([[False, False, True, False]])
    loss = soft_triple(matrix, positive, negative, reference_labels=labels, margin=0.0)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(20 * 0.1)), rel=1e-5)


@pytest.mark.peer
def test_peer(same_as_peer: Any, batch: Any) -> None:
    """Without the merging of centres: the peer's has another constant under the root and another divisor."""
    proxies = Proxies(6, 8, per_class=3)
    options = {"scale": 20.0, "centre_temperature": 0.1, "margin": 0.1}
    ours = Criterion("soft_triple", references=proxies, regularisers={}, **options).double()
    peer = losses.SoftTripleLoss(6, 8, centers_per_class=3, la=20, gamma=0.1, margin=0.1)
    peer.fc.data = proxies.vectors.data.T.clone()
    same_as_peer(ours, peer, *batch)
    (found,) = torch.autograd.grad(ours(*batch), proxies.vectors)
    (expected,) = torch.autograd.grad(peer(*batch), peer.fc)
    torch.testing.assert_close(found, expected.T, rtol=1e-5, atol=1e-6)


def test_the_criterion_adds_the_merging_of_centres(batch: Any) -> None:
    proxies = Proxies(6, 8, per_class=3).double()
    bare = Criterion("soft_triple", references=proxies, regularisers={})
    unit = torch.nn.functional.normalize(proxies.vectors).view(6, 3, 8)
    gaps = sum(
        (2 + 1e-5 - 2 * unit[c, k] @ unit[c, j]).sqrt() for c in range(6) for k in range(3) for j in range(k + 1, 3)
    )
    expected = bare(*batch) + 0.2 * gaps / (6 * 3 * 2)
    torch.testing.assert_close(Criterion("soft_triple", references=proxies)(*batch), expected)
