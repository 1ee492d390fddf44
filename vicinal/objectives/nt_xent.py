"""Normalised-temperature cross-entropy, also known as InfoNCE."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import softmax_against_negatives
from vicinal.objectives.traits import objective

__all__ = ["nt_xent"]


@objective(geometry="cosine", paper="Oord et al. 2018 (InfoNCE); Chen et al. 2020 (NT-Xent)")
def nt_xent(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    temperature: float = 0.07,
) -> Float[Tensor, ""]:
    r"""Classify each positive against all negatives of its anchor by a soft-max.

    Formula:
        mean over positive pairs (i, j) of -log( e^(s_ij/t) / (e^(s_ij/t) + sum_neg e^(s_ik/t)) )

    Weights:
        Negatives share a soft-max sharpened by 1/t; the positive balances them. Other positives of the anchor are
        not in the denominator.

    Args:
        temperature: t; with small values only the nearest negatives count.

    Needs:
        A positive and a negative per anchor.

    Relations:
        `n_pair` with scale 1/t on cosines. `supervised_contrastive` keeps the other positives in the
        denominator. On proxies it is `normalised_softmax`.

    Reference:
        Oord, Li, Vinyals, "Representation learning with contrastive predictive coding", 2018; Chen et al., "A
        simple framework for contrastive learning of visual representations", ICML 2020.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> nt_xent(torch.tensor([[0.5, 0.5]]), same, ~same)
        tensor(0.6931)
    """
    return softmax_against_negatives(matrix, positive, negative, scale=1.0 / temperature)
