"""Normalised soft-max over class references."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import softmax_against_negatives
from vicinal.objectives.traits import objective

__all__ = ["normalised_softmax"]


@objective(geometry="cosine", paper="Zhai and Wu 2019", usual="proxies")
def normalised_softmax(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    temperature: float = 0.05,
) -> Float[Tensor, ""]:
    r"""Classify each anchor by its cosine to the class references.

    Formula:
        mean over positive pairs of -log( e^(s/t) / (e^(s/t) + sum_neg e^(s/t)) )

    Weights:
        The positive weighs 1 minus its probability; negatives weigh their probability.

    Args:
        temperature: t; the usual value for unit vectors is 0.05.

    Needs:
        References of every class: proxies, or a cover.

    Relations:
        On a batch or memory this is `nt_xent`. `cosface` and `arcface` make the positive's logit smaller first.
        With `geometry="dot"` and temperature 1 it is the ordinary soft-max loss without bias.

    Reference:
        Zhai and Wu, "Classification is a strong baseline for deep metric learning", BMVC 2019.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> normalised_softmax(torch.tensor([[0.3, 0.3]]), same, ~same)
        tensor(0.6931)
    """
    return softmax_against_negatives(matrix, positive, negative, scale=1.0 / temperature)
