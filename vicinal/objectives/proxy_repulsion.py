"""Proxies pull their items and repel each other."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.objectives.proxy_anchor import pull_to_references
from vicinal.objectives.stable import log1p_sum_exp
from vicinal.objectives.traits import objective

__all__ = ["proxy_repulsion"]


@objective(
    geometry="cosine",
    paper="'Metric learning: a deep dive', eq 6.1",
    usual="proxies",
    references=("proxies", "cover"),
    needs=("reference_labels", "reference_matrix"),
    why_not="its second term compares the references with each other, which moves nothing unless they are learned",
)
def proxy_repulsion(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    reference_labels: Int[Tensor, " m"],
    reference_matrix: Float[Tensor, "m m"],
    margin: float = 0.1,
    scale: float = 32.0,
) -> Float[Tensor, ""]:
    r"""Pull items to the references of their class; push the references of different classes apart.

    Formula:
        (1/|W+|) sum_{w in W+} log(1 + sum_{x in X_w+} e^(-z (w.x - margin)))
        + (1/|W|) sum_w log(1 + sum_{w' of other classes} e^(z (w.w' + margin)))

    Weights:
        Positives as in `proxy_anchor`. Items have no negatives: only references push each other.

    Args:
        reference_labels: Class of each reference; a `Criterion` supplies it.
        reference_matrix: Similarities among the references; a `Criterion` supplies it.
        margin: lambda.
        scale: z (alpha).

    Needs:
        Learned references. Memory grows with the square of their number.

    Relations:
        `proxy_anchor` with its negatives moved from items to references; `proxy_gram` looks at the references
        through the batch.

    Reference:
        "Metric learning: a deep dive", thesis, eq 6.1, with the index of its second sum corrected.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> proxies = torch.tensor([[1.0, -0.1], [-0.1, 1.0]])
        >>> labels = torch.tensor([0, 1])
        >>> loss = proxy_repulsion(
        ...     torch.tensor([[0.1, 0.9]]), same, ~same, reference_labels=labels, reference_matrix=proxies
        ... )
        >>> round(float(loss), 4)
        1.3863
    """
    apart = reference_labels[:, None] != reference_labels[None, :]
    push = log1p_sum_exp(reference_matrix, apart, scale=scale, threshold=-margin).sum() / max(len(apart), 1)
    return pull_to_references(matrix, positive, margin, scale) + push
