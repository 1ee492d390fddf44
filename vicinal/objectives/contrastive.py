"""Contrastive loss on cosine similarities."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.traits import objective

__all__ = ["contrastive"]


@objective(geometry="cosine", paper="Hadsell et al. 2006; in this cosine form Wang et al. 2019")
def contrastive(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    threshold: float = 0.5,
) -> Float[Tensor, ""]:
    r"""Pull every positive pair, push the negatives that are more similar than a threshold.

    Formula:
        (1/n) sum_i [ sum_neg (s_ij - threshold)_+ - sum_pos s_ij ]

    Weights:
        A step: 1/n for every positive, 1/n for a negative above the threshold, 0 below it. How hard a pair is,
        beyond that, does not count.

    Args:
        threshold: The similarity (lambda) under which negatives are left alone.

    Needs:
        Positives and negatives; either may be missing.

    Relations:
        `contrastive_c1` stops pulling at s = 1; `contrastive_c2` is the Euclidean form with two margins. With
        `mining="valid_triplets"` and threshold=-1 every kept pair weighs the same: VTHM without RAW.

    Reference:
        Hadsell, Chopra, LeCun, "Dimensionality reduction by learning an invariant mapping", CVPR 2006.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> contrastive(torch.tensor([[0.8, 0.9, 0.1]]), same, ~same)
        tensor(-0.4000)
    """
    push = torch.where(negative, matrix - threshold, 0.0).clamp_min(0.0).sum()
    pull = torch.where(positive, matrix, 0.0).sum()
    return (push - pull) / max(len(matrix), 1)
