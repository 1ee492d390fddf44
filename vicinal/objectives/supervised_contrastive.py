"""Supervised contrastive loss (SupCon)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log_sum_exp, mean
from vicinal.objectives.traits import objective

__all__ = ["supervised_contrastive"]


@objective(geometry="cosine", paper="Khosla et al. 2020")
def supervised_contrastive(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    temperature: float = 0.1,
) -> Float[Tensor, ""]:
    r"""Make every positive of an anchor likely among all its pairs.

    Formula:
        mean over anchors of  mean over positives j of -log( e^(s_ij/t) / sum_{pos and neg} e^(s_ik/t) )

    Weights:
        A positive weighs 1/|P| minus its own share of the soft-max, so one that is already nearest may be pushed;
        negatives weigh their share.

    Args:
        temperature: t; with small values only the nearest pairs count.

    Needs:
        Anchors with a positive; the mean is over those.

    Relations:
        `nt_xent` leaves the other positives out of the denominator.

    Reference:
        Khosla et al., "Supervised contrastive learning", NeurIPS 2020 (the form "out").

    Example:
        >>> same = torch.tensor([[True, True, False]])
        >>> supervised_contrastive(torch.tensor([[0.5, 0.5, 0.5]]), same, ~same)
        tensor(1.0986)
    """
    everything = log_sum_exp(matrix, positive | negative, scale=1.0 / temperature)
    pulls = torch.where(positive, matrix, 0.0).sum(1) / positive.sum(1).clamp_min(1)
    return mean(everything - pulls / temperature, positive.any(1))
