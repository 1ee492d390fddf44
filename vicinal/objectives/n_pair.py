"""N-pair loss."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import softmax_against_negatives
from vicinal.objectives.traits import objective

__all__ = ["n_pair"]


@objective(geometry="dot", paper="Sohn 2016", regularisers=(("embedding_norm", 0.02),), items_per_class=2)
def n_pair(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    scale: float = 1.0,
) -> Float[Tensor, ""]:
    r"""Pull each positive pair against all negatives of its anchor at once.

    Formula:
        mean over positive pairs (i, j) of log(1 + sum_{k in neg} exp(scale (s_ik - s_ij)))

    Weights:
        Negatives share a soft-max; the positive balances them. Only differences of similarities count.

    Args:
        scale: Multiplies the inner products. On unit vectors the bare loss cannot fall far (its logits stay in
            [-1, 1]): use `nt_xent` or a scale well above 1 there.

    Needs:
        A positive and a negative per anchor; two per class are what the paper uses, more are averaged.

    Relations:
        `nt_xent` is the same function on cosines with scale = 1 / temperature. The paper's term on the length of
        the embeddings is the regulariser `embedding_norm`, which a `Criterion` adds by default (0.02).

    Reference:
        Sohn, "Improved deep metric learning with multi-class N-pair loss objective", NeurIPS 2016.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> n_pair(torch.tensor([[2.0, 2.0]]), same, ~same)
        tensor(0.6931)
    """
    return softmax_against_negatives(matrix, positive, negative, scale=scale)
