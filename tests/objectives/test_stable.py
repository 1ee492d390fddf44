"""Masked sums that neither overflow nor divide by zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from vicinal.objectives.stable import log1p_exp, log1p_sum_exp, log_sum_exp, mean, mean_of_nonzero


def slope(function: Callable[..., Tensor], values: Tensor, *arguments: Any) -> Tensor:
    leaf = values.clone().requires_grad_()
    (found,) = torch.autograd.grad(function(leaf, *arguments).sum(), leaf)
    return found


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 4e-7), (torch.float64, 1e-15)])
def test_log1p_exp(dtype: torch.dtype, rtol: float) -> None:
    values = torch.tensor([-1e30, -800, -60, -40, -1, 0, 1, 19, 21, 49, 51, 800, 1e30], dtype=dtype)
    expected = [max(x, 0) + math.log1p(math.exp(-abs(x))) for x in values.tolist()]
    torch.testing.assert_close(log1p_exp(values), torch.tensor(expected, dtype=dtype), rtol=rtol, atol=1e-37)
    assert slope(log1p_exp, values).isfinite().all()


def test_empty_masks_have_no_gradient() -> None:
    logits, nothing = torch.randn(2, 3), torch.zeros(2, 3, dtype=torch.bool)
    assert (log_sum_exp(logits, nothing) < -1e29).all()
    assert not log1p_sum_exp(logits, nothing).any()
    for function in (log_sum_exp, log1p_sum_exp, mean):
        assert not slope(function, logits, nothing).any()
    for dim in (0, 1):
        assert not log1p_sum_exp(logits[:0], nothing[:0], dim).any()
        assert not log1p_sum_exp(logits[:, :0], nothing[:, :0], dim).any()


def test_huge_logits() -> None:
    logits = torch.tensor([[1e6, 1e6, -1e6]], dtype=torch.float64)
    everything = torch.ones_like(logits, dtype=torch.bool)
    assert log_sum_exp(logits.float(), everything).item() == pytest.approx(1e6)
    expected = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(slope(log1p_sum_exp, logits, everything), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("scale", [2.0, -3.0])
@pytest.mark.parametrize("dim", [0, 1])
def test_first_and_second_derivatives_of_log_sum_exp(scale: float, dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    mask = torch.rand(3, 4, generator=generator) < 0.7

    def function(values: Tensor) -> Tensor:
        return log_sum_exp(values, mask, dim, scale=scale, threshold=0.3)

    assert torch.autograd.gradcheck(function, matrix)
    assert torch.autograd.gradgradcheck(function, matrix)


def test_mean_of_nonzero() -> None:
    assert mean_of_nonzero(torch.zeros(3)) == 0
    assert slope(mean_of_nonzero, torch.tensor([0.0, 2.0, 4.0]))[1:].tolist() == [0.5, 0.5]
