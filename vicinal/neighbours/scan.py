"""Queries against references that are laid out as 8-bit integers: one pass over the integers, few exact comparisons.

The products of a sample of the references, in float32, give every query its first bar. Then the integers are read
block by block: a pair whose bound clears the bar of its query is compared in float64, and raises the bar. Nothing
else of the references is read, and nothing is laid out but the queries. Only with so many queries that they have more
candidates than there are references does it pay to lay these out in float32, for this search, and compare in that.
"""

from __future__ import annotations

from itertools import count, product
from threading import Lock

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from vicinal.neighbours.exact_order import every_reference, finish, nearest_exactly
from vicinal.neighbours.int8_references import CodedQueries, Int8References
from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.prepared_references import Pilot
from vicinal.neighbours.shortlist import Shortlist
from vicinal.neighbours.similarity import close_pairs, exact_pairs
from vicinal.neighbours.task import Progress, Task

__all__ = ["scan"]

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
