"""Smooth triplet loss over all triplets, in the memory of one matrix."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log1p_exp, most_positives
from vicinal.objectives.traits import objective

__all__ = ["soft_triplet"]


@objective(geometry="euclidean", paper="Hermans et al. 2017")
def soft_triplet(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    margin: float = 0.0,
    scale: float = 1.0,
) -> Float[Tensor, ""]:
    r"""Ask every negative to be farther than every positive, with a soft-plus instead of a hinge.

    Formula:
        mean over all triplets (a, p, n) of log(1 + exp(scale (d_ap - d_an + margin)))

    Weights:
        A sum of sigmoids: every triplet keeps some weight, violated ones most of it. They are added up positive
        by positive while the loss is computed, so the memory is that of one matrix.

    Args:
        margin: Shift of the soft-plus.
        scale: Steepness of the soft-plus; a large scale approaches the hinge times `scale`.

    Needs:
        Anchors with at least one positive and one negative; others add nothing.

    Relations:
        With `mining="hard"` it is the soft batch-hard loss of Hermans et al. Its gradient is exact; second
        derivatives are not provided.

    Reference:
        Hermans, Beyer, Leibe, "In defense of the triplet loss for person re-identification", 2017.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> soft_triplet(torch.tensor([[0.5, 0.5]]), same, ~same)
        tensor(0.6931)
    """
    most = most_positives(positive)
    near = matrix.masked_fill(~positive, torch.inf).topk(most, dim=1, largest=False).values
    held = near.isfinite()
    near = torch.where(held, near, 0.0)
    with torch.no_grad():
        per_positive, per_negative = torch.zeros_like(near), torch.zeros_like(matrix)
        value = matrix.new_zeros(())
        for rank in range(most):
            triplets = negative & held[:, rank : rank + 1]
            violation = scale * (near[:, rank : rank + 1] - matrix + margin)
            value += torch.where(triplets, log1p_exp(violation), 0.0).sum()
            weight = torch.where(triplets, scale * torch.sigmoid(violation), 0.0)
            per_positive[:, rank] = weight.sum(1)
            per_negative += weight
        count = (held.sum(1) * negative.sum(1)).sum().clamp_min(1)
    # Its value is zero and its gradient the weights: the loss as a weighted sum of pairs.
    slope = (per_positive * (near - near.detach())).sum() - (per_negative * (matrix - matrix.detach())).sum()
    return (value + slope) / count
