"""Maximally collapsing metric learning (MCML)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log_sum_exp, mean
from vicinal.objectives.traits import objective

__all__ = ["mcml"]


@objective(geometry="squared_euclidean", paper="Globerson and Roweis 2006")
def mcml(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    scale: float = 1.0,
) -> Float[Tensor, ""]:
    r"""Collapse every class to a point, infinitely far from the others.

    Formula:
        mean over anchors of KL(p0_i || p_i)
        p_ij = e^(-scale d_ij) / sum_{pos and neg} e^(-scale d_ik),  p0_ij = 1/|P_i| on positives, 0 on negatives
        (d squared distances)

    Weights:
        A positive weighs its target share 1/|P| minus its share of the soft-max, a negative its share. The loss is
        linear plus a log-sum-exp, so it is convex in the distances and in the matrix A of a Mahalanobis distance.

    Args:
        scale: Multiplies the squared distances. A linear map learns it; embeddings on the sphere, whose squared
            distances end at 4, need about 10.

    Needs:
        Anchors with a positive and a negative; the mean is over those.

    Relations:
        On the sphere d = 2 - 2 s, and `supervised_contrastive` at temperature 1 / (2 scale) is this loss plus the mean
        of log |P|: the same idea, fourteen years apart. `nca` is content with some positives near.

    Reference:
        Globerson and Roweis, "Metric learning by collapsing classes", NIPS 2006.

    Example:
        >>> same = torch.tensor([[True, True, False]])
        >>> mcml(torch.tensor([[1.0, 1.0, 1.0]]), same, ~same)
        tensor(0.4055)
    """
    count = positive.sum(1).clamp_min(1).to(matrix.dtype)
    pulls = torch.where(positive, matrix, 0.0).sum(1) / count
    everything = log_sum_exp(matrix, positive | negative, scale=-scale)
    return mean(scale * pulls + everything - count.log(), positive.any(1) & negative.any(1))
