"""Blocks of work side by side, one core each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["side_by_side"]

A = TypeVar("A")
B = TypeVar("B")


def side_by_side(function: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Map `function` over `items` in as many threads as torch uses, each of which computes on one core.

    A large product and the small operations that follow it then scale alike; with the product alone spread
    over the cores, all but one would idle during the rest. torch and numpy release the interpreter lock.

    Example:
        >>> side_by_side(abs, [-1, 2])
        [1, 2]
    """
    items = list(items)
    threads = torch.get_num_threads()
    if threads == 1 or len(items) == 1:
        return [function(item) for item in items]
    inference = torch.is_inference_mode_enabled()  # of this thread; new ones would not share it

    def in_mode(item: A) -> B:
        with torch.inference_mode(inference):
            return function(item)

    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    try:
        return list(pool.map(in_mode, items))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or an interrupt, what has not begun is dropped
        torch.set_num_threads(threads)
