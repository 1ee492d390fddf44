"""Circle loss."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log1p_exp, log_sum_exp, mean
from vicinal.objectives.traits import objective

__all__ = ["circle"]


@objective(geometry="cosine", paper="Sun et al. 2020")
def circle(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    margin: float = 0.4,
    scale: float = 80.0,
) -> Float[Tensor, ""]:
    r"""Pull and push each pair in proportion to how far it is from its optimum.

    Formula:
        mean over anchors of log(1 + sum_neg e^(z a_n (s_n - margin)) sum_pos e^(-z a_p (s_p - 1 + margin))),
        a_p = (1 + margin - s_p)_+ and a_n = (s_n + margin)_+, both held constant in the gradient

    Weights:
        Soft-max shares of each side times a_p or a_n: a pair that has arrived is hardly moved.

    Args:
        margin: m; the radius of the decision circle is its square root of two times.
        scale: z (gamma).

    Needs:
        Anchors with at least one positive and one negative; the mean is over those.

    Relations:
        With a_p = a_n = 1 it is the unified form of `nt_xent` and `lifted_structure`.

    Reference:
        Sun et al., "Circle loss: a unified perspective of pair similarity optimization", CVPR 2020.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> circle(torch.tensor([[0.6, 0.4]]), same, ~same)
        tensor(0.6931)
    """
    pull_strength = (1.0 + margin - matrix.detach()).clamp_min(0.0)
    push_strength = (matrix.detach() + margin).clamp_min(0.0)
    pull = log_sum_exp(pull_strength * (matrix - 1.0 + margin), positive, scale=-scale)
    push = log_sum_exp(push_strength * (matrix - margin), negative, scale=scale)
    return mean(log1p_exp(pull + push), positive.any(1) & negative.any(1))
