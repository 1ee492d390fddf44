"""What the triangle inequality proves about the items that a model was trained on, and how tight that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.checked_inputs import ArrayLike, as_embeddings
from vicinal.phrasing import counted
from vicinal.references.one_hot import check_probabilities
from vicinal.references.proxies import check_labels
from vicinal.spaces.any_distance import distances_in_blocks
from vicinal.spaces.label_metric import LabelMetric

__all__ = ["Bounds", "bounds"]


@final
@dataclass(frozen=True, eq=False)
class Bounds:
    """Promised and real distances of items whose labels are known.

    Attributes:
        metric: The distance.
        to_label: Distance of each item to its label: its loss.
        labels: The labels.
        largest_intra: Largest distance of two items of one class, among those compared.
        smallest_inter: Smallest distance of two items of different classes, among those compared.
        compared: How many items were compared with each other.
        certified: For each item, whether all items of its class are proved to be nearer than all others.
    """

    metric: LabelMetric
    to_label: Float64[Tensor, " n"]
    labels: Int64[Tensor, " n"]
    largest_intra: float
    smallest_inter: float
    compared: int
    certified: Bool[Tensor, " n"]

    @property
    def epsilon(self) -> float:
        """The largest distance of an item to its label."""
        return float(self.to_label.max())

    @property
    def intra_bound(self) -> float:
        """No two items of one class are farther apart: 2 epsilon."""
        return 2 * self.epsilon

    @property
    def inter_bound(self) -> float | None:
        """No two items of different classes are nearer: F(2M) - 2 epsilon. None where the distance is no metric."""
        return self.metric.between_labels - 2 * self.epsilon if self.metric.is_metric else None

    @property
    def holds(self) -> bool:
        """The certificate, 4 epsilon < F(2M): every neighbour ranking of these items is proved to be perfect."""
        return bool(self.metric.is_metric) and 4 * self.epsilon < self.metric.between_labels

    @property
    def left_out(self) -> tuple[int, int] | None:
        """How many items, or how many whole classes, must go for the certificate to hold; None where it never does."""
        if not self.metric.is_metric:
            return None
        far = 4 * self.to_label >= self.metric.between_labels
        return int(far.sum()), len(set(self.labels[far].tolist()))

    def __str__(self) -> str:
        inter = self.inter_bound
        lines = [
            f"{counted(len(self.labels), 'item')} of {counted(len(set(self.labels.tolist())), 'class')}; "
            f"{self.compared:,} compared with each other",
            f"  epsilon, largest distance of an item to its label    {self.epsilon:.4f}",
            f"  F(2M), distance of two labels                        {self.metric.between_labels:.4f}",
            f"  largest distance inside a class                      {self.largest_intra:.4f}, proved at most "
            f"{self.intra_bound:.4f}",
            f"  smallest distance between classes                    {self.smallest_inter:.4f}, "
            + ("nothing proved: not known to be a metric" if inter is None else f"proved at least {inter:.4f}"),
        ]
        if self.left_out is None:
            return "\n".join([*lines, "  certificate (4 epsilon < F(2M)): needs a metric"])
        items, classes = self.left_out
        verdict = (
            "holds: P@1 = MAP@R = 1"
            if self.holds
            else f"does not hold; it would without {counted(items, 'item')}, or without the "
            f"{counted(classes, 'class')} they are of"
        )
        return "\n".join(
            [
                *lines,
                f"  certificate (4 epsilon < F(2M))                      {verdict}",
                f"  items whose own ranking is proved to be perfect      {float(self.certified.double().mean()):.1%}",
            ]
        )


def bounds(
    metric: LabelMetric, probabilities: ArrayLike, labels: Int64[Tensor, " n"], *, compare: int = 2000, seed: int = 0
) -> Bounds:
    """Compute what the triangle inequality proves about items with known labels, and what is true.

    With epsilon the largest loss, two items of one class are at most 2 epsilon apart (through their label, so a
    weak-metric is enough), and two of different classes at least F(2M) - 2 epsilon (which takes a metric). If
    4 epsilon < F(2M) every item is nearer to all of its class than to any other. The same argument for one item a needs
    only 2 e(a) + e(b) + e(c) < F(2M) for all b of its class and all c of others, where e is the distance to the label.

    Args:
        metric: The distance that the model was trained with.
        probabilities: Soft-max outputs, one row per item.
        labels: Which entry of a row is that of the item's class.
        compare: How many items, drawn at random, to compare with each other; the bounds are of all.
        seed: Of the draw.

    Reference:
        Mou et al. 2024, lemmas 1, 3 and 4.

    Example:
        >>> found = bounds(LabelMetric(), [[0.99, 0.01], [0.98, 0.02], [0.01, 0.99]], torch.tensor([0, 0, 1]))
        >>> found.holds, found.largest_intra < found.intra_bound, found.smallest_inter > found.inter_bound
        (True, True, True)
    """
    rows = as_embeddings(probabilities, "probabilities").double()
    check_probabilities(rows, rows.shape[1])
    check_labels(labels, rows.shape[1])
    if len(labels) != len(rows):
        raise InputError(f"{len(rows)} rows of probabilities but {len(labels)} labels: every row needs one.")
    to_label = metric.to_label(rows, labels)
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:compare]
    largest, smallest = -math.inf, math.inf
    for at, block in distances_in_blocks(metric, rows[chosen]):
        same = labels[chosen][at][:, None] == labels[chosen][None]
        itself = at[:, None] == torch.arange(len(chosen))[None]
        largest = max(largest, float(torch.where(same & ~itself, block, -math.inf).max()))
        smallest = min(smallest, float(torch.where(same, math.inf, block).min()))
    return Bounds(metric, to_label, labels, largest, smallest, len(chosen), _certified(metric, to_label, labels))


def _certified(metric: LabelMetric, to_label: Tensor, labels: Tensor) -> Tensor:
    """Return for which items 2 e(a) + e(b) + e(c) < F(2M) whatever b of the class and c of others is."""
    if not metric.is_metric:
        return torch.zeros(len(labels), dtype=torch.bool)
    classes = int(labels.max()) + 1
    worst = torch.full((classes,), -torch.inf, dtype=torch.float64).scatter_reduce(0, labels, to_label, "amax")
    most = worst.topk(min(2, classes)).values
    of_others = torch.where(worst == most[0], most[-1], most[0])  # of the class with the largest: the second largest
    return 2 * to_label + worst[labels] + of_others[labels] < metric.between_labels
