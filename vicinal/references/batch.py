"""The batch itself as references."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vicinal.objectives.traits import Kind
from vicinal.references.view import View

__all__ = ["Batch"]


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
            embeddings: The anchors.
            labels: Their classes.
            ids: Which item of the dataset each one is; copies of one item in a batch are not compared.
        """
        itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        if ids is not None:
            itself |= ids[:, None] == ids[None, :]
        return View(embeddings, labels, itself)
