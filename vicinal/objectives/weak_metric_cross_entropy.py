"""Cross-entropy with the terms of the other classes: a weak-metric."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.errors import look_up
from vicinal.objectives.label_gap import CONCAVE, LARGEST, SMALLEST
from vicinal.objectives.stable import mean
from vicinal.objectives.traits import objective

__all__ = ["weak_metric_cross_entropy"]


@objective(
    geometry="dot",
    paper="Mou et al. 2024",
    usual="one_hot",
    references=("one_hot",),
    why_not="its matrix holds probabilities of classes",
)
def weak_metric_cross_entropy(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    transform: str = "identity",
) -> Float[Tensor, ""]:
    r"""Make the probability of each item's own class large and that of every other class small, independently.

    Formula:
        mean over anchors of F( -log x_own - sum over the other classes of log(1 - x) )

    Weights:
        The label's class weighs 1/x, another class 1/(1 - x): confident mistakes weigh most on both sides.

    Args:
        transform: F, one of "identity", "logarithm", "root" and "saturating".

    Needs:
        An embedder whose embeddings are soft-max outputs, one per class.

    Relations:
        L_CE'^1 of the paper. It is the distance -sum_i log(1 - |x_i - y_i|) of an item x and its label y. Between two
        items the triangle inequality holds through labels only: a weak-metric. `metric_cross_entropy` is a metric.
        Without the other classes' terms it is `cross_entropy`.

    Reference:
        Mou et al., "How classification baseline works for deep metric learning: a perspective of metric space", ACML
        2024.

    Example:
        >>> own = torch.tensor([[True, False]])
        >>> weak_metric_cross_entropy(torch.tensor([[0.25, 0.75]]), own, ~own)
        tensor(2.7726)
    """
    to_label = -matrix.clamp(SMALLEST, 1.0).log()
    to_others = -torch.log1p(-matrix.clamp(0.0, LARGEST))
    total = (torch.where(positive, to_label, 0.0) + torch.where(negative, to_others, 0.0)).sum(1)
    return mean(look_up("transform", transform, CONCAVE)(total), (positive | negative).any(1))
