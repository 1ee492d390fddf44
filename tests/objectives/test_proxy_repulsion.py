"""Proxies that pull their items and repel each other."""

from __future__ import annotations

import math

import pytest
import torch

from vicinal.criterion import Criterion
from vicinal.objectives import proxy_repulsion
from vicinal.references import Proxies


def test_by_hand() -> None:
    matrix = torch.tensor([[0.1, 0.9, 0.9]])
    positive = torch.tensor([[True, False, False]])
    negative = torch.tensor([[False, False, True]])
    among = torch.tensor([[1.0, 0.9, -0.1], [0.9, 1.0, -0.1], [-0.1, -0.1, 1.0]])
    labels = torch.tensor([0, 0, 1])
    # pull: log 2; push: the first two are of one class, so each proxy meets only exponents of zero
    push = (math.log(2) + math.log(2) + math.log(3)) / 3
    loss = proxy_repulsion(matrix, positive, negative, reference_labels=labels, reference_matrix=among)
    assert loss.item() == pytest.approx(math.log(2) + push, rel=1e-5)


def test_proxies_part_even_where_the_batch_holds_neither() -> None:
    proxies = Proxies(3, 2)
    proxies.assign(torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]]))
    criterion = Criterion("proxy_repulsion", references=proxies)
    criterion(torch.tensor([[-1.0, 0.0]]), torch.tensor([2])).backward()
    assert proxies.vectors.grad[0, 1] > 0 > proxies.vectors.grad[1, 1]
