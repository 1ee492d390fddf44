"""Contrastive loss C2: on distances, with a positive margin."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import mean_of_nonzero
from vicinal.objectives.traits import objective

__all__ = ["contrastive_c2"]


@objective(geometry="euclidean", paper="Hu et al. 2014; Gurbuz et al. 2024 (C2)")
def contrastive_c2(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    positive_margin: float = 0.0,
    negative_margin: float = 0.5,
) -> Float[Tensor, ""]:
    r"""Pull positives that are farther than one margin, push negatives that are nearer than another.

    Formula:
        mean over violating positives of (d_ij - positive_margin)
        + mean over violating negatives of (negative_margin - d_ij)

    Weights:
        A step on each side; each side shares one unit of weight among its violating pairs, so many easy pairs
        cannot drown a few hard ones.

    Args:
        positive_margin: The distance (m+) up to which positives are close enough.
        negative_margin: The distance (m-) from which negatives are far enough.

    Needs:
        Positives and negatives; either may be missing.

    Relations:
        With boundary (m+ + m-)/2 and margin (m- - m+)/2 its pairs are those of the `margin` loss.

    Reference:
        Hu, Lu, Tan, "Discriminative deep metric learning for face verification", CVPR 2014. The settings per
        dataset are those of Gurbuz et al., "Deep metric learning with chance constraints", WACV 2024.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> contrastive_c2(torch.tensor([[0.8, 0.2, 0.9]]), same, ~same)
        tensor(1.1000)
    """
    pull = torch.where(positive, matrix - positive_margin, 0.0).clamp_min(0.0)
    push = torch.where(negative, negative_margin - matrix, 0.0).clamp_min(0.0)
    return mean_of_nonzero(pull) + mean_of_nonzero(push)
