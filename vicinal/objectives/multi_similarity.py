"""Multi-similarity loss, which is the RAW weighting."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.objectives.stable import log1p_sum_exp
from vicinal.objectives.traits import objective

__all__ = ["multi_similarity", "raw"]


@objective(
    geometry="cosine",
    paper="Wang et al. 2019; as RAW in 'A unified view ... via gradient analysis'",
    miner="valid_triplets",
)
def multi_similarity(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    positive_scale: float = 2.0,
    negative_scale: float = 50.0,
    threshold: float = 0.5,
) -> Float[Tensor, ""]:
    r"""Weigh each pair by its own similarity and by that of the anchor's other pairs.

    Formula:
        (1/n) sum_i  (1/a) log(1 + sum_pos e^(-a (s - threshold))) + (1/b) log(1 + sum_neg e^(b (s - threshold)))

    Weights:
        positive: 1 / ( e^(a (s_ij - threshold)) + sum_{k in pos} e^(a (s_ij - s_ik)) ) / n
        negative: 1 / ( e^(-b (s_ij - threshold)) + sum_{k in neg} e^(-b (s_ij - s_ik)) ) / n
        The first term is absolute hardness, the second relative; per anchor and side they add to less than 1/n.

    Args:
        positive_scale: a; sharpness on the positive side.
        negative_scale: b; sharpness on the negative side.
        threshold: gamma (lambda); where a lone pair weighs one half.

    Needs:
        Positives and negatives; `mining="valid_triplets"` is the miner that both papers pair it with.

    Relations:
        RAW ("relative and absolute similarity based weight assignment") is the same function under another name:
        `raw` is an alias. `binomial_deviance` has only the absolute term, `lifted_structure` only the relative.

    Reference:
        Wang et al., "Multi-similarity loss with general pair weighting for deep metric learning", CVPR 2019.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> multi_similarity(torch.tensor([[0.5, 0.5]]), same, ~same)
        tensor(0.3604)
    """
    pull = log1p_sum_exp(matrix, positive, scale=-positive_scale, threshold=threshold) / positive_scale
    push = log1p_sum_exp(matrix, negative, scale=negative_scale, threshold=threshold) / negative_scale
    return (pull + push).sum() / max(len(matrix), 1)


raw = multi_similarity
