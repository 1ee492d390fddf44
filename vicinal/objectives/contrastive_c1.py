"""Contrastive loss C1: on similarities, summed per anchor."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.traits import objective

__all__ = ["contrastive_c1"]


@objective(geometry="cosine", paper="Hadsell et al. 2006; in this form Wang et al. 2020 (XBM)")
def contrastive_c1(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    threshold: float = 0.5,
) -> Float[Tensor, ""]:
    r"""Pull every positive pair until it coincides, push the negatives above a threshold.

    Formula:
        (1/n) sum_i [ sum_pos (1 - s_ij - 1e-5)_+ + sum_neg (s_ij - threshold)_+ ]

    Weights:
        A step: 1/n for a positive not yet at s = 1 and for a negative above the threshold.

    Args:
        threshold: The similarity (margin m) under which negatives are left alone.

    Needs:
        Positives and negatives; either may be missing.

    Relations:
        `contrastive` plus a constant per positive pair. It sums where `contrastive_c2` averages, so large
        memories make it large: the form that cross-batch memory was introduced with.

    Reference:
        Wang et al., "Cross-batch memory for embedding learning", CVPR 2020. Called C1 by Gurbuz et al.,
        "Deep metric learning with chance constraints", WACV 2024.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> contrastive_c1(torch.tensor([[0.8, 0.9, 0.1]]), same, ~same)
        tensor(0.6000)
    """
    pull = torch.where(positive, 1.0 - matrix - 1e-5, 0.0).clamp_min(0.0).sum()
    push = torch.where(negative, matrix - threshold, 0.0).clamp_min(0.0).sum()
    return (pull + push) / max(len(matrix), 1)
