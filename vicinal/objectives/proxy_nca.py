"""Proxy-NCA, with the positive class left out of the denominator."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log_sum_exp, mean
from vicinal.objectives.traits import objective

__all__ = ["proxy_nca"]


@objective(geometry="squared_euclidean", paper="Movshovitz-Attias et al. 2017", usual="proxies")
def proxy_nca(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    scale: float = 1.0,
) -> Float[Tensor, ""]:
    r"""Pull each anchor to its proxy with a constant force and away from the other proxies.

    Formula:
        mean over positive pairs of  scale d_ij + log sum_neg e^(-scale d_ik)        (d squared distances)

    Weights:
        The positive weighs `scale` however near it is; negatives share `scale` by a soft-max. The loss has no floor.

    Args:
        scale: Multiplies the squared distances.

    Needs:
        Anchors with a positive and a negative.

    Relations:
        `proxy_nca_pp` keeps the positive in the denominator, so the pull fades as the pair gets near; most
        libraries call that form ProxyNCA.

    Reference:
        Movshovitz-Attias et al., "No fuss distance metric learning using proxies", ICCV 2017.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> proxy_nca(torch.tensor([[0.5, 1.5]]), same, ~same)
        tensor(-1.)
    """
    against = log_sum_exp(matrix, negative, scale=-scale)[:, None]
    return mean(against + scale * matrix, positive & negative.any(1, keepdim=True))
