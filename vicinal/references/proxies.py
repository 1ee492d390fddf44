"""Learned proxies as references."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vicinal.errors import InputError
from vicinal.objectives.traits import Kind
from vicinal.references.batch import View

__all__ = ["Proxies"]


@final
class Proxies(nn.Module):
    """Compare items with learned vectors, one or several per class.

    Args:
        classes: Number of classes; labels must be 0 .. classes - 1.
        dim: Dimension of the embeddings.
        per_class: Number of proxies per class.
        learning_rate_multiplier: Ratio of the learning rate of the proxies to that of the network.
        seed: Seed of the initial proxies.

    Attributes:
        vectors: Proxies, class by class.
        labels: Class of each proxy.

    Example:
        >>> Proxies(classes=3, dim=2, per_class=2).labels
        tensor([0, 0, 1, 1, 2, 2])
    """

    kind: ClassVar[Kind] = "proxies"
    labels: Tensor

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        per_class: int = 1,
        learning_rate_multiplier: float = 100.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("classes", classes), ("dim", dim), ("per_class", per_class)):
            if value < 1:
                raise InputError(f"Proxies needs {name} of at least 1; got {value}.")
        self.classes, self.per_class = classes, per_class
        self.learning_rate_multiplier = learning_rate_multiplier
        start = torch.randn(classes * per_class, dim, generator=torch.Generator().manual_seed(seed))
        # Kaiming normal initialisation with fan_out, as in the code of the proxy-anchor paper.
        self.vectors = nn.Parameter(start * (2.0 / (classes * per_class)) ** 0.5)
        self.register_buffer("labels", torch.arange(classes).repeat_interleave(per_class), persistent=False)

    def forward(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"] | Bool[Tensor, "n c"],
        ids: Int[Tensor, " n"] | None = None,
    ) -> View:
        """Return all proxies."""
        check_against_classes(embeddings, labels, self.vectors, self.classes)
        return View(self.vectors, self.labels)

    @torch.no_grad()
    def assign(self, vectors: Float[Tensor, "m d"]) -> None:
        """Overwrite the proxies with these vectors, class by class; the optimiser's state for them is unaffected."""
        if vectors.shape != self.vectors.shape:
            raise InputError(f"Proxies are {list(self.vectors.shape)}; got vectors of {list(vectors.shape)}.")
        self.vectors.copy_(vectors)


def check_against_classes(embeddings: Tensor, labels: Tensor, vectors: Tensor, classes: int) -> None:
    """Raise `InputError` if the anchors do not fit the dimension or the classes of the references."""
    if embeddings.shape[1] != vectors.shape[1]:
        raise InputError(
            f"Embeddings have {embeddings.shape[1]} dimensions but the references have {vectors.shape[1]}; create the "
            f"references with dim={embeddings.shape[1]}."
        )
    check_labels(labels, classes)


def check_labels(labels: Tensor, classes: int) -> None:
    """Raise `InputError` unless all labels are 0 .. classes - 1, or sets of labels with that many columns."""
    if labels.ndim == 2:
        if labels.shape[1] != classes:
            raise InputError(f"Sets of labels must be [items, {classes} classes]; got {list(labels.shape)}.")
        return
    if torch.compiler.is_compiling():  # a graph cannot check values
        return
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        raise InputError(
            f"Labels must be 0..{classes - 1} for {classes} classes; got {int(labels.min())}..{int(labels.max())}. "
            "Number the training classes from 0: torch.unique(labels, return_inverse=True)."
        )
