"""The distance between class probabilities behind the label losses, which are its distance to the label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from vicinal._util.text import counted
from vicinal.errors import InputError, look_up
from vicinal.neighbours.inputs import ArrayLike, as_embeddings
from vicinal.objectives import OBJECTIVES, options_of
from vicinal.objectives.label_gap import CONCAVE, label_gap
from vicinal.references.one_hot import check_probabilities
from vicinal.references.proxies import check_labels
from vicinal.spaces.any_distance import distances_in_blocks
from vicinal.spaces.condition import p_max

__all__ = ["Bounds", "LabelMetric", "bounds", "label_metric_of"]


@final
@dataclass(frozen=True)
class LabelMetric:
    """Distance between two vectors of class probabilities, and between one and a label.

    Formula:
        L(x, y) = F( sum over classes of -log(1 - k |x_i - y_i|^p) )

    A label is a one-hot vector. `metric_cross_entropy` is the mean distance of items to their labels; with k = p = 1
    it is `weak_metric_cross_entropy`, and two labels are infinitely far apart.

    Args:
        k: Factor, above 0 and at most 1.
        p: Power, above 0.
        smoothing: Smoothing of the cusp of the power at 0; 0 for none.
        transform: Name of F in `vicinal.objectives.label_gap.CONCAVE`.

    Reference:
        Mou et al., "How classification baseline works for deep metric learning: a perspective of metric space", ACML
        2024.

    Example:
        >>> labels = torch.eye(2)
        >>> LabelMetric(k=0.5, p=0.75)(labels, labels)
        tensor([[0.0000, 1.3863],
                [1.3863, 0.0000]])
    """

    k: float = 0.5
    p: float = 0.75
    smoothing: float = 0.0
    transform: str = "identity"

    def __post_init__(self) -> None:
        look_up("transform", self.transform, CONCAVE)
        label_gap(torch.zeros(0), k=self.k, p=self.p, smoothing=self.smoothing)

    def __call__(self, anchors: Float[Tensor, "n c"], references: Float[Tensor, "m c"]) -> Float[Tensor, "n m"]:
        """Return the distance between every anchor and every reference; needs memory for n x m x c numbers."""
        return self._over_classes((anchors[:, None] - references[None]).abs())

    def to_label(self, items: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return the distance of every item to its own label."""
        return self._over_classes((items - F.one_hot(labels, items.shape[1])).abs())

    def _over_classes(self, gaps: Tensor) -> Tensor:
        # Rounding may put a difference of probabilities slightly above 1, and -log(1) is a negative zero.
        total = label_gap(gaps.clamp(max=1.0), k=self.k, p=self.p, smoothing=self.smoothing).sum(-1)
        return CONCAVE[self.transform](total.abs())

    @property
    def between_labels(self) -> float:
        """Distance between any two different labels, F(2M); infinite for k = 1 unless F is bounded."""
        to_origin = -math.log1p(-self.k) if self.k < 1 else math.inf
        return float(CONCAVE[self.transform](torch.tensor(2 * to_origin, dtype=torch.float64)))

    @property
    def is_metric(self) -> bool | None:
        """Whether the triangle inequality always holds; None if the closed form cannot decide.

        It decides for F = identity. Another F keeps a metric a metric, and may turn a non-metric into one.
        """
        if self.p <= p_max(self.k, self.smoothing):
            return True
        return False if self.transform == "identity" else None


def label_metric_of(loss: str, options: Mapping[str, Any] | None = None) -> LabelMetric:
    """Return the distance behind a loss on class probabilities.

    Args:
        loss: "metric_cross_entropy" or "weak_metric_cross_entropy".
        options: Options of the loss.

    Example:
        >>> label_metric_of("metric_cross_entropy", {"p": 0.5})
        LabelMetric(k=0.5, p=0.5, smoothing=0.001, transform='identity')
    """
    if loss not in ("metric_cross_entropy", "weak_metric_cross_entropy"):
        raise InputError(
            f"{loss} is not a distance of class probabilities; use metric_cross_entropy or weak_metric_cross_entropy."
        )
    defaults = options_of(OBJECTIVES[loss]) | ({} if loss == "metric_cross_entropy" else {"k": 1.0, "p": 1.0})
    requested = dict(options or {})
    for name in requested:
        look_up(f"option of {loss}", name, options_of(OBJECTIVES[loss]))
    values = {**defaults, **requested}
    return LabelMetric(**{field.name: values[field.name] for field in fields(LabelMetric) if field.name in values})


