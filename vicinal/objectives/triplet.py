"""Triplet loss over all triplets, exactly, without listing one."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.errors import UnknownName
from vicinal.objectives.stable import most_positives
from vicinal.objectives.traits import objective

__all__ = ["triplet", "violated_triplets"]

# Up to this number of positives per anchor, comparing with each in turn is faster than a search among them.
FEW = 16


@objective(geometry="euclidean", paper="Hoffer and Ailon 2015; Schroff et al. 2015", miner="semi_hard")
def triplet(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    margin: float = 0.1,
    which: Literal["all", "semi_hard", "hard"] = "all",
) -> Float[Tensor, ""]:
    r"""Ask every negative to be farther than every positive by a margin.

    Formula:
        mean over the triplets (a, p, n) with loss above zero of (d_ap - d_an + margin)_+

    Weights:
        Counts: a positive weighs as many violated triplets as it is in, a negative likewise. This is also how it
        is computed: sorting the positives of an anchor and placing every negative among them gives all counts
        in O(n m log n) time and O(n m) memory; no triplet is ever written down.

    Args:
        margin: Distance by which negatives must be farther.
        which: "all" violated triplets; the "semi_hard" ones, whose negative is farther than the positive but
            inside the margin (d_ap < d_an < d_ap + margin); the "hard" ones, whose negative is nearer.

    Needs:
        Anchors with at least one positive and one negative; others add nothing.

    Relations:
        `soft_triplet` replaces the hinge by a soft-plus. On cosine similarities use
        `geometry="cosine_distance"`: s_an - s_ap + margin is the same hinge. With `mining="hard"` one positive
        and one negative are left per anchor: the batch-hard loss.

    Reference:
        Schroff, Kalenichenko, Philbin, "FaceNet", CVPR 2015; Hoffer and Ailon, "Deep metric learning using
        triplet network", 2015.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> triplet(torch.tensor([[0.5, 0.4, 0.9]]), same, ~same, margin=0.1)
        tensor(0.2000)
    """
    if which not in ("all", "semi_hard", "hard"):
        raise UnknownName("kind of triplets", which, ("all", "semi_hard", "hard"))
    columns, per_positive, per_negative = violated_triplets(matrix, positive, negative, margin, which)
    active = per_negative.sum()
    pulled = torch.dot(per_positive.flatten(), matrix.gather(1, columns).flatten())
    pushed = torch.dot(per_negative.flatten(), matrix.flatten())
    total = pulled - pushed + margin * active
    return total / active.clamp_min(1.0)


@torch.no_grad()
def violated_triplets(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    margin: float,
    which: str,
) -> tuple[Int[Tensor, "n p"], Float[Tensor, "n p"], Float[Tensor, "n m"]]:
    """Count the violated triplets that each pair is in, without listing them.

    Returns:
        The columns of each anchor's positives from near to far (p is the largest number of positives; an anchor
        with fewer has arbitrary columns at the end, with count zero), the count of each of those positives, and
        the count of every entry of the matrix as a negative.
    """
    most = most_positives(positive)
    ladder, columns = matrix.masked_fill(~positive, torch.inf).topk(most, dim=1, largest=False)
    # The triplets of a negative are those with the positives on some consecutive rungs of the ladder.
    # A tie counts as hard; with no margin it violates nothing.
    hard = which == "hard" and margin > 0
    if most <= FEW:
        per_positive = matrix.new_zeros(len(matrix), most)
        per_negative = torch.zeros_like(matrix)
        floor = matrix if hard else matrix - margin
        ladder = ladder.masked_fill(ladder == torch.inf, -torch.inf)  # no negative is nearer than a missing positive
        for rung in range(most):
            near = ladder[:, rung : rung + 1]
            violated = negative & (floor <= near if hard else floor < near)
            if which == "semi_hard":
                violated &= near < matrix
            counted = violated.to(matrix.dtype)
            per_positive[:, rung] = counted.sum(1)
            per_negative += counted
        return columns, per_positive, per_negative
    ladder = ladder.contiguous()
    first = torch.searchsorted(ladder, matrix if hard else matrix - margin, right=not hard)
    last = torch.searchsorted(ladder, matrix) if which == "semi_hard" else positive.sum(1, keepdim=True)
    rungs = torch.where(negative, (last - first).clamp_min(0), 0)
    steps = matrix.new_zeros(len(matrix), most + 1)
    ends = (rungs > 0).to(matrix.dtype)
    steps.scatter_add_(1, first, ends).scatter_add_(1, last.expand_as(first), -ends)
    return columns, steps.cumsum(1)[:, :most], rungs.to(matrix.dtype)
