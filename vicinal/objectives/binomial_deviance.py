"""Binomial deviance loss."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log1p_exp
from vicinal.objectives.traits import objective

__all__ = ["binomial_deviance"]


@objective(geometry="cosine", paper="Yi et al. 2014")
def binomial_deviance(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    positive_scale: float = 2.0,
    negative_scale: float = 50.0,
    threshold: float = 0.5,
) -> Float[Tensor, ""]:
    r"""Weigh each pair by a sigmoid of its own similarity.

    Formula:
        mean over anchors of  mean_pos log(1 + e^(a (threshold - s))) + mean_neg log(1 + e^(b (s - threshold)))

    Weights:
        (a/|P|) sigmoid(a (threshold - s)) and (b/|N|) sigmoid(b (s - threshold)): a smooth step of the pair's own
        similarity; other pairs do not matter.

    Args:
        positive_scale: a; steepness on the positive side.
        negative_scale: b; steepness on the negative side.
        threshold: gamma; where both sigmoids are half open.

    Needs:
        Positives and negatives; either may be missing.

    Relations:
        `multi_similarity` moves the sum inside the logarithm, which adds relative hardness.

    Reference:
        Yi, Lei, Li, "Deep metric learning for practical person re-identification", 2014.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> binomial_deviance(torch.tensor([[0.5, 0.5]]), same, ~same)
        tensor(1.3863)
    """
    pull = torch.where(positive, log1p_exp(positive_scale * (threshold - matrix)), 0.0).sum(1)
    push = torch.where(negative, log1p_exp(negative_scale * (matrix - threshold)), 0.0).sum(1)
    per_anchor = pull / positive.sum(1).clamp_min(1) + push / negative.sum(1).clamp_min(1)
    return per_anchor.sum() / max(len(matrix), 1)
