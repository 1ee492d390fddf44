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
        labels: Their classes; or sets of them, in the rows of a batch.
        itself: Pairs of an item with itself, which are neither positive nor negative.
        anchor_labels: The classes of the anchors as these references see them, where that differs from their own.
        pairs: Which pairs belong together and which do not, where that is given and does not follow from labels.
    """

    vectors: Float[Tensor, "m d"]
    labels: Int[Tensor, " m"] | Bool[Tensor, "m c"]
    itself: Bool[Tensor, "n m"] | None = None
    anchor_labels: Int[Tensor, " n"] | None = None
    pairs: tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]] | None = None
