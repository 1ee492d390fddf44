"""Cross-entropy modified to be a metric."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.errors import look_up
from vicinal.objectives.label_gap import CONCAVE, label_gap
from vicinal.objectives.stable import mean
from vicinal.objectives.traits import objective

__all__ = ["metric_cross_entropy"]


@objective(
    geometry="dot",
    paper="Mou et al. 2024",
    usual="one_hot",
    references=("one_hot",),
    why_not="its matrix holds probabilities of classes",
)
def metric_cross_entropy(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    k: float = 0.5,
    p: float = 0.75,
    smoothing: float = 1e-3,
    transform: str = "identity",
) -> Float[Tensor, ""]:
    r"""Move class probabilities to their label in a distance that is also a metric between items.

    Formula:
        mean over anchors of F( sum over classes of -log(1 - k u^p) ), u = |probability - label|

    Weights:
        F' k p u^(p-1) / (1 - k u^p): for p below 1 largest near the label, where smoothing bounds it.

    Args:
        k: Factor between 0 and 1. The distance of two labels is F(-2 log(1 - k)).
        p: Power, above 0. The loss is a metric for p <= `vicinal.spaces.p_max(k)`, and a weak-metric beyond.
        smoothing: s, which replaces u^p by ((u + s)^p - s^p) / ((1 + s)^p - s^p), whose slope at 0 is finite.
        transform: F, one of "identity", "logarithm", "root" and "saturating".

    Needs:
        An embedder whose embeddings are soft-max outputs, one per class. The paper recommends no k, p or F: the
        defaults are ours, inside the metric region, and learn up to 8 classes from random weights. For more, use
        `vicinal.spaces.options_for(classes)`, or start from a model that was trained with cross_entropy.

    Relations:
        L_CE'^2 of the paper, whose a and b act through k = b / (1 + a) alone. With k = p = 1 it would be
        `weak_metric_cross_entropy`.

    Reference:
        Mou et al., "How classification baseline works for deep metric learning: a perspective of metric space", ACML
        2024.

    Example:
        >>> own = torch.tensor([[True, False]])
        >>> metric_cross_entropy(torch.tensor([[0.0, 1.0]]), own, ~own)  # one label's probabilities, the other's label
        tensor(1.3863)
    """
    gap = torch.where(positive, 1.0 - matrix, matrix).clamp(0.0, 1.0)
    counted = positive | negative
    total = torch.where(counted, label_gap(gap, k=k, p=p, smoothing=smoothing), 0.0).sum(1)
    return mean(look_up("transform", transform, CONCAVE)(total), counted.any(1))
