"""The batch itself as references, and the view that every kind of references returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vicinal.objectives.traits import Kind

__all__ = ["Batch", "View"]


# The view of references that a criterion gets.


@dataclass(frozen=True)
class View:
    """The references that a batch of anchors is compared with.

    Attributes:
        vectors: One row per reference.
        labels: Class of each reference; or sets of classes, for a batch.
        itself: Pairs of an item with itself, which are neither positive nor negative.
        anchor_labels: Classes of the anchors with respect to these references, if they differ from their own.
        pairs: Positive and negative mask, if they do not follow from the labels.
    """

    vectors: Float[Tensor, "m d"]
    labels: Int[Tensor, " m"] | Bool[Tensor, "m c"]
    itself: Bool[Tensor, "n m"] | None = None
    anchor_labels: Int[Tensor, " n"] | None = None
    pairs: tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]] | None = None


@final
class Batch(nn.Module):
    """Compare every item of a batch with every other one.

    Example:
        >>> view = Batch()(torch.eye(2), torch.tensor([0, 0]))
        >>> view.itself
        tensor([[ True, False],
                [False,  True]])
    """

    kind: ClassVar[Kind] = "batch"

    def forward(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"] | Bool[Tensor, "n c"],
        ids: Int[Tensor, " n"] | None = None,
    ) -> View:
        """Return the batch, with the diagonal marked as items compared with themselves.

        Args:
            embeddings: Anchors.
            labels: Class of each anchor.
            ids: Item of the dataset that each anchor is; copies of one item in a batch are not compared.
        """
        itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        if ids is not None:
            itself |= ids[:, None] == ids[None, :]
        return View(embeddings, labels, itself)
