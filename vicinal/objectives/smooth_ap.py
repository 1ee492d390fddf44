"""Smooth-AP: average precision with sigmoids for steps."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vicinal.objectives.stable import mean, most_positives
from vicinal.objectives.traits import objective

__all__ = ["smooth_ap"]


@objective(geometry="cosine", paper="Brown et al. 2020")
def smooth_ap(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    temperature: float = 0.01,
) -> Float[Tensor, ""]:
    r"""Raise the average precision of each anchor's ranking, with ranks counted by sigmoids.

    Formula:
        mean over anchors of 1 - (1/|P|) sum_{j in pos} rank_pos(j) / rank_all(j),
        rank(j) = 1 + sum_{k != j} sigmoid((s_k - s_j) / t)

    Weights:
        Largest for pairs whose order is undecided (similarities within a few t of each other).

    Args:
        temperature: t; small values follow the true ranking closely but pass gradients only between near ties.

    Needs:
        Anchors with a positive; the mean is over those. The cost grows with the largest number of positives; one
        n x m matrix is held at a time.

    Relations:
        `fast_ap` bins distances instead.

    Reference:
        Brown et al., "Smooth-AP: smoothing the path towards large-scale image retrieval", ECCV 2020.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> smooth_ap(torch.tensor([[0.5, 0.5]]), same, ~same)
        tensor(0.3333)
    """
    most = most_positives(positive)
    columns = positive.to(torch.uint8).topk(most, dim=1).indices
    average_precision = matrix.new_zeros(len(matrix)) + 0.0 * matrix.sum(1)
    for rank in range(most):
        column = columns[:, rank : rank + 1]
        precision = checkpoint(_precision_at, matrix, positive, negative, column, temperature, use_reentrant=False)
        average_precision = average_precision + precision
    return mean(1.0 - average_precision / positive.sum(1).clamp_min(1), positive.any(1))


def _precision_at(
    matrix: Tensor, positive: Tensor, negative: Tensor, column: Tensor, temperature: float
) -> Float[Tensor, " n"]:
    """Return the precision at the rank of one positive per anchor; zero if the column is not a positive."""
    ahead = torch.sigmoid((matrix - matrix.gather(1, column)) / temperature).scatter(1, column, 0.0)
    positives_ahead = torch.where(positive, ahead, 0.0).sum(1)
    negatives_ahead = torch.where(negative, ahead, 0.0).sum(1)
    precision = (1.0 + positives_ahead) / (1.0 + positives_ahead + negatives_ahead)
    return torch.where(positive.gather(1, column).squeeze(1), precision, 0.0)
