"""Proxy-anchor loss."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log1p_sum_exp, mean
from vicinal.objectives.traits import objective

__all__ = ["proxy_anchor", "pull_to_references", "push_from_references"]


@objective(geometry="cosine", paper="Kim et al. 2020", usual="proxies", warm_up=1.0)
def proxy_anchor(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    margin: float = 0.1,
    scale: float = 32.0,
) -> Float[Tensor, ""]:
    r"""Let every reference pull its hard positives and push its hard negatives in the batch.

    Formula:
        (1/|W+|) sum_{w in W+} log(1 + sum_{x in X_w+} e^(-z (s - margin)))
        + (1/|W|) sum_{w in W} log(1 + sum_{x in X_w-} e^(z (s + margin)))

        W are all references, W+ those with a positive in the batch.

    Weights:
        Column by column: a soft-max over the positives of a reference (with a one in the denominator, so that
        easy ones fade) and one over its negatives. Items of a batch thereby weigh against each other.

    Args:
        margin: lambda; positives are pulled up to it, negatives pushed below its negative.
        scale: z (alpha).

    Needs:
        References of every class and a higher learning rate for them (x100 in the paper).

    Relations:
        `multi_similarity` with the roles of rows and columns exchanged and thresholds at +-margin.
        `proxy_repulsion` and `proxy_gram` replace the second term.

    Reference:
        Kim et al., "Proxy anchor loss for deep metric learning", CVPR 2020.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> proxy_anchor(torch.tensor([[0.1, -0.1]]), same, ~same)
        tensor(1.0397)
    """
    return pull_to_references(matrix, positive, margin, scale) + push_from_references(matrix, negative, margin, scale)


def pull_to_references(
    matrix: Float[Tensor, "n m"], positive: Bool[Tensor, "n m"], margin: float, scale: float
) -> Float[Tensor, ""]:
    """Return the first term: the mean over references with a positive."""
    return mean(log1p_sum_exp(matrix, positive, dim=0, scale=-scale, threshold=margin), positive.any(0))


def push_from_references(
    matrix: Float[Tensor, "n m"], negative: Bool[Tensor, "n m"], margin: float, scale: float
) -> Float[Tensor, ""]:
    """Return the second term: the mean over all references."""
    return log1p_sum_exp(matrix, negative, dim=0, scale=scale, threshold=-margin).sum() / max(matrix.shape[1], 1)
