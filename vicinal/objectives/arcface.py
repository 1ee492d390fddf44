"""ArcFace: additive angular margin."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import softmax_against_negatives
from vicinal.objectives.traits import objective

__all__ = ["arcface"]


@objective(geometry="cosine", paper="Deng et al. 2019", usual="proxies")
def arcface(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    margin_degrees: float = 28.6,
    scale: float = 64.0,
) -> Float[Tensor, ""]:
    r"""Classify each anchor by cosine after widening the angle to its own class by a margin.

    Formula:
        mean over positive pairs of -log( e^(z cos(angle + margin)) / (e^(z cos(angle + margin)) + sum_neg e^(z s_k)) )

    Weights:
        As `cosface`, with the pull growing with the angle.

    Args:
        margin_degrees: Added to the angle, in degrees (28.6 is half a radian). Beyond 180 degrees minus the
            margin, where the cosine would rise again, the logit goes on falling in a straight line.
        scale: z; one over the temperature.

    Needs:
        References of every class.

    Relations:
        `cosface` takes the margin off the cosine instead.

    Reference:
        Deng et al., "ArcFace: additive angular margin loss for deep face recognition", CVPR 2019.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> arcface(torch.tensor([[0.5, 0.0]]), same, ~same, margin_degrees=30.0)
        tensor(0.6931)
    """
    margin = math.radians(margin_degrees)
    cosines = matrix[positive]
    # cos(a + m) = cos a cos m - sin a sin m; the sine's slope is infinite at +-1, where the clamp stops it.
    sines = (1.0 - cosines.square()).clamp_min(torch.finfo(cosines.dtype).eps).sqrt()
    widened = cosines * math.cos(margin) - sines * math.sin(margin)
    straight = cosines - margin * math.sin(margin)
    lowered = torch.where(cosines > -math.cos(margin), widened, straight)
    return softmax_against_negatives(matrix, positive, negative, scale=scale, pulled=lowered)
