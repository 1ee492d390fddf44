"""Retrieval scores of each query, computed from its nearest references or from the ranks of its positives.

All scores use the same inputs. `hits[i, j]` is whether the j-th nearest reference of query i has its class;
`ranks[i]` holds the ranks, from 1 and ascending, of all references of its class, padded with 0. `relevant[i]`
is their number R. Queries with R = 0 have no score: NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Lock
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.exact import Progress
from vicinal.neighbours.inputs import Exclusion
from vicinal.neighbours.similarity import Vectors, exact_rows, rounding_error
from vicinal.neighbours.threads import side_by_side

__all__ = ["average_precision_at_r", "positive_ranks"]


def precision_at_1(hits: Bool[Tensor, "n k"], relevant: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """Return whether the nearest reference has the query's class (P@1).

    Example:
        >>> precision_at_1(torch.tensor([[True, False], [False, True]]), torch.tensor([1, 1])).tolist()
        [1.0, 0.0]
    """
    return recall_at(hits, relevant, 1)


def recall_at(hits: Bool[Tensor, "n k"], relevant: Int64[Tensor, " n"], k: int) -> Float64[Tensor, " n"]:
    """Return whether one of the k nearest references has the query's class (R@k, as used in metric learning).

    Example:
        >>> recall_at(torch.tensor([[True, False], [False, True]]), torch.tensor([1, 1]), 2).tolist()
        [1.0, 1.0]
    """
    if not 1 <= k <= hits.shape[1]:
        raise InputError(f"R@{k} needs between 1 and {hits.shape[1]} neighbours, as many as are known.")
    return _known(hits[:, :k].any(dim=1).double(), relevant)


def r_precision(hits: Bool[Tensor, "n k"], relevant: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """Return the share of the query's class among its R nearest references (P@R).

    Reference:
        Musgrave, Belongie and Lim (2020), A Metric Learning Reality Check.

    Example:
        >>> r_precision(torch.tensor([[True, False, True]]), torch.tensor([2])).tolist()
        [0.5]
    """
    return _known(_within_r(hits, relevant).sum(dim=1) / relevant.double(), relevant)


def average_precision_at_r(hits: Bool[Tensor, "n k"], relevant: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """Return the precision at each hit among the R nearest references, summed and divided by R (MAP@R).

    Formula:
        1/R sum_{j <= R} P@j [the j-th is a hit]; at most P@R, and 1 only for a perfect ranking.

    Reference:
        Musgrave, Belongie and Lim (2020), A Metric Learning Reality Check, equation 2.

    Example:
        >>> average_precision_at_r(torch.tensor([[False, True, True]]), torch.tensor([2])).tolist()
        [0.25]
    """
    counted = _within_r(hits, relevant)
    precision = counted.cumsum(dim=1) / torch.arange(1, hits.shape[1] + 1, dtype=torch.float64)
    return _known((precision * counted).sum(dim=1) / relevant.double(), relevant)


def average_precision(ranks: Int64[Tensor, "n p"]) -> Float64[Tensor, " n"]:
    """Return the mean precision at the rank of each positive, over the full ranking (mAP).

    Example:
        >>> average_precision(torch.tensor([[1, 4]])).tolist()
        [0.75]
    """
    hits = torch.arange(1, ranks.shape[1] + 1, dtype=torch.float64)
    return _mean_over_positives(hits / ranks, ranks)


def reciprocal_rank(ranks: Int64[Tensor, "n p"]) -> Float64[Tensor, " n"]:
    """Return one over the rank of the first positive (MRR).

    Example:
        >>> reciprocal_rank(torch.tensor([[2, 5]])).tolist()
        [0.5]
    """
    return _known(1 / ranks[:, 0].double(), ranks[:, 0])


def discounted_gain(ranks: Int64[Tensor, "n p"]) -> Float64[Tensor, " n"]:
    """Return the discounted gain of the full ranking, divided by that of a perfect one (nDCG).

    Formula:
        sum_t 1 / log2(1 + rank_t)  /  sum_t 1 / log2(1 + t)

    Reference:
        Jaervelin and Kekaelaeinen (2002), with relevance 1 for the query's class.

    Example:
        >>> discounted_gain(torch.tensor([[1, 2], [3, 0]])).tolist()
        [1.0, 0.5]
    """
    present = ranks > 0
    ideal = torch.arange(1, ranks.shape[1] + 1).expand_as(ranks)
    gain, best = (torch.where(present, 1 / (1 + order.double()).log2(), 0.0).sum(dim=1) for order in (ranks, ideal))
    return _known(gain / best, present.sum(dim=1))


def _within_r(hits: Tensor, relevant: Tensor) -> Tensor:
    if len(relevant) and int(relevant.max()) > hits.shape[1]:
        raise InputError(
            f"Scores at R need the {int(relevant.max())} nearest references of a query whose class has that many; "
            f"only {hits.shape[1]} are known."
        )
    return hits & (torch.arange(hits.shape[1]) < relevant[:, None])


def _mean_over_positives(values: Tensor, ranks: Tensor) -> Tensor:
    present = ranks > 0
    counts = present.sum(dim=1)
    return _known(torch.where(present, values, 0.0).sum(dim=1) / counts, counts)


def _known(scores: Tensor, relevant: Tensor) -> Tensor:
    return scores.masked_fill(relevant == 0, torch.nan)


# Rank of every positive in the full ranking, with only a few rows of it in memory.

ConsumeRanks: TypeAlias = Callable[[Int64[Tensor, " r"], Int64[Tensor, "r p"]], None]

ROW_BUDGET = 1 << 22  # similarities in memory at a time, per thread


def positive_ranks(
    queries: Vectors,
    references: Vectors,
    positives_of: Callable[[Int64[Tensor, " r"]], Int64[Tensor, "r p"]],
    exclusion: Exclusion,
    consume: ConsumeRanks,
    progress: Progress = lambda fraction: None,
) -> None:
    """Compute the ranks, from 1, of the references that are relevant to each query.

    The similarities of a row are sorted in float32. If a positive is within the rounding error of another reference,
    the row is sorted again in float64, and for true ties exactly and by index.

    Args:
        queries: Vectors of the queries, from `vectors`.
        references: Vectors that are ranked, from `vectors`.
        positives_of: Function that returns the references that are relevant to some queries, padded with -1.
        exclusion: Pairs that are not ranked.
        consume: Callback, called with rows and the ranks of their positives in ascending order, padded with 0;
            once for every row, by several threads in any order.
        progress: Callback, called with the fraction done so far.
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
        positive_keys = keys.gather(1, positives.clamp(min=0)).masked_fill_(positives < 0, -torch.inf)
        ranks, unsure = _count_nearer(keys.float(), positive_keys, error)
        if len(unsure):
            ranks[unsure], still = _count_nearer(keys[unsure], positive_keys[unsure], error)
            unsure = unsure[still]
        if len(unsure):
            exact = exact_rows(queries, rows[unsure], references)
            exclusion.apply(exact, rows[unsure], 0)
            order = exact.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            ranks[unsure] = 1 + order.gather(1, positives[unsure].clamp(min=0))
        absent = len(references) + 1
        ranks = ranks.masked_fill_(positive_keys == -torch.inf, absent).sort(dim=1).values
        consume(rows, ranks.masked_fill_(ranks == absent, 0))
        with lock:
            progress(next(done) / len(bands))

    side_by_side(work, bands)


def _count_nearer(
    keys: Float[Tensor, "r m"], positives: Float64[Tensor, "r p"], error: float
) -> tuple[Int64[Tensor, "r p"], Int64[Tensor, " unsure"]]:
    """Count the references before each positive, and return the rows in which that count is not certain.

    Rounding is monotonic: a key above `positive + error` stays at or above that number, rounded. A key strictly above
    it is therefore certainly nearer; a key below `positive - error`, rounded, certainly is not. A rank is certain if
    only the positive itself is in between.
    """
    ordered = torch.from_numpy(np.sort(keys.numpy(), axis=1))
    low, high = ((positives + shift).to(keys.dtype) for shift in (-error, error))
    above = keys.shape[1] - torch.searchsorted(ordered, high, right=True)
    reach = keys.shape[1] - torch.searchsorted(ordered, low)
    doubtful = (reach - above > 1) & (positives > -torch.inf)
    return above + 1, doubtful.any(dim=1).nonzero().squeeze(1)
