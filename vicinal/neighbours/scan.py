"""Search in references stored as 8-bit integers: one pass over the integers, then a few exact comparisons.

The float32 products with a sample of the references give every query its first bar. Then the integers are read block by
block: a pair whose bound clears the bar of its query is compared in float64, and raises the bar. Nothing else of the
references is read, and only the queries are laid out. If there are so many queries that they have more candidates than
there are references, it is cheaper to lay out the references in float32 for this search and compare in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, product
from threading import Lock
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from vicinal.neighbours.references import CodedQueries, Int8References, Pilot
from vicinal.neighbours.shortlist import Progress, Shortlist, Task, both_sides
from vicinal.neighbours.similarity import Vectors, close_pairs, exact_pairs, exact_rows, rounding_error
from vicinal.neighbours.threads import side_by_side

__all__ = ["ROW_BUDGET", "every_reference", "finish", "nearest_exactly", "scan"]


# Final order of the candidates: exact arithmetic where the error bound cannot decide.

Compare: TypeAlias = Callable[[Vectors, Tensor, Vectors, Tensor], Tensor]

ROW_BUDGET = 1 << 23  # size of a block of whole rows, in numbers


def nearest_exactly(keys: Float64[Tensor, "r m"], k: int) -> tuple[Float64[Tensor, "r k"], Int64[Tensor, "r k"]]:
    """Return the k largest keys of each row in descending order, ties by position, and their positions."""
    last = keys.topk(k, dim=1).values[:, -1:]
    above, equal = keys > last, keys == last
    chosen = above | (equal & (equal.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    columns = chosen.nonzero()[:, 1].view(-1, k)
    values, order = keys.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def finish(task: Task, shortlist: Shortlist, rows: Int64[Tensor, " r"]) -> None:
    """Put the candidates of a band in their final order, and record the rows that overflowed."""
    shortlist.settle()
    count = len(rows)  # a band may end in padding
    keys = shortlist.values[:count].double() + task.left.constant
    columns, unsure = task.named(shortlist.columns[:count].long()), shortlist.unsure()[:count]
    rows = task.named(rows)
    for compare in (close_pairs, _exact_list):
        touched = unsure.any(dim=1).nonzero().squeeze(1)
        if len(touched):
            some = keys[touched], columns[touched], unsure[touched]
            keys[touched], columns[touched], unsure[touched] = _compared_exactly(task, rows[touched], *some, compare)
    sure = ~shortlist.overflowed()[:count]
    if not bool(sure.all()):
        task.overflowed.append((rows[~sure], shortlist.bar[:count][~sure]))
    nearest = columns.masked_fill_(keys == -torch.inf, -1)[:, : task.k]
    task.consume(rows[sure], nearest[sure])


def every_reference(task: Task, rows: Int64[Tensor, " r"]) -> None:
    """Compare rows that no bound could decide with all references, in exact arithmetic."""

    def work(some: Tensor) -> None:
        keys = exact_rows(task.queries, some, task.references)
        task.exclusion.apply(keys, some, 0)
        values, columns = nearest_exactly(keys, task.k)
        task.consume(some, columns.masked_fill_(values == -torch.inf, -1))

    side_by_side(work, torch.split(rows, max(1, ROW_BUDGET // 2 // len(task.references))))


def _compared_exactly(
    task: Task,
    rows: Int64[Tensor, " r"],
    keys: Float64[Tensor, "r c"],
    columns: Int64[Tensor, "r c"],
    unsure: Bool[Tensor, "r c"],
    compare: Compare,
) -> tuple[Float64[Tensor, "r c"], Int64[Tensor, "r c"], Bool[Tensor, "r c"]]:
    """Give the unsure candidates more exact keys and sort again; ties are in the order of the index.

    A more exact key can only move a candidate past adjacent candidates that are unsure as well.
    """
    row, position = unsure.nonzero().unbind(1)
    keys[row, position] = compare(task.queries, rows[row], task.references, columns[row, position])
    by_index = columns.argsort(dim=1)
    order = by_index.gather(1, keys.gather(1, by_index).argsort(dim=1, descending=True, stable=True))
    keys, columns, unsure = (table.gather(1, order) for table in (keys, columns, unsure))
    close = keys[:, :-1] - keys[:, 1:] <= 2 * rounding_error(task.queries.rows.shape[1])
    return keys, columns, unsure & both_sides(close & unsure[:, :-1] & unsure[:, 1:])


def _exact_list(queries: Vectors, rows: Tensor, references: Vectors, columns: Tensor) -> Tensor:
    return exact_pairs(queries, rows, references, columns[:, None]).squeeze(1)


PILOT_PRODUCTS = 1 << 21  # products of queries with the sample computed at a time
HITS = 64  # typical hits of a query: if all queries together have more than there are references, these are laid out
CROWD = 1 / 8  # share of the references; with more candidates, it is cheaper to compare all of them


def scan(
    task: Task,
    codes: Int8References,
    pilot: Pilot,
    mean: Float64[Tensor, " d"],
    block: int,
    progress: Progress,
) -> None:
    """Find the neighbours of every row of the task and pass them to its `consume`.

    Args:
        task: Queries and references; these are laid out in float32 only if the integers rule out too little.
        codes: Integers of the references.
        pilot: Sample of the references that sets the first bars.
        mean: Mean that is subtracted from all vectors.
        block: Number of queries that share a shortlist.
        progress: Called with the fraction done so far.
    """
    task.hush()  # before there are threads
    coded = codes.coded(task.queries, mean)
    bands = torch.split(task.rows, block)
    begun: list[Shortlist | None] = [None] * len(bands)
    to_do = [len(codes.blocks)] * len(bands)
    items = list(product(range(len(bands)), range(len(codes.blocks))))
    done, lock = count(1), Lock()

    def work(item: tuple[int, int]) -> None:
        band, number = item
        rows = bands[band]
        with lock:
            shortlist = begun[band] = begun[band] or _first_bars(task, pilot, rows)
        _take_block(task, codes, coded, rows, number, block, shortlist)
        with lock:
            to_do[band] -= 1
            complete = not to_do[band]
            progress(next(done) / len(items))
        if complete:
            begun[band] = None
            finish(task, shortlist, rows)

    side_by_side(work, items)
    crowded = [
        rows[position : position + 1]
        for rows, bars in task.overflowed
        for position in range(len(rows))
        if not _all_candidates(task, codes, coded, rows[position : position + 1], bars[position : position + 1])
    ]
    if crowded:
        every_reference(task, torch.cat(crowded).sort().values)


def _first_bars(task: Task, pilot: Pilot, rows: Int64[Tensor, " r"]) -> Shortlist:
    """Return an empty shortlist whose bars are set by the references of the pilot."""
    shortlist = task.shortlist(rows)
    exclusion = task.exclusion.among(pilot.index)
    bars = []
    for some in torch.split(rows, max(1, PILOT_PRODUCTS // len(pilot.index))):
        products = torch.mm(task.left.left(some), pilot.layout.matrix.T)
        exclusion.apply(products, some, 0)
        part = task.shortlist(some)
        part.foresee(products)
        bars.append(part.bar)
    shortlist.bar = torch.cat(bars)
    return shortlist


def _take_block(
    task: Task,
    codes: Int8References,
    coded: CodedQueries,
    rows: Int64[Tensor, " r"],
    number: int,
    block: int,
    shortlist: Shortlist,
) -> None:
    """Offer the references of one block that may clear the bar."""
    pairs = codes.hits(coded, rows, number, shortlist.bar)
    if pairs is not None:
        position, columns = pairs
        if HITS * len(task.rows) > len(task.references):
            may = ~task.exclusion.covers(rows[position], columns)
            position, columns = position[may], columns[may]
            here = codes.columns[number]
            shortlist.consider(position, columns, task.sampled(rows, here, position, columns - here.start))
        else:
            shortlist.consider(*_compared(task, rows, position, columns))
        return
    here = codes.columns[number]
    last = len(task.right.matrix) if number == len(codes.columns) - 1 else here.stop  # with the padding
    for start in range(here.start, last, block):
        shortlist.take(task.block(rows, slice(start, min(start + block, last))), start)


def _compared(
    task: Task, rows: Int64[Tensor, " r"], position: Int64[Tensor, " m"], columns: Int64[Tensor, " m"]
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"], Float32[Tensor, " n"]]:
    """Return the pairs that are not excluded, with their products as float32 would give them without rounding errors.

    Only the result is rounded to float32.
    """
    may = ~task.exclusion.covers(rows[position], columns)
    position, columns = position[may], columns[may]
    keys = close_pairs(task.queries, rows[position], task.references, columns) - task.left.constant
    return position, columns, keys.float()


def _all_candidates(
    task: Task, codes: Int8References, coded: CodedQueries, row: Int64[Tensor, " 1"], bar: Float32[Tensor, " 1"]
) -> bool:
    """Compare all candidates of a row exactly if there are more than a shortlist holds, such as duplicates.

    Returns:
        False if there are too many candidates and nothing was done.
    """
    hits = []
    count = 0
    for number in range(len(codes.blocks)):
        pairs = codes.hits(coded, row, number, bar)
        if pairs is None:
            return False
        _, columns, values = _compared(task, row, *pairs)
        hits.append(columns[values >= bar])
        count += len(hits[-1])
        if count > CROWD * len(task.references):
            return False
    columns = torch.cat(hits)
    keys = exact_pairs(task.queries, row.expand(len(columns)), task.references, columns[:, None]).view(1, -1)
    _, order = nearest_exactly(keys, min(task.k, len(columns)))
    nearest = torch.full((1, task.k), -1)
    nearest[:, : order.shape[1]] = columns[order]
    task.consume(row, nearest)
    return True
