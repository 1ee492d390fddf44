"""Generalised lifted structure loss."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log_sum_exp, mean
from vicinal.objectives.traits import objective

__all__ = ["lifted_structure"]


@objective(
    geometry="cosine", paper="Oh Song et al. 2016; Hermans et al. 2017, with the sign of the negatives corrected"
)
def lifted_structure(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    margin: float = 0.5,
    positive_scale: float = 1.0,
    negative_scale: float = 1.0,
) -> Float[Tensor, ""]:
    r"""Weigh all positives and all negatives of an anchor by soft-max, and stop when they are well apart.

    Formula:
        mean over anchors of
        [ margin + (1/a) log sum_pos e^(-a s) + (1/b) log sum_neg e^(b s) ]_+

    Weights:
        Where the hinge is open: a soft-max over the anchor's positives (the least similar weighs most) and a
        soft-max over its negatives (the most similar weighs most). Only relative hardness counts: adding a
        constant to all similarities of an anchor changes nothing when a = b.

    Args:
        margin: The gap (lambda) at which an anchor is left alone.
        positive_scale: a; sharpness of the soft-max over positives.
        negative_scale: b; sharpness of the soft-max over negatives.

    Needs:
        Anchors with at least one positive and one negative; the mean is over those.

    Relations:
        `multi_similarity` adds an absolute threshold to each log-sum-exp and drops the common hinge.

    Reference:
        Oh Song et al., "Deep metric learning via lifted structured feature embedding", CVPR 2016; generalised
        by Hermans et al. 2017. The form printed in "A unified view of deep metric learning via gradient
        analysis" (eq 9) has a minus sign that would stress the easy negatives; this is the corrected one.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> lifted_structure(torch.tensor([[0.8, 0.3, 0.3]]), same, ~same)
        tensor(0.6931)
    """
    pull = log_sum_exp(matrix, positive, scale=-positive_scale) / positive_scale
    push = log_sum_exp(matrix, negative, scale=negative_scale) / negative_scale
    usable = positive.any(1) & negative.any(1)
    return mean((margin + pull + push).clamp_min(0.0), usable)
