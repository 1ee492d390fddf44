"""Sums over masked pairs that neither overflow nor divide by zero, in values and in gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = [
    "log1p_exp",
    "log1p_sum_exp",
    "log_sum_exp",
    "mean",
    "mean_of_nonzero",
    "most_positives",
    "softmax_against_negatives",
]

# Represents infinity. With a true infinity the gradient of the logarithm of an empty sum would be NaN.
FAR = 1e30


def log1p_exp(logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return log(1 + exp(x)) to full precision, also in float64.

    Example:
        >>> log1p_exp(torch.tensor([0.0, 100.0]))
        tensor([  0.6931, 100.0000])
    """
    return F.softplus(logits, threshold=50.0)


def log_sum_exp(
    matrix: Float[Tensor, "n m"],
    mask: Bool[Tensor, "n m"],
    dim: int = 1,
    *,
    scale: float | Tensor = 1.0,
    threshold: float | Tensor = 0.0,
) -> Float[Tensor, " _"]:
    """Return log sum e^(scale (x - threshold)) over a mask; a huge negative number where the mask is empty.

    Args:
        matrix: Values x.
        mask: Mask of the values that count.
        dim: Dimension to sum over.
        scale: Nonzero factor; below zero the smallest x counts most.
        threshold: Number subtracted from x.

    Example:
        >>> log_sum_exp(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor([0.6931])
    """
    if matrix.shape[dim] == 0:
        return matrix.sum(dim) - FAR
    if isinstance(scale, Tensor) or isinstance(threshold, Tensor):
        matrix, scale, threshold = scale * (matrix - threshold), 1.0, 0.0
    return _LogSumExp.apply(matrix, mask, dim, scale, threshold)  # type: ignore[no-untyped-call]


class _LogSumExp(torch.autograd.Function):
    """One function instead of six, because each pass over a large matrix costs a tenth of the matrix product."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, mask: Tensor, dim: int, scale: float, threshold: float) -> Tensor:
        masked = torch.where(mask, matrix, -FAR if scale > 0 else FAR)
        hardest = masked.amax(dim, keepdim=True) if scale > 0 else masked.amin(dim, keepdim=True)
        total = masked.sub_(hardest).mul_(scale).exp_().sum(dim)
        result = total.log_() + scale * (hardest.squeeze(dim) - threshold)
        ctx.save_for_backward(matrix, mask, result)
        ctx.dim, ctx.scale, ctx.threshold = dim, scale, threshold
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        matrix, mask, result = ctx.saved_tensors
        level = (result / ctx.scale + ctx.threshold).unsqueeze(ctx.dim)
        outer = (gradients[0] * ctx.scale).unsqueeze(ctx.dim)
        if torch.is_grad_enabled():  # for second derivatives nothing may be overwritten
            share = torch.where(mask, ((matrix - level) * ctx.scale).exp() * outer, 0.0)
        else:
            share = (matrix - level).mul_(ctx.scale).exp_().mul_(outer).masked_fill_(~mask, 0.0)
        return share, None, None, None, None


def log1p_sum_exp(
    matrix: Float[Tensor, "n m"],
    mask: Bool[Tensor, "n m"],
    dim: int = 1,
    *,
    scale: float | Tensor = 1.0,
    threshold: float | Tensor = 0.0,
) -> Float[Tensor, " _"]:
    """Return log(1 + sum e^(scale (x - threshold))) over a mask: zero where the mask is empty.

    Example:
        >>> log1p_sum_exp(torch.zeros(2, 2), torch.tensor([[True, False], [False, False]]))
        tensor([0.6931, 0.0000])
    """
    return log1p_exp(log_sum_exp(matrix, mask, dim, scale=scale, threshold=threshold))


def mean(values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """Return the mean of the masked values, or a differentiable zero if there are none.

    Example:
        >>> mean(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([True, True, False]))
        tensor(2.)
    """
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp_min(1)


def most_positives(positive: Bool[Tensor, "n m"]) -> int:
    """Return the largest number of positives of an anchor; in a compiled graph, which has no values, an upper bound.

    Example:
        >>> most_positives(torch.tensor([[True, True, False], [False, True, False]]))
        2
    """
    if torch.compiler.is_compiling():
        return positive.shape[1]
    return int(positive.sum(1).max()) if positive.numel() else 0


def mean_of_nonzero(values: Float[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """Return the mean of the entries above zero, or a differentiable zero: easy pairs do not dilute hard ones.

    Example:
        >>> mean_of_nonzero(torch.tensor([0.0, 1.0, 3.0]))
        tensor(2.)
    """
    return values.sum() / (values > 0).sum().clamp_min(1)


def softmax_against_negatives(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    scale: float | Tensor,
    pulled: Float[Tensor, " p"] | None = None,
) -> Float[Tensor, ""]:
    """Return the mean over positive pairs of -log( e^(scale x) / (e^(scale x) + sum over the negatives e^(scale x')) ).

    With one positive per anchor it is the cross-entropy. Other positives are never in the denominator.

    Args:
        matrix: Values x.
        positive: Pairs to make likely.
        negative: Pairs they compete with, row by row.
        scale: One over the temperature; below zero for distances.
        pulled: Replacement for `matrix[positive]`, for losses that first lower it by a margin.

    Example:
        >>> matrix = torch.tensor([[2.0, 0.0]])
        >>> softmax_against_negatives(matrix, matrix > 1, matrix < 1, scale=1.0)
        tensor(0.1269)
    """
    against = log_sum_exp(matrix, negative, scale=scale).repeat_interleave(positive.sum(1))
    losses = log1p_exp(against - scale * (matrix[positive] if pulled is None else pulled))
    return losses.sum() / max(losses.numel(), 1)
