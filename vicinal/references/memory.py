"""A memory of past batches as references (XBM)."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vicinal.errors import InputError
from vicinal.objectives.traits import Kind
from vicinal.references.batch import View

__all__ = ["Memory"]

NO_ID = -1


@final
class Memory(nn.Module):
    """Compare items with the embeddings of the last batches, kept without gradient in a queue.

    In training each batch is first put into the queue and then compared with all of it. An item is never compared with
    itself: neither with the copy just stored nor, if ids are passed, with an older copy. The queue, its position and
    its step count are buffers, so a state dict restores it exactly.

    Args:
        size: Number of embeddings to keep.
        dim: Dimension of the embeddings.
        start: Number of training steps before the queue begins to fill; until then it is empty.

    Reference:
        Wang et al., "Cross-batch memory for embedding learning", CVPR 2020.

    Example:
        >>> memory = Memory(size=3, dim=2)
        >>> _ = memory(torch.ones(2, 2), torch.tensor([0, 1]))
        >>> memory(torch.zeros(2, 2), torch.tensor([2, 3])).labels.sort().values
        tensor([1, 2, 3])
    """

    kind: ClassVar[Kind] = "memory"
    vectors: Tensor
    labels: Tensor
    ids: Tensor
    position: Tensor
    filled: Tensor
    steps: Tensor

    def __init__(self, size: int, dim: int, *, start: int = 0) -> None:
        super().__init__()
        if size < 1 or dim < 1 or start < 0:
            raise InputError(f"Memory needs size and dim of 1 or more and start of 0 or more; got {size, dim, start}.")
        self.start = start
        self.register_buffer("vectors", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.long))
        self.register_buffer("ids", torch.full((size,), NO_ID))
        for name in ("position", "filled", "steps"):
            self.register_buffer(name, torch.zeros((), dtype=torch.long))

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Int[Tensor, " n"], ids: Int[Tensor, " n"] | None = None
    ) -> View:
        """Store the batch when training, and return the content of the queue."""
        if embeddings.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"Embeddings have {embeddings.shape[1]} dimensions but the memory has {self.vectors.shape[1]}; create "
                f"it with Memory(size, dim={embeddings.shape[1]})."
            )
        stored = torch.full((0,), 0, device=labels.device)
        if self.training:
            if self.steps >= self.start:
                stored = self._store(embeddings.detach(), labels, ids)
            self.steps += 1
        filled = int(self.filled)
        itself = torch.zeros(len(labels), filled, dtype=torch.bool, device=labels.device)
        if len(stored):
            newest = torch.arange(len(labels) - len(stored), len(labels), device=labels.device)
            itself[newest, stored] = True
        if ids is not None:
            itself |= (ids[:, None] == self.ids[None, :filled]) & (ids[:, None] != NO_ID)
        # Copies, because the queue may change before the backward pass of a later term reads them.
        return View(self.vectors[:filled].to(embeddings.dtype, copy=True), self.labels[:filled].clone(), itself)

    def past(self) -> View:
        """Return the content of the queue, without storing anything."""
        filled = int(self.filled)
        return View(self.vectors[:filled].clone(), self.labels[:filled].clone())

    def _store(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None) -> Tensor:
        """Overwrite the oldest items of the queue with the last items of a batch, and return their positions."""
        size = len(self.labels)
        count = min(len(labels), size)
        newest = slice(len(labels) - count, None)
        positions = (int(self.position) + torch.arange(count, device=labels.device)) % size
        self.vectors[positions] = embeddings[newest].to(self.vectors.dtype)
        self.labels[positions] = labels[newest].long()
        self.ids[positions] = self.ids.new_tensor(NO_ID) if ids is None else ids[newest].long()
        self.position.fill_((int(self.position) + count) % size)
        self.filled.fill_(min(int(self.filled) + count, size))
        return positions
