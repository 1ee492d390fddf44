"""Proxies that repel each other as the batch sees them."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from vicinal.objectives import proxy_gram


def test_by_hand() -> None:
    matrix = torch.tensor([[0.1, -1.0], [0.1, 1.0]])
    same = torch.tensor([[True, False], [True, False]])
    # the columns are orthogonal over the batch: both push with exponent 32 * 0.1
    expected = math.log(3) + math.log(1 + math.exp(3.2))
    loss = proxy_gram(matrix, same, ~same, reference_labels=torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_values_that_overflow_float32_exponentials() -> None:
    """Sums over the batch are not bounded by one: at scale 32 anything above 2.7 would overflow."""
    matrix = torch.ones(50, 2, requires_grad=True)
    same = torch.tensor([[True, False]]).expand(50, 2)
    labels = torch.tensor([0, 1])
    loss = proxy_gram(matrix, same, ~same, reference_labels=labels)
    loss.backward()
    pull = math.log1p(50 * math.exp(-32 * 0.9))
    assert loss.item() == pytest.approx(32 * 50.1 + pull, rel=1e-5)
    assert matrix.grad.isfinite().all()
    mean = proxy_gram(matrix, same, ~same, reference_labels=labels, batch_mean=True)
    assert mean.item() == pytest.approx(32 * 1.1 + pull, rel=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(5, 8, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.arange(4).repeat_interleave(2)
    same = labels[None] == torch.arange(5)[:, None] % 4
    whole = proxy_gram(matrix, same, ~same, reference_labels=labels)
    (expected,) = torch.autograd.grad(whole, matrix)
    monkeypatch.setattr(sys.modules["vicinal.objectives.proxy_gram"], "ROWS", rows)
    parts = proxy_gram(matrix, same, ~same, reference_labels=labels)
    (found,) = torch.autograd.grad(parts, matrix)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(found, expected)
