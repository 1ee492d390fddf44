"""Queries against references that are laid out as 8-bit integers: one pass over the integers, few exact comparisons.

The products of a sample of the references, in float32, give every query its first bar. Then the integers are read
block by block: a pair whose bound clears the bar of its query is compared in float64, and raises the bar. Nothing
else of the references is read, and nothing is laid out but the queries. Only with so many queries that they have more
candidates than there are references does it pay to lay these out in float32, for this search, and compare in that.
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


# The last word on the order of candidates: exact arithmetic, where the bound cannot tell.

Compare: TypeAlias = Callable[[Vectors, Tensor, Vectors, Tensor], Tensor]

ROW_BUDGET = 1 << 23  # numbers in a block of whole rows


def nearest_exactly(keys: Float64[Tensor, "r m"], k: int) -> tuple[Float64[Tensor, "r k"], Int64[Tensor, "r k"]]:
    """The k largest of each row in falling order, the earlier of two equal ones first."""
    last = keys.topk(k, dim=1).values[:, -1:]
    above, equal = keys > last, keys == last
    chosen = above | (equal & (equal.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    columns = chosen.nonzero()[:, 1].view(-1, k)
    values, order = keys.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def finish(task: Task, shortlist: Shortlist, rows: Int64[Tensor, " r"]) -> None:
    """Order the candidates of a band for good, and set aside the rows that overflowed."""
    shortlist.settle()
    many = len(rows)  # a band may end in padding
    keys = shortlist.values[:many].double() + task.left.constant
    columns, unsure = task.named(shortlist.columns[:many].long()), shortlist.unsure()[:many]
    rows = task.named(rows)
    for compare in (close_pairs, _exact_list):
        touched = unsure.any(dim=1).nonzero().squeeze(1)
        if len(touched):
            some = keys[touched], columns[touched], unsure[touched]
            keys[touched], columns[touched], unsure[touched] = _compared_exactly(task, rows[touched], *some, compare)
    sure = ~shortlist.overflowed()[:many]
    if not bool(sure.all()):
        task.overflowed.append((rows[~sure], shortlist.bar[:many][~sure]))
    found = columns.masked_fill_(keys == -torch.inf, -1)[:, : task.k]
    task.consume(rows[sure], found[sure])


def every_reference(task: Task, rows: Int64[Tensor, " r"]) -> None:
    """The rows in which no bound could decide, with exact arithmetic for all references."""

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
    """Give the unsure candidates better keys and sort again; an equal key leaves the order to the index.

    A better key moves a candidate past others that are unsure beside it, and past nothing else.
    """
    row, place = unsure.nonzero().unbind(1)
    keys[row, place] = compare(task.queries, rows[row], task.references, columns[row, place])
    by_index = columns.argsort(dim=1)
    order = by_index.gather(1, keys.gather(1, by_index).argsort(dim=1, descending=True, stable=True))
    keys, columns, unsure = (table.gather(1, order) for table in (keys, columns, unsure))
    close = keys[:, :-1] - keys[:, 1:] <= 2 * rounding_error(task.queries.rows.shape[1])
    return keys, columns, unsure & both_sides(close & unsure[:, :-1] & unsure[:, 1:])


def _exact_list(queries: Vectors, rows: Tensor, references: Vectors, columns: Tensor) -> Tensor:
    return exact_pairs(queries, rows, references, columns[:, None]).squeeze(1)


PILOT_PRODUCTS = 1 << 21  # of queries with the sample at a time
HITS = 64  # of a query, as a rule: if all queries have more than there are references, these are laid out first
CROWD = 1 / 8  # of the references; with more candidates, it is cheaper to compare all of them


def scan(
    task: Task,
    codes: Int8References,
    pilot: Pilot,
    mean: Float64[Tensor, " d"],
    block: int,
    progress: Progress,
) -> None:
    """Hand every row of the task over with its neighbours.

    Args:
        task: Queries and references; these are laid out in float32 only if the integers rule too little out.
        codes: The integers of the references.
        pilot: Sets the first bars.
        mean: What is taken off all vectors.
        block: Queries that share a shortlist.
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
        rows[place : place + 1]
        for rows, bars in task.overflowed
        for place in range(len(rows))
        if not _all_candidates(task, codes, coded, rows[place : place + 1], bars[place : place + 1])
    ]
    if crowded:
        every_reference(task, torch.cat(crowded).sort().values)


def _first_bars(task: Task, pilot: Pilot, rows: Int64[Tensor, " r"]) -> Shortlist:
    """An empty shortlist whose bars are set by the references of the pilot."""
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
    """Offer what may clear the bar from one block of references."""
    pairs = codes.hits(coded, rows, number, shortlist.bar)
    if pairs is not None:
        place, columns = pairs
        if HITS * len(task.rows) > len(task.references):
            may = ~task.exclusion.covers(rows[place], columns)
            place, columns = place[may], columns[may]
            here = codes.columns[number]
            shortlist.consider(place, columns, task.sampled(rows, here, place, columns - here.start))
        else:
            shortlist.consider(*_compared(task, rows, place, columns))
        return
    here = codes.columns[number]
    last = len(task.right.matrix) if number == len(codes.columns) - 1 else here.stop  # with the padding
    for start in range(here.start, last, block):
        shortlist.take(task.block(rows, slice(start, min(start + block, last))), start)


def _compared(
    task: Task, rows: Int64[Tensor, " r"], place: Int64[Tensor, " m"], columns: Int64[Tensor, " m"]
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"], Float32[Tensor, " n"]]:
    """The pairs that are not excluded, with what a product of float32 would be if it did not round on the way."""
    may = ~task.exclusion.covers(rows[place], columns)
    place, columns = place[may], columns[may]
    keys = close_pairs(task.queries, rows[place], task.references, columns) - task.left.constant
    return place, columns, keys.float()


def _all_candidates(
    task: Task, codes: Int8References, coded: CodedQueries, row: Int64[Tensor, " 1"], bar: Float32[Tensor, " 1"]
) -> bool:
    """A row with more candidates than a shortlist holds, such as duplicates: compare them all exactly.

    Returns:
        False if there are so many that nothing was done.
    """
    kept = []
    many = 0
    for number in range(len(codes.blocks)):
        pairs = codes.hits(coded, row, number, bar)
        if pairs is None:
            return False
        _, columns, values = _compared(task, row, *pairs)
        kept.append(columns[values >= bar])
        many += len(kept[-1])
        if many > CROWD * len(task.references):
            return False
    columns = torch.cat(kept)
    keys = exact_pairs(task.queries, row.expand(len(columns)), task.references, columns[:, None]).view(1, -1)
    _, order = nearest_exactly(keys, min(task.k, len(columns)))
    found = torch.full((1, task.k), -1)
    found[:, : order.shape[1]] = columns[order]
    task.consume(row, found)
    return True
