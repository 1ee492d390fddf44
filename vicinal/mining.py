"""Miners: masks -> masks. Each keeps the pairs worth learning from.

Every miner takes (matrix, positive, negative) and returns the two masks with pairs removed, never added. With
`similarity=False` the matrix holds distances. Random draws come from the generator that is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal._util.code import NO_TRUST, Trust, find
from vicinal.errors import InputError
from vicinal.objectives.triplet import violated_triplets

__all__ = [
    "MINERS",
    "all_pairs",
    "distance_weighted",
    "easy_positive",
    "find_miner",
    "hard",
    "pair_statistics",
    "random_pairs",
    "semi_hard",
    "valid_triplets",
]

Masks = tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]


def all_pairs(
    matrix: Float[Tensor, "n m"], positive: Bool[Tensor, "n m"], negative: Bool[Tensor, "n m"]
) -> tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Keep every pair.

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> all_pairs(torch.zeros(1, 2), same, ~same)[1]
        tensor([[False,  True]])
    """
    return positive, negative


def hard(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    similarity: bool = True,
) -> tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Keep the farthest positive and the nearest negative of each anchor.

    Reference:
        Hermans et al. 2017 ("batch hard"); "Metric learning: a deep dive", eqs 2.18 and 2.19.

    Example:
        >>> same = torch.tensor([[True, True, False, False]])
        >>> hard(torch.tensor([[0.9, 0.2, 0.1, 0.5]]), same, ~same)
        (tensor([[False,  True, False, False]]), tensor([[False, False, False,  True]]))
    """
    closeness = matrix if similarity else -matrix
    return _best(-closeness, positive), _best(closeness, negative)


def easy_positive(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    similarity: bool = True,
) -> tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Keep the nearest positive of each anchor and all its negatives, so that a class need not collapse.

    Reference:
        Xuan, Stylianou, Pless, "Improved embeddings with easy positive triplet mining", WACV 2020.

    Example:
        >>> same = torch.tensor([[True, True, False]])
        >>> easy_positive(torch.tensor([[0.9, 0.2, 0.1]]), same, ~same)[0]
        tensor([[ True, False, False]])
    """
    return _best(matrix if similarity else -matrix, positive), negative


def semi_hard(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    similarity: bool = True,
    margin: float = 0.1,
) -> tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Keep the pairs of semi-hard triplets: the negative is farther than the positive, but within a margin.

    A pair is kept if it is part of a semi-hard triplet. Masks cannot express which positive goes with which negative,
    but the triplet loss itself can: `triplet(..., which="semi_hard")` counts exactly the semi-hard triplets.

    Args:
        margin: Margin of semi-hard triplets: d_ap < d_an < d_ap + margin.

    Reference:
        Schroff et al. 2015 (FaceNet); "Metric learning: a deep dive", eq 2.20.

    Example:
        >>> same = torch.tensor([[True, False, False, False]])
        >>> semi_hard(torch.tensor([[0.5, 0.6, 0.45, 0.1]]), same, ~same)[1]
        tensor([[False, False,  True, False]])
    """
    distances = -matrix if similarity else matrix
    columns, per_positive, per_negative = violated_triplets(distances, positive, negative, margin, "semi_hard")
    in_triplet = torch.zeros_like(matrix).scatter_(1, columns, per_positive) > 0
    return positive & in_triplet, per_negative > 0


def valid_triplets(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    similarity: bool = True,
    margin: float = 0.1,
) -> tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Keep the negatives nearer than the farthest positive, and the positives farther than the nearest negative.

    Valid-triplet hard mining (VTHM), which is also the miner of the multi-similarity loss: dropped pairs are in no
    triplet that violates the margin. For each anchor, either both kept sets are empty or neither is.

    Args:
        margin: Slack of both comparisons (lambda, epsilon).

    Reference:
        Wang et al. 2019 (multi-similarity); "A unified view of deep metric learning via gradient analysis", 5.1.

    Example:
        >>> same = torch.tensor([[True, True, False, False]])
        >>> valid_triplets(torch.tensor([[0.9, 0.5, 0.45, 0.1]]), same, ~same)
        (tensor([[False,  True, False, False]]), tensor([[False, False,  True, False]]))
    """
    if matrix.shape[1] == 0:
        return positive, negative
    closeness = matrix.detach() if similarity else -matrix.detach()
    farthest_positive = closeness.masked_fill(~positive, torch.inf).amin(1, keepdim=True)
    nearest_negative = closeness.masked_fill(~negative, -torch.inf).amax(1, keepdim=True)
    # Both sides compare the same difference, so that rounding cannot keep one set and empty the other.
    return (
        positive & (closeness - nearest_negative < margin),
        negative & (farthest_positive - closeness < margin),
    )


