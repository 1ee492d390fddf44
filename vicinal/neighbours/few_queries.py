"""A few queries against references that are laid out as plain 8-bit integers: half of each is read, then very little.

With the columns in two parts, Cauchy-Schwarz bounds what the second can add:

    ĉ . ĉ'  <=  ĉ1 . ĉ1' + |ĉ2| |ĉ2'|

A query first meets the heads of all references. Those with the highest bounds are compared exactly, and the k-th of
them is the bar: what is under it cannot be among the k nearest. The others get the products of their tails, the best
of them raise the bar, and what is left is compared exactly. Where heads rule too little out, as in noise, all tails
are read as well. No list of candidates is kept, nothing is laid out in float32: one query of 100,000 references has no
time for that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from vicinal.neighbours.exact_order import nearest_exactly
from vicinal.neighbours.int8_references import CodedQueries, Int8References
from vicinal.neighbours.int32_products import PlainBlock, multiply_exactly
from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.prepared_references import PreparedReferences
from vicinal.neighbours.similarity import Vectors, exact_pairs
from vicinal.neighbours.task import Consume

__all__ = ["FEW", "MOST_NEIGHBOURS", "search_few"]

FEW = 8  # queries; more are cheaper together
MOST_NEIGHBOURS = 256
GROUP = 32  # bounds of which only the highest is looked at, to set a bar
TRIED = 2  # times k references that set a bar
LONG = 1 / 32  # of the references: with more left by their heads, all tails are read
PATIENCE = 2  # queries whose heads were read in vain, more than not, until heads alone are no longer tried
CROWD = 1 << 14  # candidates whose exact comparison costs more than another way
SHARED = 1 << 18  # references from which on cores share the blocks of one query
LOWEST = float(np.finfo(np.float32).min)


def search_few(
    queries: Vectors,
    references: PreparedReferences,
    codes: Int8References,
    k: int,
    allowed: Bool[Tensor, " m"] | None,
    consume: Consume,
) -> Int64[Tensor, " r"]:
    """Find the k nearest references of each query.

    Args:
        queries: No more than `FEW`.
        references: Prepared.
        codes: Their integers, plain.
        k: Neighbours wanted.
        allowed: The references that may be found.
        consume: Called with rows and their neighbours.

    Returns:
        Rows with so many equally good candidates that nothing was done.
    """
    coded = codes.coded(queries, references.mean)
    constant = float(references.mean @ references.mean) if queries.distance == "cosine" else 0.0
    reach = constant + coded.excess + codes.slack(coded)
    crowded = []
    for number, row in enumerate(torch.arange(len(queries))[:, None]):

        def keys(places: Int64[np.ndarray, " m"], row: Tensor = row) -> Float64[Tensor, " m"]:
            return exact_pairs(queries, row, references.vectors, torch.from_numpy(places)[None])[0]

        hits = _candidates(codes, coded, number, k, float(reach[number]), allowed, keys)
        if len(hits) > CROWD:
            crowded.append(row)
            continue
        _, order = nearest_exactly(keys(hits)[None], min(k, len(hits)))
        found = torch.full((1, k), -1)
        found[:, : order.shape[1]] = torch.from_numpy(hits)[order]
        consume(row, found)
    return torch.cat([torch.empty(0, dtype=torch.int64), *crowded])


def _candidates(
    codes: Int8References,
    coded: CodedQueries,
    number: int,
    k: int,
    reach: float,
    allowed: Bool[Tensor, " m"] | None,
    keys: Callable[[Int64[np.ndarray, " m"]], Float64[Tensor, " m"]],
) -> Int64[np.ndarray, " hits"]:
    """Every reference that may be one of the k nearest of a query, in rising order.

    Args:
        codes: The integers of the references.
        coded: The queries.
        number: Which of them.
        k: Neighbours wanted.
        reach: How far an exact key may be above its bound.
        allowed: The references that may be found.
        keys: Compares the query with some references exactly.
    """
    step, half = coded.step * codes.step, codes.blocks[0].head.shape[1]
    integers = coded.integers[number : number + 1]
    head, tail = integers[:, :half].contiguous(), integers[:, half:].contiguous()
    rest = step * float(tail.double().norm())

    def bar(places: Int64[np.ndarray, " m"]) -> float:
        """The lowest bound of a reference that may be as near as the k-th of these."""
        return float(keys(places).topk(k).values[-1]) - reach if len(places) >= k else LOWEST

    def of_head(block: PlainBlock) -> Float32[np.ndarray, " c"]:
        bounds = torch.add(block.bias, block.tail_length, alpha=rest)
        return bounds.add_(multiply_exactly(head, block.head)[0], alpha=step).numpy()

    def of_both(block: PlainBlock) -> Float32[np.ndarray, " c"]:
        products = multiply_exactly(head, block.head)[0].add_(multiply_exactly(tail, block.tail)[0])
        return torch.add(block.bias, products, alpha=step).numpy()

    def of_all(bound: Callable[[PlainBlock], Float32[np.ndarray, " c"]]) -> Float32[np.ndarray, " m"]:
        bounds = np.concatenate(side_by_side(bound, codes.blocks) if shared else [bound(one) for one in codes.blocks])
        if allowed is not None:
            bounds[~allowed.numpy()] = -np.inf
        return bounds

    shared = codes.columns[-1].stop >= SHARED
    if codes.in_vain > PATIENCE:
        bounds = of_all(of_both)
        return np.flatnonzero(bounds >= bar(_highest(bounds, TRIED * k)))
    bounds = of_all(of_head)
    lowest = bar(_highest(bounds, TRIED * k))
    hits = np.flatnonzero(bounds >= lowest)
    if len(hits) > LONG * len(bounds):
        codes.in_vain += 1
        bounds = of_all(of_both)
        return np.flatnonzero(bounds >= max(lowest, bar(_highest(bounds, TRIED * k))))
    codes.in_vain -= 1
    if len(hits) <= TRIED * k:
        return hits
    ends = np.searchsorted(hits, [columns.stop for columns in codes.columns]).tolist()
    better = []
    for block, columns, start, stop in zip(codes.blocks, codes.columns, [0, *ends], ends, strict=False):
        places = torch.from_numpy(hits[start:stop] - columns.start)
        products = multiply_exactly(head, block.head[places])[0].add_(multiply_exactly(tail, block.tail[places])[0])
        better.append(torch.add(block.bias[places], products, alpha=step).numpy())
    bounds = np.concatenate(better)
    return hits[bounds >= max(lowest, bar(hits[_highest(bounds, TRIED * k)]))]


def _highest(bounds: Float32[np.ndarray, " n"], many: int) -> Int64[np.ndarray, " m"]:
    """Places of about `many` of the highest bounds: the peak of each of the best groups, if there are enough groups."""
    inner = len(bounds) // GROUP
    if inner < 2 * many:
        places = np.argpartition(-bounds, many - 1)[:many] if len(bounds) > many else np.arange(len(bounds))
    else:
        groups = bounds[: inner * GROUP].reshape(GROUP, inner)
        best = np.argpartition(-groups.max(axis=0), many - 1)[:many]
        places = groups[:, best].argmax(axis=0) * inner + best
    return places[bounds[places] >= LOWEST]
