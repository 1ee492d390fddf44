"""Neighbourhood components analysis (NCA)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import FAR, mean
from vicinal.objectives.traits import objective

__all__ = ["nca"]


@objective(geometry="squared_euclidean", paper="Goldberger et al. 2005")
def nca(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    scale: float = 1.0,
) -> Float[Tensor, ""]:
    r"""Maximise the probability that a random neighbour, drawn by distance, belongs to the same class.

    Formula:
        mean over anchors of  1 - sum_pos p_ij,    p_ij = e^(-scale d_ij) / sum_{pos and neg} e^(-scale d_ik)
        (d squared distances): the expected error of the random neighbour

    Weights:
        With p the probability of the same class, a positive weighs p_ij (1 - p) and a negative p_ij p: anchors that
        are entirely right or entirely wrong, and pairs that are far apart, do not move.

    Args:
        scale: Multiplies the squared distances. A linear map learns it; embeddings on the sphere, whose squared
            distances end at 4, need about 10.

    Needs:
        Anchors with a positive and a negative; the mean is over those.

    Relations:
        `mcml` asks every positive to be near, not some. `proxy_nca` compares with proxies. `vicinal.classical.NCA`
        minimises it over a linear map with all pairs at once.

    Reference:
        Goldberger, Roweis, Hinton, Salakhutdinov, "Neighbourhood components analysis", NIPS 2005.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> nca(torch.tensor([[2.0, 2.0, 2.0]]), same, ~same)
        tensor(0.6667)
    """
    if matrix.shape[1] == 0:
        return matrix.sum()
    chances = torch.where(positive | negative, -scale * matrix, -FAR).softmax(1)
    right = torch.where(positive, chances, 0.0).sum(1)
    return mean(1.0 - right, positive.any(1) & negative.any(1))
