"""The distance of two vectors of class probabilities that the label losses are the distance to a label of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.errors import InputError, look_up
from vicinal.objectives import OBJECTIVES, options_of
from vicinal.objectives.label_gap import CONCAVE, label_gap
from vicinal.spaces.condition import p_max

__all__ = ["LabelMetric", "label_metric_of"]


@final
@dataclass(frozen=True)
class LabelMetric:
    """Measure how far two vectors of class probabilities are from each other, and from a label.

    Formula:
        L(x, y) = F( sum over classes of -log(1 - k |x_i - y_i|^p) )

    A label is the vector with a 1 in its place. `metric_cross_entropy` is the mean distance of items to their labels;
    with k = p = 1 it is `weak_metric_cross_entropy`, and two labels are infinitely far apart.

    Args:
        k: Above 0 and at most 1.
        p: Above 0.
        smoothing: Takes the cusp of the power at 0 away; 0 for none.
        transform: F: a name in `vicinal.objectives.label_gap.CONCAVE`.

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
        """Return the distance of every anchor and every reference; takes memory for n x m x c numbers."""
        return self._over_classes((anchors[:, None] - references[None]).abs())

    def to_label(self, items: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return the distance of every item to its own label."""
        return self._over_classes((items - F.one_hot(labels, items.shape[1])).abs())

    def _over_classes(self, gaps: Tensor) -> Tensor:
        # Rounding may put a difference of probabilities a little above 1, and makes -log(1) a negative zero.
        total = label_gap(gaps.clamp(max=1.0), k=self.k, p=self.p, smoothing=self.smoothing).sum(-1)
        return CONCAVE[self.transform](total.abs())

    @property
    def between_labels(self) -> float:
        """The distance of any two different labels, F(2M); infinite for k = 1 unless F is bounded."""
        one = -math.log1p(-self.k) if self.k < 1 else math.inf
        return float(CONCAVE[self.transform](torch.tensor(2 * one, dtype=torch.float64)))

    @property
    def is_metric(self) -> bool | None:
        """Whether the triangle inequality holds for all; None where the closed form does not decide.

        It decides for F = identity; another F keeps a metric a metric, and may make one of what is none.
        """
        if self.p <= p_max(self.k, self.smoothing):
            return True
        return False if self.transform == "identity" else None


def label_metric_of(loss: str, options: Mapping[str, Any] | None = None) -> LabelMetric:
    """Return the distance that a loss on class probabilities measures to the label.

    Args:
        loss: "metric_cross_entropy" or "weak_metric_cross_entropy".
        options: Its options.

    Example:
        >>> label_metric_of("metric_cross_entropy", {"p": 0.5})
        LabelMetric(k=0.5, p=0.5, smoothing=0.001, transform='identity')
    """
    if loss not in ("metric_cross_entropy", "weak_metric_cross_entropy"):
        raise InputError(
            f"{loss} is no distance of class probabilities; metric_cross_entropy and weak_metric_cross_entropy are."
        )
    usual = options_of(OBJECTIVES[loss]) | ({} if loss == "metric_cross_entropy" else {"k": 1.0, "p": 1.0})
    given = dict(options or {})
    for name in given:
        look_up(f"option of {loss}", name, options_of(OBJECTIVES[loss]))
    values = {**usual, **given}
    return LabelMetric(**{field.name: values[field.name] for field in fields(LabelMetric) if field.name in values})
