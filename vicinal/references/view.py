"""What a reference set shows to a criterion."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """The references that a batch of anchors is compared with.

    Attributes:
        vectors: One row per reference.
        labels: Their classes.
        itself: Pairs of an item with itself, which are neither positive nor negative.
        anchor_labels: The classes of the anchors as these references see them, where that differs from their own.
    """

    vectors: Float[Tensor, "m d"]
    labels: Int[Tensor, " m"]
    itself: Bool[Tensor, "n m"] | None = None
    anchor_labels: Int[Tensor, " n"] | None = None
