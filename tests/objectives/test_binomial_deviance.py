"""Binomial deviance loss."""

from __future__ import annotations

import math

import pytest
import torch

from vicinal.objectives import binomial_deviance


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 0.0, 0.5, 0.52], [0.5, 0.5, 0.5, 0.5]])
    same = torch.tensor([[True, True, False, False], [False, False, False, False]])
    pull = (math.log(2) + math.log(1 + math.e)) / 2
    push = (math.log(2) + math.log(1 + math.e)) / 2  # 50 * 0.02 = 1
    expected = (pull + push + math.log(2)) / 2  # the second anchor has negatives only
    assert binomial_deviance(matrix, same, ~same).item() == pytest.approx(expected, rel=1e-5)


def test_what_other_pairs_do_does_not_count() -> None:
    same = torch.tensor([[True, False, False]])
    slopes = []
    for other in (0.1, 0.9):
        matrix = torch.tensor([[0.4, 0.5, other]], requires_grad=True)
        binomial_deviance(matrix, same, ~same).backward()
        slopes.append(matrix.grad[0, :2])
    assert torch.equal(*slopes)
