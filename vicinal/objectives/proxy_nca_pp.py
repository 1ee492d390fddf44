"""ProxyNCA++: proxy assignment probability at low temperature."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import softmax_against_negatives
from vicinal.objectives.traits import objective

__all__ = ["proxy_nca_pp"]


@objective(geometry="squared_euclidean", paper="Teh et al. 2020", usual="proxies", warm_up=1.0)
def proxy_nca_pp(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    temperature: float = 0.1,
) -> Float[Tensor, ""]:
    r"""Raise the probability that an anchor is assigned to its own proxy.

    Formula:
        mean over positive pairs of -log( e^(-d/t) / (e^(-d/t) + sum_neg e^(-d/t)) )        (d squared distances)

    Weights:
        (1 - p) / t for the positive and p_k / t for the negatives: the pull fades as the pair is won.

    Args:
        temperature: t; the paper's text has 0.1, its code 0.11.

    Needs:
        References of every class, one item per class in a batch, and a higher learning rate for the proxies.

    Relations:
        `normalised_softmax` in squared distances: on the sphere d = 2 - 2 s, so this is the same with temperature
        t / 2. `proxy_nca` leaves the positive out of the denominator.

    Reference:
        Teh, DeVries, Taylor, "ProxyNCA++: revisiting and revitalizing proxy neighborhood component analysis",
        ECCV 2020.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> proxy_nca_pp(torch.tensor([[0.5, 0.5]]), same, ~same)
        tensor(0.6931)
    """
    return softmax_against_negatives(matrix, positive, negative, scale=-1.0 / temperature)
