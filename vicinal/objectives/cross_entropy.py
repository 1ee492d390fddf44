"""Cross-entropy of class probabilities and labels."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.label_gap import SMALLEST
from vicinal.objectives.stable import mean
from vicinal.objectives.traits import objective

__all__ = ["cross_entropy"]


@objective(
    geometry="dot",
    paper="the classification baseline",
    usual="one_hot",
    references=("one_hot",),
    why_not="its matrix holds probabilities of classes",
)
def cross_entropy(
    matrix: Float[Tensor, "n m"], positive: Bool[Tensor, "n m"], negative: Bool[Tensor, "n m"]
) -> Float[Tensor, ""]:
    r"""Make the probability of each item's own class large.

    Formula:
        mean over positive pairs of -log x, where x is the probability of the label's class

    Weights:
        The label's class weighs 1/x; the others weigh nothing, but the soft-max lowers them as it raises the label's.

    Args:
        matrix: Products of soft-max outputs and one-hot labels, which are the probabilities themselves. Smaller values
            count as 1e-30.

    Needs:
        An embedder whose embeddings are soft-max outputs, one per class.

    Relations:
        `weak_metric_cross_entropy` adds the other classes, and has a distance between items. `normalised_softmax` does
        the same on cosines to learned proxies.

    Reference:
        Mou et al., "How classification baseline works for deep metric learning: a perspective of metric space", ACML
        2024.

    Example:
        >>> own = torch.tensor([[True, False]])
        >>> cross_entropy(torch.tensor([[0.25, 0.75]]), own, ~own)
        tensor(1.3863)
    """
    return mean(-matrix.clamp(SMALLEST, 1.0).log(), positive)
