"""Neighbourhood components analysis."""

from __future__ import annotations

import math

import pytest
import torch

from vicinal.objectives import nca


def test_by_hand() -> None:
    matrix = torch.tensor([[0.0, math.log(2), 0.0], [5.0, 1.0, 2.0]])
    same = torch.tensor([[True, True, False], [False, False, False]])
    # e^-d is 1, 1/2, 1: the own class has 3/5 of it; the second anchor has no positive and is left out
    assert nca(matrix, same, ~same).item() == pytest.approx(0.4)


def test_its_weights_have_the_closed_form() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    same = torch.rand(5, 6, generator=generator) < 0.5
    (slope,) = torch.autograd.grad(nca(matrix, same, ~same), matrix)
    chance = (-matrix).softmax(1)
    right = (chance * same).sum(1, keepdim=True)
    torch.testing.assert_close(slope, chance * (same.double() - right) / 5, rtol=1e-12, atol=1e-14)


def test_a_pair_far_out_of_reach_is_not_moved_and_does_not_overflow() -> None:
    matrix = torch.tensor([[1e6, 2e6, 1.0]], requires_grad=True)
    same = torch.tensor([[True, False, False]])
    loss = nca(matrix, same, ~same)
    loss.backward()
    assert loss == 1.0
    assert matrix.grad is not None
    assert not matrix.grad.any()
