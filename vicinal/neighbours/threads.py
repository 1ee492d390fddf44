"""A parallel map over blocks of work, one core per thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["side_by_side"]

A = TypeVar("A")
B = TypeVar("B")


def side_by_side(function: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Map `function` over `items` in as many threads as torch uses, each running on one core.

    This way a large product and the small operations that follow it scale alike. If only the product were spread over
    the cores, all but one would be idle during the rest. torch and numpy release the interpreter lock.

    Example:
        >>> side_by_side(abs, [-1, 2])
        [1, 2]
    """
    items = list(items)
    threads = torch.get_num_threads()
    if threads == 1 or len(items) == 1:
        return [function(item) for item in items]
    inference = torch.is_inference_mode_enabled()  # set per thread; new threads do not inherit it

    def in_mode(item: A) -> B:
        with torch.inference_mode(inference):
            return function(item)

    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    try:
        return list(pool.map(in_mode, items))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or an interrupt, drop work that has not started
        torch.set_num_threads(threads)
