"""FastAP: average precision through a soft histogram."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import mean
from vicinal.objectives.traits import objective

__all__ = ["fast_ap"]


@objective(geometry="squared_euclidean", paper="Cakir et al. 2019")
def fast_ap(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    bins: int = 10,
    largest: float = 4.0,
) -> Float[Tensor, ""]:
    r"""Raise the average precision of each anchor's ranking, measured on a histogram of its distances.

    Formula:
        mean over anchors of 1 - (1/|P|) sum_bins h+ H+ / H
        with h+ the soft histogram of distances to positives, H+ and H the cumulative ones (positives, all)

    Weights:
        A pair weighs as much as moving it to the next bin changes the precision there.

    Args:
        bins: Number of intervals (L) between 0 and `largest`.
        largest: Largest squared distance; 4 on the unit sphere. Distances beyond it count in the last bin.

    Needs:
        Anchors with a positive; the mean is over those.

    Relations:
        `smooth_ap` smooths ranks instead of binning distances.

    Reference:
        Cakir et al., "Deep metric learning to rank", CVPR 2019.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> fast_ap(torch.tensor([[0.0, 4.0]]), same, ~same)
        tensor(0.)
    """
    position = (matrix * (bins / largest)).clamp(0.0, bins)
    lower = position.detach().floor().clamp_max(bins - 1)
    above = position - lower  # the share that falls on the upper edge of the interval
    edges = lower.long()

    def histogram(mask: Tensor) -> Tensor:
        empty = matrix.new_zeros(len(matrix), bins + 1)
        low = empty.scatter_add(1, edges, torch.where(mask, 1.0 - above, 0.0))
        return low.scatter_add(1, edges + 1, torch.where(mask, above, 0.0))

    of_positives = histogram(positive)
    retrieved = of_positives.cumsum(1)
    seen = retrieved + histogram(negative).cumsum(1)
    precision = of_positives * retrieved / torch.where(seen > 0, seen, 1.0)
    return mean(1.0 - precision.sum(1) / positive.sum(1).clamp_min(1), positive.any(1))
