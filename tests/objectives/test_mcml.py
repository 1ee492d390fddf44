"""Maximally collapsing metric learning."""

from __future__ import annotations

import math

import pytest
import torch

from vicinal.objectives import mcml, supervised_contrastive


def test_by_hand() -> None:
    matrix = torch.tensor([[0.0, math.log(2), 0.0], [5.0, 1.0, 2.0]])
    same = torch.tensor([[True, True, False], [False, False, False]])
    # targets 1/2, 1/2, 0 against shares 2/5, 1/5, 2/5; the second anchor has no positive and is left out
    expected = 0.5 * math.log(0.5 / 0.4) + 0.5 * math.log(0.5 / 0.2)
    assert mcml(matrix, same, ~same).item() == pytest.approx(expected)


def test_its_floor_is_zero_where_the_class_has_collapsed() -> None:
    matrix = torch.tensor([[0.0, 0.0, 100.0]])
    same = torch.tensor([[True, True, False]])
    assert mcml(matrix, same, ~same).item() == pytest.approx(0.0, abs=1e-6)


def test_supervised_contrastive_is_the_same_loss_on_the_sphere() -> None:
    generator = torch.Generator().manual_seed(0)
    cosines = 2 * torch.rand(6, 9, generator=generator, dtype=torch.float64) - 1
    same = torch.rand(6, 9, generator=generator) < 0.4
    same[:, 0], same[:, 1] = True, False
    found = mcml(2 - 2 * cosines, same, ~same, scale=2.5)
    other = supervised_contrastive(cosines, same, ~same, temperature=0.2)
    torch.testing.assert_close(found, other - same.sum(1).double().log().mean(), rtol=1e-12, atol=1e-12)


def test_convex_in_the_distances() -> None:
    generator = torch.Generator().manual_seed(1)
    same = torch.rand(7, 8, generator=generator) < 0.4
    for _ in range(200):
        one, two = torch.rand(2, 7, 8, generator=generator, dtype=torch.float64) * 5
        t = torch.rand((), generator=generator, dtype=torch.float64)
        between = mcml(t * one + (1 - t) * two, same, ~same)
        assert between <= t * mcml(one, same, ~same) + (1 - t) * mcml(two, same, ~same) + 1e-12
