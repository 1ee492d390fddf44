"""Proxy-NCA without the own class in the denominator."""

from __future__ import annotations

import math

import pytest
import torch

from vicinal.objectives import proxy_nca, proxy_nca_pp


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 1.0, 1.0], [2.0, 0.1, 3.0]])
    same = torch.tensor([[True, False, False], [False, True, False]])
    first, second = 0.5 + math.log(2) - 1, 0.1 + math.log(math.exp(-2) + math.exp(-3))
    assert proxy_nca(matrix, same, ~same).item() == pytest.approx((first + second) / 2, rel=1e-5)


def test_its_pull_never_fades_but_that_of_the_successor_does() -> None:
    """The own class in the denominator is the whole difference between the two."""
    same = torch.tensor([[True, False]])
    pulls = []
    for near in (1.0, 0.01):
        matrix = torch.tensor([[near, 2.0]], dtype=torch.float64, requires_grad=True)
        losses = proxy_nca(matrix, same, ~same, scale=10.0), proxy_nca_pp(matrix, same, ~same, temperature=0.1)
        pulls.append([torch.autograd.grad(loss, matrix)[0][0, 0].item() for loss in losses])
    assert pulls[0][0] == pulls[1][0] == 10.0
    assert pulls[0][1] > 1000 * pulls[1][1] > 0
