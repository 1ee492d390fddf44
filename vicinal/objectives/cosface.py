"""CosFace: additive cosine margin."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import softmax_against_negatives
from vicinal.objectives.traits import objective

__all__ = ["cosface"]


@objective(geometry="cosine", paper="Wang et al. 2018", usual="proxies")
def cosface(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    margin: float = 0.35,
    scale: float = 64.0,
) -> Float[Tensor, ""]:
    r"""Classify each anchor by cosine after lowering the cosine of its own class by a margin.

    Formula:
        mean over positive pairs of -log( e^(z (s - margin)) / (e^(z (s - margin)) + sum_neg e^(z s_k)) )

    Weights:
        As `normalised_softmax`, but the positive is pulled until it leads by the margin.

    Args:
        margin: Subtracted from the positive's cosine.
        scale: z; one over the temperature.

    Needs:
        References of every class.

    Relations:
        `arcface` takes the margin off the angle; `soft_triple` with one centre is this loss.

    Reference:
        Wang et al., "CosFace: large margin cosine loss for deep face recognition", CVPR 2018.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> cosface(torch.tensor([[0.65, 0.3]]), same, ~same)
        tensor(0.6931)
    """
    return softmax_against_negatives(matrix, positive, negative, scale=scale, pulled=matrix[positive] - margin)
