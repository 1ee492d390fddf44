"""The rank of every positive in the full ranking, without holding more than a few rows of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Lock
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vicinal.neighbours.blocked_search import Progress
from vicinal.neighbours.exclusion import Exclusion
from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.similarity import Vectors, exact_rows, rounding_error

__all__ = ["ConsumeRanks", "positive_ranks"]

ConsumeRanks: TypeAlias = Callable[[Int64[Tensor, " r"], Int64[Tensor, "r p"]], None]

ROW_BUDGET = 1 << 22  # similarities at a time per thread


def positive_ranks(
    queries: Vectors,
    references: Vectors,
    positives_of: Callable[[Int64[Tensor, " r"]], Int64[Tensor, "r p"]],
    exclusion: Exclusion,
    consume: ConsumeRanks,
    progress: Progress = lambda fraction: None,
) -> None:
    """Find the ranks, from 1, of the references that their query should find.

    The similarities of a row are sorted in float32, then, if the rank of a positive is within the rounding
    error of another reference, in float64, and last, for real ties, exactly and by index.

    Args:
        queries: From `vectors`, as are the references.
        references: What is ranked.
        positives_of: Gives the references that some queries should find, filled up with -1.
        exclusion: What is not ranked.
        consume: Called with rows and the ranks of their positives in rising order, 0 where there are fewer;
            every row once, by several threads in any order.
        progress: Called with the fraction done so far.
    """
    scaled = references.scaled(slice(None)).T
    error = 2 * rounding_error(len(scaled))
    bands = torch.split(torch.arange(len(queries)), max(1, ROW_BUDGET // len(references)))
    done, lock = count(1), Lock()

    def work(rows: Tensor) -> None:
        positives = positives_of(rows)
        keys = queries.scaled(rows) @ scaled
        keys += queries.offset[rows, None] + references.offset
        exclusion.apply(keys, rows, 0)
        mine = keys.gather(1, positives.clamp(min=0)).masked_fill_(positives < 0, -torch.inf)
        ranks, unsure = _count_nearer(keys.float(), mine, error)
        if len(unsure):
            ranks[unsure], still = _count_nearer(keys[unsure], mine[unsure], error)
            unsure = unsure[still]
        if len(unsure):
            exact = exact_rows(queries, rows[unsure], references)
            exclusion.apply(exact, rows[unsure], 0)
            place = exact.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            ranks[unsure] = 1 + place.gather(1, positives[unsure].clamp(min=0))
        absent = len(references) + 1
        ranks = ranks.masked_fill_(mine == -torch.inf, absent).sort(dim=1).values
        consume(rows, ranks.masked_fill_(ranks == absent, 0))
        with lock:
            progress(next(done) / len(bands))

    side_by_side(work, bands)


def _count_nearer(
    keys: Float[Tensor, "r m"], positives: Float64[Tensor, "r p"], error: float
) -> tuple[Int64[Tensor, "r p"], Int64[Tensor, " unsure"]]:
    """Count the references before each positive, and name the rows in which that count is not certain.

    Rounding is monotonic: a key above `positive + error` stays at or above that number, rounded. What is
    strictly above it is therefore nearer for sure, what is below `positive - error`, rounded, is not; certain
    is a rank with nothing but the positive itself in between.
    """
    ordered = torch.from_numpy(np.sort(keys.numpy(), axis=1))
    low, high = ((positives + shift).to(keys.dtype) for shift in (-error, error))
    above = keys.shape[1] - torch.searchsorted(ordered, high, right=True)
    reach = keys.shape[1] - torch.searchsorted(ordered, low)
    doubtful = (reach - above > 1) & (positives > -torch.inf)
    return above + 1, doubtful.any(dim=1).nonzero().squeeze(1)