# Bounds that the triangle inequality proves for the items that a model was trained on, and how tight they are.


@final
@dataclass(frozen=True, eq=False)
class Bounds:
    """Proved bounds and measured distances of items with known labels.

    Attributes:
        metric: Distance.
        to_label: Distance of each item to its label, which is its loss.
        labels: Label of each item.
        largest_intra: Largest distance between two compared items of one class.
        smallest_inter: Smallest distance between two compared items of different classes.
        compared: Number of items that were compared with each other.
        certified: Whether, for each item, all items of its class are proved to be nearer than all others.
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
        """Largest distance of an item to its label."""
        return float(self.to_label.max())

    @property
    def intra_bound(self) -> float:
        """Upper bound of the distance between two items of one class: 2 epsilon."""
        return 2 * self.epsilon

    @property
    def inter_bound(self) -> float | None:
        """Lower bound of the distance between two classes: F(2M) - 2 epsilon; None if the distance is not a metric."""
        return self.metric.between_labels - 2 * self.epsilon if self.metric.is_metric else None

    @property
    def holds(self) -> bool:
        """Whether the certificate 4 epsilon < F(2M) holds, which proves every ranking of these items to be perfect."""
        return bool(self.metric.is_metric) and 4 * self.epsilon < self.metric.between_labels

    @property
    def left_out(self) -> tuple[int, int] | None:
        """Number of items, or of whole classes, to remove for the certificate to hold; None if it never does."""
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
            f"{counted(classes, 'class')} they belong to"
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
    """Compute bounds that the triangle inequality proves for items with known labels, and the actual distances.

    With epsilon the largest loss, two items of one class are at most 2 epsilon apart (through their label, so a
    weak-metric is enough), and two of different classes at least F(2M) - 2 epsilon (which needs a metric). If
    4 epsilon < F(2M), every item is nearer to all items of its class than to any other. The same argument for one item
    a needs only 2 e(a) + e(b) + e(c) < F(2M) for all b of its class and all c of others, where e is the distance to the
    label.

    Args:
        metric: Distance that the model was trained with.
        probabilities: Soft-max outputs, one row per item.
        labels: Index of the entry of each row that belongs to the item's class.
        compare: Number of random items to compare with each other; the bounds are those of all items.
        seed: Seed of the random items.

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
        raise InputError(f"There are {len(rows)} rows of probabilities but {len(labels)} labels; every row needs one.")
    to_label = metric.to_label(rows, labels)
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:compare]
    largest, smallest = -math.inf, math.inf
    for index, block in distances_in_blocks(metric, rows[chosen]):
        same = labels[chosen][index][:, None] == labels[chosen][None]
        itself = index[:, None] == torch.arange(len(chosen))[None]
        largest = max(largest, float(torch.where(same & ~itself, block, -math.inf).max()))
        smallest = min(smallest, float(torch.where(same, math.inf, block).min()))
    return Bounds(metric, to_label, labels, largest, smallest, len(chosen), _certified(metric, to_label, labels))


def _certified(metric: LabelMetric, to_label: Tensor, labels: Tensor) -> Tensor:
    """Return for which items 2 e(a) + e(b) + e(c) < F(2M) for all b of the class and all c of others."""
    if not metric.is_metric:
        return torch.zeros(len(labels), dtype=torch.bool)
    classes = int(labels.max()) + 1
    worst = torch.full((classes,), -torch.inf, dtype=torch.float64).scatter_reduce(0, labels, to_label, "amax")
    most = worst.topk(min(2, classes)).values
    of_others = torch.where(
        worst == most[0], most[-1], most[0]
    )  # for the class with the largest value, the second largest
    return 2 * to_label + worst[labels] + of_others[labels] < metric.between_labels
