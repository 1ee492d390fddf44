"""Sums over masked pairs that neither overflow nor divide by zero, for values and for gradients."""

from __future__ import annotations

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
    "softmax_against_negatives",
]

# Stands for "the logarithm of nothing". A true -inf would turn the gradient of an empty row into NaN.
NOTHING = -1e30


def log1p_exp(logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return log(1 + exp(x)) to full precision, in float64 too.

    Example:
        >>> log1p_exp(torch.tensor([0.0, 100.0]))
        tensor([  0.6931, 100.0000])
    """
    return F.softplus(logits, threshold=50.0)


def log_sum_exp(logits: Float[Tensor, "n m"], mask: Bool[Tensor, "n m"], dim: int = 1) -> Float[Tensor, " _"]:
    """Return the log of the sum of exponentials over a mask; a huge negative number where the mask is empty.

    Example:
        >>> log_sum_exp(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor([0.6931])
    """
    if logits.shape[dim] == 0:
        return logits.new_full((logits.shape[1 - dim],), NOTHING) + logits.sum(dim)
    return torch.logsumexp(logits.masked_fill(~mask, NOTHING), dim)


def log1p_sum_exp(logits: Float[Tensor, "n m"], mask: Bool[Tensor, "n m"], dim: int = 1) -> Float[Tensor, " _"]:
    """Return log(1 + sum of exponentials) over a mask: zero where the mask is empty.

    Example:
        >>> log1p_sum_exp(torch.zeros(2, 2), torch.tensor([[True, False], [False, False]]))
        tensor([0.6931, 0.0000])
    """
    return log1p_exp(log_sum_exp(logits, mask, dim))


def mean(values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """Return the mean of the masked values, or a differentiable zero where there are none.

    Example:
        >>> mean(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([True, True, False]))
        tensor(2.)
    """
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp_min(1)


def mean_of_nonzero(values: Float[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """Return the mean of the entries above zero, or a differentiable zero: easy pairs do not dilute hard ones.

    Example:
        >>> mean_of_nonzero(torch.tensor([0.0, 1.0, 3.0]))
        tensor(2.)
    """
    return values.sum() / (values > 0).sum().clamp_min(1)


def softmax_against_negatives(
    logits: Float[Tensor, "n m"], positive: Bool[Tensor, "n m"], negative: Bool[Tensor, "n m"]
) -> Float[Tensor, ""]:
    """Return the mean over positive pairs of -log( e^x / (e^x + sum over the anchor's negatives e^x') ).

    With one positive per anchor it is the cross-entropy. Other positives never stand in the denominator.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> softmax_against_negatives(logits, logits > 1, logits < 1)
        tensor(0.1269)
    """
    against = log_sum_exp(logits, negative)[:, None].expand_as(logits)
    losses = log1p_exp(against.masked_select(positive) - logits.masked_select(positive))
    return losses.sum() / max(losses.numel(), 1)
