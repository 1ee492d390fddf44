"""SoftTriple: several centres per class."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.errors import InputError
from vicinal.objectives.stable import FAR, softmax_against_negatives
from vicinal.objectives.traits import objective

__all__ = ["soft_triple"]


@objective(
    geometry="cosine",
    paper="Qian et al. 2019",
    usual="proxies",
    references=("proxies", "cover"),
    needs=("reference_labels",),
    regularisers=(("centre_merging", 0.2),),
    why_not="it pools the centres of every class, so the same number of references of each class must be there",
    warm_up=1.0,
)
def soft_triple(
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    reference_labels: Int[Tensor, " m"],
    scale: float = 20.0,
    centre_temperature: float = 0.1,
    margin: float = 0.01,
) -> Float[Tensor, ""]:
    r"""Classify each anchor by its soft-max-pooled similarity to several centres per class.

    Formula:
        S_ic = sum_k softmax_k(s_ick / gamma) s_ick
        mean over anchors of -log( e^(z (S_iy - margin)) / (e^(z (S_iy - margin)) + sum_{c != y} e^(z S_ic)) )

    Weights:
        As `cosface` between classes; inside a class the nearest centres take most of it.

    Args:
        reference_labels: Class of each reference, class by class; a `Criterion` supplies it.
        scale: z (lambda in the paper).
        centre_temperature: gamma; a temperature, as in the paper. Some code multiplies by gamma instead.
        margin: delta; subtracted from the similarity to the item's own class.

    Needs:
        The same number of references for every class: `Proxies(classes, dim, per_class=10)`.

    Relations:
        With one centre it is `cosface`, and without margin `normalised_softmax`. The paper's term that merges
        superfluous centres is the regulariser `centre_merging`, which a `Criterion` adds by default (0.2).

    Reference:
        Qian et al., "SoftTriple loss: deep metric learning without triplet sampling", ICCV 2019.

    Example:
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> same = torch.tensor([[True, True, False, False]])
        >>> soft_triple(torch.full((1, 4), 0.5), same, ~same, reference_labels=labels, margin=0.0)
        tensor(0.6931)
    """
    if torch.compiler.is_compiling():
        logits = matrix / centre_temperature
        pooled, own, others = _pooled_into_slots(logits, matrix, positive, negative, reference_labels)
        return softmax_against_negatives(pooled, own, others, scale=scale, pulled=pooled[own] - margin)
    classes = len(torch.unique(reference_labels))
    centres = len(reference_labels) // max(classes, 1)
    heads = reference_labels[:: max(centres, 1)]
    if len(heads) != classes or not torch.equal(reference_labels, heads.repeat_interleave(centres)):
        raise InputError(
            "soft_triple needs the same number of references for every class, stored class by class; got labels "
            f"{reference_labels[:8].tolist()}... Use references=Proxies(classes, dim, per_class=k)."
        )
    similarities = matrix.view(len(matrix), classes, centres)
    pulled, pushed = positive.view_as(similarities), negative.view_as(similarities)
    logits, counted = similarities / centre_temperature, pulled | pushed
    shares = torch.softmax(logits if counted.all() else torch.where(counted, logits, -FAR), dim=2)
    pooled = (shares * similarities).sum(2)
    own, others = pulled.any(2), pushed.any(2)
    return softmax_against_negatives(pooled, own, others, scale=scale, pulled=pooled[own] - margin)


def _pooled_into_slots(
    logits: Tensor, similarities: Tensor, positive: Tensor, negative: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Pool in a compiled graph, which has no values: into as many slots as there could be classes, mostly empty."""
    following = (labels[1:] != labels[:-1]).cumsum(0)  # references are stored class by class
    slots = torch.nn.functional.pad(following, (1, 0)).expand_as(logits)
    counted = positive | negative
    logits = torch.where(counted, logits, -FAR)
    highest = torch.full_like(logits, -FAR).scatter_reduce(1, slots, logits.detach(), "amax")
    shares = torch.where(counted, (logits - highest.gather(1, slots)).exp(), 0.0)
    empty = torch.zeros_like(logits)
    totals = empty.scatter_add(1, slots, shares).clamp_min(1.0)  # the highest alone contributes 1
    pooled = empty.scatter_add(1, slots, shares * similarities) / totals
    own, others = (empty.scatter_add(1, slots, mask.to(empty.dtype)) > 0 for mask in (positive, negative))
    return pooled, own, others