def distance_weighted(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    dim: int,
    generator: torch.Generator | None = None,
    similarity: bool = False,
    cutoff: float = 0.5,
    farthest: float = 1.4,
) -> tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Keep as many random negatives per anchor as it has positives, spread evenly over distance.

    Most points of a sphere are about the square root of two apart, so uniform draws almost all have that distance.
    Drawing in proportion to the inverse density q(d)^-1 = d^(2-dim) (1 - d^2/4)^((3-dim)/2) compensates for this.

    Args:
        dim: Dimension of the embeddings; a `Criterion` supplies it.
        generator: Source of randomness; a `Criterion` supplies it.
        similarity: Whether the matrix holds cosines; False for Euclidean distances, of unit vectors in both cases.
        cutoff: Distance at which nearer negatives are treated as lying, so that noise does not dominate the draws.
        farthest: Distance beyond which negatives are never drawn.

    Reference:
        Wu et al., "Sampling matters in deep embedding learning", ICCV 2017.

    Example:
        >>> same = torch.tensor([[True, False, False]])
        >>> distance_weighted(torch.tensor([[0.3, 0.9, 1.6]]), same, ~same, dim=8)[1]
        tensor([[False,  True, False]])
    """
    distances = (2.0 - 2.0 * matrix.detach()).clamp_min(0.0).sqrt() if similarity else matrix.detach()
    held = distances.clamp(cutoff, farthest)
    log_weight = (2.0 - dim) * held.log() + 0.5 * (3.0 - dim) * torch.log1p(-0.25 * held.square())
    drawn = _draw(log_weight, negative & (distances < farthest), positive.sum(1), generator)
    return positive, drawn


def random_pairs(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    generator: torch.Generator | None = None,
    positives: int = 1,
    negatives: int = 1,
) -> tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Keep a number of random positives and negatives per anchor.

    Args:
        generator: Source of randomness; a `Criterion` supplies it.
        positives: Number of positives to keep, or all if there are fewer.
        negatives: Number of negatives to keep, or all if there are fewer.

    Example:
        >>> same = torch.tensor([[True, False, False, False]])
        >>> random_pairs(torch.zeros(1, 4), same, ~same)[1].sum()
        tensor(1)
    """
    if positives < 0 or negatives < 0:
        raise InputError(
            f"positives and negatives of random_pairs must be at least 0; got positives={positives}, "
            f"negatives={negatives}."
        )
    even = torch.zeros_like(matrix)
    some = torch.ones(len(matrix), dtype=torch.long, device=matrix.device)
    return (
        _draw(even, positive, positives * some, generator),
        _draw(even, negative, negatives * some, generator),
    )


def pair_statistics(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    kept_positive: Bool[Tensor, "n m"],
    kept_negative: Bool[Tensor, "n m"],
    *,
    similarity: bool = True,
) -> dict[str, float]:
    """Return statistics about the pairs of a batch, for the training log.

    Returns:
        The share of positives and negatives that mining kept, and the hardest pair of each kind (in the units of the
        matrix; NaN if there is none).

    Example:
        >>> same = torch.tensor([[True, False]])
        >>> pair_statistics(torch.tensor([[0.5, 0.25]]), same, ~same, same, ~same)["hardest_negative"]
        0.25
    """
    closeness = matrix.detach() if similarity else -matrix.detach()
    sign = 1.0 if similarity else -1.0
    return {
        "kept_positives": float(kept_positive.sum() / positive.sum()),
        "kept_negatives": float(kept_negative.sum() / negative.sum()),
        "hardest_positive": sign * float(closeness[positive].min()) if positive.any() else math.nan,
        "hardest_negative": sign * float(closeness[negative].max()) if negative.any() else math.nan,
    }


def _best(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the mask with only the first of the largest scores of each row."""
    if scores.shape[1] == 0:
        return mask
    best = scores.detach().masked_fill(~mask, -torch.inf).argmax(1, keepdim=True)
    return torch.zeros_like(mask).scatter_(1, best, True) & mask


def _draw(
    log_weight: Float[Tensor, "n m"],
    eligible: Bool[Tensor, "n m"],
    counts: Int[Tensor, " n"],
    generator: torch.Generator | None,
) -> Bool[Tensor, "n m"]:
    """Draw `counts[i]` eligible columns of row i without replacement, in proportion to their weights.

    Adding Gumbel noise to the log-weights and keeping the largest is equivalent to such a draw.
    """
    most = min(int(counts.max()) if len(counts) else 0, eligible.shape[1])
    device = log_weight.device if generator is None else generator.device
    noise = torch.empty_like(log_weight, device=device).exponential_(generator=generator).log_().to(log_weight.device)
    scores, columns = (log_weight - noise).masked_fill(~eligible, -torch.inf).topk(most, dim=1)
    wanted = torch.arange(most, device=counts.device) < counts[:, None]
    return torch.zeros_like(eligible).scatter_(1, columns, wanted & (scores > -torch.inf))


MINERS: dict[str, Callable[..., Masks]] = {
    "all": all_pairs,
    "distance_weighted": distance_weighted,
    "easy_positive": easy_positive,
    "hard": hard,
    "random": random_pairs,
    "semi_hard": semi_hard,
    "valid_triplets": valid_triplets,
}


def find_miner(name: str, trust: Trust = NO_TRUST) -> Callable[..., Masks]:
    """Return a miner by name: one of `MINERS`, one of an installed package, or a trusted `module:name`.

    Example:
        >>> find_miner("hard") is hard
        True
    """
    function: Callable[..., Masks] = find("miner", name, MINERS, trust)
    return function
