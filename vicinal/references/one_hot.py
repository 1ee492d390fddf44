"""The one-hot labels as references."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vicinal.errors import InputError
from vicinal.objectives.traits import Kind
from vicinal.references.batch import View
from vicinal.references.proxies import check_labels

__all__ = ["OneHot", "check_probabilities"]


@final
class OneHot(nn.Module):
    """Compare class probabilities with the labels as points of the same space: the vertices of the simplex.

    Nothing is learned or stored. The inner product of an item with a label is the probability of that class.

    Args:
        classes: Number of classes; labels must be 0 .. classes - 1, and embeddings have one entry per class.

    Example:
        >>> OneHot(2)(torch.tensor([[0.9, 0.1]]), torch.tensor([0])).vectors
        tensor([[1., 0.],
                [0., 1.]])
    """

    kind: ClassVar[Kind] = "one_hot"
    vectors: Tensor
    labels: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        if classes < 2:
            raise InputError(f"OneHot needs at least 2 classes; got {classes}.")
        self.classes = classes
        self.register_buffer("vectors", torch.eye(classes), persistent=False)
        self.register_buffer("labels", torch.arange(classes), persistent=False)

    def forward(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"] | Bool[Tensor, "n c"],
        ids: Int[Tensor, " n"] | None = None,
    ) -> View:
        """Return all labels."""
        check_probabilities(embeddings, self.classes)
        check_labels(labels, self.classes)
        return View(self.vectors, self.labels)


def check_probabilities(embeddings: Tensor, classes: int) -> None:
    """Raise `InputError` unless every row holds the probabilities of this many classes."""
    if embeddings.shape[1] != classes:
        raise InputError(
            f"Comparing with one-hot labels of {classes} classes needs embeddings of {classes} class probabilities; "
            f"got {embeddings.shape[1]} dimensions. Use Embedder(..., dim={classes}, normalisation='softmax')."
        )
    if torch.compiler.is_compiling():  # a graph cannot check values
        return
    rows = embeddings.detach()
    off = (rows.sum(1) - 1.0).abs() > 1e-3
    bad = (off | (rows < 0).any(1)).nonzero().flatten().tolist()
    if bad:
        raise InputError(
            f"Comparing with one-hot labels needs class probabilities: {len(bad)} of {len(rows)} rows (first: "
            f"{bad[:5]}) are negative somewhere or do not sum to 1. Use Embedder(..., normalisation='softmax'), and "
            "normalise='none' in the Criterion."
        )
