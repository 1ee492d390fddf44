"""Embed many items: open ahead in threads, run in batches, show progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import torch
from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from vicinal.errors import InputError, UnknownName

__all__ = ["Precision", "autocast", "batches", "progress_bar"]

Precision = Literal["float32", "bfloat16"]


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return the context that a network is run in at a precision."""
    if precision not in ("float32", "bfloat16"):
        raise UnknownName("precision", precision, ("float32", "bfloat16"))
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def batches(
    count: int, open_item: Callable[[int], Tensor], batch_size: int, workers: int
) -> Iterator[Float[Tensor, "b ..."]]:
    """Yield batches in order; while one is used, `workers` threads open the items of the next two.

    Pillow decodes and resizes without holding Python's lock, so threads are enough. With no workers
    every item is opened when its batch is due.
    """
    if batch_size < 1 or workers < 0:
        raise InputError(f"batch_size must be at least 1 and workers at least 0; got {batch_size} and {workers}.")
    if workers == 0:
        for start in range(0, count, batch_size):
            yield _stack([open_item(i) for i in range(start, min(start + batch_size, count))])
        return
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future[Tensor]] = deque()
        following = 0
        for start in range(0, count, batch_size):
            while following < min(start + 3 * batch_size, count):
                ahead.append(pool.submit(open_item, following))
                following += 1
            try:
                yield _stack([ahead.popleft().result() for _ in range(min(batch_size, count - start))])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _stack(items: list[Tensor]) -> Tensor:
    shapes = sorted({tuple(item.shape) for item in items})
    if len(shapes) > 1:
        raise InputError(f"The items of a batch must have one shape after the transform; got {shapes[:4]}.")
    return torch.stack(items)


def progress_bar(shown: bool) -> Progress:
    """Return a progress bar on standard error."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not shown,
    )
