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

    In training each batch is put into the queue first and then compared with all of it; an item never meets itself:
    not the copy just stored and, where ids are given, no older copy either. The queue, its position and its step
    count are buffers, so a state dict resumes it exactly.

    Args:
        size: How many embeddings to keep.
        dim: Their dimension.
        start: Training steps to wait before the queue begins to fill; until then it shows nothing.

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
        """Store the batch when training, and return what the queue holds."""
        if embeddings.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"Embeddings have {embeddings.shape[1]} dimensions but the memory {self.vectors.shape[1]}: make "
                "Memory with dim= that of the embedder."
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
        # Copies, because the queue moves on before the backward pass of a later term may read them.
        return View(self.vectors[:filled].to(embeddings.dtype, copy=True), self.labels[:filled].clone(), itself)

    def past(self) -> View:
        """Return what the queue holds, without storing anything."""
        filled = int(self.filled)
        return View(self.vectors[:filled].clone(), self.labels[:filled].clone())

    def _store(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None) -> Tensor:
        """Put the last items of a batch into the queue, over the oldest ones, and return their places."""
        size = len(self.labels)
        count = min(len(labels), size)
        newest = slice(len(labels) - count, None)
        places = (int(self.position) + torch.arange(count, device=labels.device)) % size
        self.vectors[places] = embeddings[newest].to(self.vectors.dtype)
        self.labels[places] = labels[newest].long()
        self.ids[places] = self.ids.new_tensor(NO_ID) if ids is None else ids[newest].long()
        self.position.fill_((int(self.position) + count) % size)
        self.filled.fill_(min(int(self.filled) + count, size))
        return places
