"""Gathering of the batches of all processes into one, with correctly scaled gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["gather_batch", "world_size"]


def world_size() -> int:
    """Return the number of processes that train together; 1 outside a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_batch(
    embeddings: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"] | Bool[Tensor, "n c"],
    ids: Int[Tensor, " n"] | None,
) -> tuple[Float[Tensor, "m d"], Int[Tensor, " m"] | Bool[Tensor, "m c"], Int[Tensor, " m"] | None]:
    """Return the batches of all processes as one, the same on every process.

    Every process then computes the same loss of the whole batch. The gradient with respect to a process's own rows is
    multiplied by the number of processes, because DDP divides by it: the sum over processes is then the gradient of the
    single-process run. Parameters of the loss itself (proxies) see the whole batch on every process, and DDP's mean of
    equal gradients leaves them correct.

    Args:
        embeddings: Rows of this process; processes may hold different numbers of rows.
        labels: Class of each row.
        ids: Item of the dataset that each row is, on all processes or on none.
    """
    if world_size() == 1:
        return embeddings, labels, ids
    counts = [torch.zeros(1, dtype=torch.long, device=labels.device) for _ in range(world_size())]
    dist.all_gather(counts, torch.tensor([len(labels)], device=labels.device))
    sizes = [int(count) for count in counts]
    together = _Gather.apply(embeddings, sizes)  # type: ignore[no-untyped-call]
    return together, _gather(labels, sizes), None if ids is None else _gather(ids, sizes)


def _gather(rows: Tensor, sizes: list[int]) -> Tensor:
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    received = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(received, padded)
    return torch.cat([part[:size] for part, size in zip(received, sizes, strict=True)])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        return _gather(rows, sizes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        rank = dist.get_rank()
        start = sum(ctx.sizes[:rank])
        return gradients[0][start : start + ctx.sizes[rank]] * len(ctx.sizes), None
