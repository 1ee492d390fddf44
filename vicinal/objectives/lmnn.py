"""Large-margin nearest neighbours (LMNN)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.errors import InputError
from vicinal.objectives.traits import objective
from vicinal.objectives.triplet import violated_triplets

__all__ = ["lmnn"]


@objective(geometry="squared_euclidean", paper="Weinberger and Saul 2009")
def lmnn(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    push: float = 0.5,
    margin: float = 1.0,
) -> Float[Tensor, ""]:
    r"""Pull positives near and keep negatives out of the ball that extends a margin beyond each positive.

    Formula:
        mean over anchors of  (1 - push) sum_pos d_ij + push sum_pos sum_neg (margin + d_ij - d_ik)_+
        (d squared distances)

    Weights:
        A positive weighs 1 - push, and push more for every negative that invades its ball; a negative weighs push for
        every ball it invades. The counts are exact and no triplet is listed (see `triplet`).

    Args:
        push: mu, from 0 (pull only) to 1 (push only).
        margin: Distance by which the ball extends beyond a positive.

    Needs:
        Anchors with a positive and a negative; the mean is over those.

    Relations:
        Its positives are "target neighbours", a few near ones: the 3 others of a class in a batch of 4 per class, or
        one with `mining="easy_positive"`; `vicinal.classical.LMNN` takes the k nearest of the training set. `triplet`
        has no pull and takes the mean over violated triplets.

    Reference:
        Weinberger and Saul, "Distance metric learning for large margin nearest neighbor classification", JMLR 2009.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> lmnn(torch.tensor([[1.0, 1.5, 9.0]]), same, ~same)
        tensor(0.7500)
    """
    if not 0.0 <= push <= 1.0:
        raise InputError(f"lmnn: push must be from 0 (pull only) to 1 (push only); got {push!r}.")
    usable = positive.any(1, keepdim=True) & negative.any(1, keepdim=True)
    columns, per_positive, per_negative = violated_triplets(matrix, positive, negative, margin, "all")
    pulls = torch.where(positive & usable, matrix, 0.0).sum()
    invasions = (per_positive * matrix.gather(1, columns)).sum() - (per_negative * matrix).sum()
    pushes = invasions + margin * per_negative.sum()
    return ((1.0 - push) * pulls + push * pushes) / usable.sum().clamp_min(1)
