"""Batches of items in random order."""

from __future__ import annotations

import numpy as np

from vicinal.errors import InputError
from vicinal.sampling.sampler import Indices, Sampler


def random_batches(count: int, batch_size: int, rng: np.random.Generator) -> list[Indices]:
    """All items in random order, cut into batches; the few that do not fill the last one are left out.

    Example:
        >>> [len(batch) for batch in random_batches(10, 4, np.random.default_rng(0))]
        [4, 4]
    """
    order = rng.permutation(count)
    return [order[start : start + batch_size] for start in range(0, count - batch_size + 1, batch_size)]


def random_sampler(count: int, batch_size: int, *, seed: int = 0, rank: int = 0, world_size: int = 1) -> Sampler:
    """Every item at most once per pass, in random order.

    Example:
        >>> len(random_sampler(100, 30))
        3
    """
    if not 1 <= batch_size <= count:
        raise InputError(f"batch_size must lie in 1..{count} (the items); got {batch_size}.")
    return Sampler(lambda rng, _: random_batches(count, batch_size, rng), seed=seed, rank=rank, world_size=world_size)
