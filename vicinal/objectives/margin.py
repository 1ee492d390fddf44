"""Margin loss: contrastive around a learnable boundary."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import mean_of_nonzero
from vicinal.objectives.traits import objective

__all__ = ["margin"]


@objective(geometry="euclidean", paper="Wu et al. 2017", miner="distance_weighted")
def margin(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    boundary: float | Float[Tensor, ...] = 1.2,
    margin: float = 0.2,
) -> Float[Tensor, ""]:
    r"""Keep positives inside a boundary and negatives outside it, each by a margin.

    Formula:
        sum over pairs of [ margin + y (d_ij - boundary) ]_+  /  number of pairs above zero,  y = +1 or -1

    Weights:
        A step on each side of the boundary; all violating pairs, positive or negative, weigh the same.

    Args:
        boundary: beta, a distance. A number, or learned: `Learned(1.2)` for one boundary,
            `Learned(1.2, classes=100)` for one per class of the anchor.
        margin: Distance by which pairs must be inside or outside the boundary.

    Needs:
        Positives and negatives; with `mining="distance_weighted"` as in the paper.

    Relations:
        `contrastive_c2` with its margins at boundary -+ margin, but all violating pairs share one mean.

    Reference:
        Wu et al., "Sampling matters in deep embedding learning", ICCV 2017. Its boundary 1.2 is a distance; on
        similarities, which stay below 1, it would mean nothing.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> margin(torch.tensor([[1.3, 1.1, 1.9]]), same, ~same)
        tensor(0.3000)
    """
    beyond = matrix - boundary
    pull = torch.where(positive, margin + beyond, 0.0).clamp_min(0.0)
    push = torch.where(negative, margin - beyond, 0.0).clamp_min(0.0)
    return mean_of_nonzero(pull + push)
