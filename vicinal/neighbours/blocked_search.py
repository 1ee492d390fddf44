"""Exact nearest neighbours: fast products propose, a proven bound and exact arithmetic dispose.

Products in float32 (or bfloat16, where the CPU is fast at it) shortlist every reference that may be among the
k nearest; on other CPUs a sieve of 8-bit integers rules most pairs out before. Candidates whose products differ
by less than the error bound are compared exactly; a row whose shortlist overflows is done again, in the next
better precision. Why the result is exact: let t be the k-th largest product of a row so far and w twice its
error bound. At least k references have a similarity of at least t - w/2, hence so has the k-th nearest, hence
the products of all k nearest are at least t - w, the bar. What stays under the bar may be dropped, and it does
not matter which block, thread or rounding put it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from vicinal.errors import look_up
from vicinal.neighbours.exclusion import Exclusion
from vicinal.neighbours.int8_filter import sieve, sieve_is_fast
from vicinal.neighbours.layout import PADDING, centre, panel, widths
from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.shortlist import Shortlist, both_sides
from vicinal.neighbours.similarity import Vectors, close_pairs, exact_pairs, exact_rows, rounding_error
from vicinal.neighbours.task import Consume, Task

__all__ = ["Consume", "Progress", "fastest_precision", "nearest_exactly", "search"]

Progress: TypeAlias = Callable[[float], None]
Compare: TypeAlias = Callable[[Vectors, Tensor, Vectors, Tensor], Tensor]

STEPS = {"int8": ["float32"], "bfloat16": ["bfloat16", "float32"], "float32": ["float32"]}  # of the panels

BLOCK = 2048
FIRST_BAND = 2  # blocks of rows that set the bar of all others: the more, the higher
SIEVE_FROM = 3  # blocks of references; with fewer, most of them set the bar
SPARSE_LIMIT = 128  # from this many neighbours on, sorting whole rows is cheaper than tracking a bar
SHARED_LIMIT = 1 << 25  # candidates that may be held at once for all rows (256 MB)
ROW_BUDGET = 1 << 23  # numbers in a block of whole rows


def search(
    queries: Vectors,
    references: Vectors,
    exclusion: Exclusion,
    k: int,
    consume: Consume,
    *,
    precision: str | None = None,
    block: int = BLOCK,
    progress: Progress = lambda fraction: None,
) -> None:
    """Find the k nearest references of every query, nearest first, ties by index.

    Args:
        queries: From `vectors`, as are the references.
        references: The same object as the queries in self-retrieval, which halves the work.
        exclusion: What must not be found.
        k: At most the number of references.
        consume: Called with rows and their neighbours, every row once, by several threads in any order;
            -1 fills up rows with fewer than k references.
        precision: Of the products; by default what is fastest here. The result does not depend on it.
        block: Rows and columns of a block; nor on this.
        progress: Called with the fraction done so far.
    """
    rows = torch.arange(len(queries))
    precision = precision or fastest_precision()
    steps = look_up("precision", precision, STEPS)
    block = max(PADDING, min(block, 1 << 15) // PADDING * PADDING)
    mean = centre(references)
    worthwhile = precision == "int8" and sieve_is_fast() and k <= SPARSE_LIMIT and len(references) > SIEVE_FROM * block
    sifted = sieve(queries, references, mean, block) if worthwhile else None
    for step in steps:
        right = panel(references, mean, step)
        left = right if queries is references else panel(queries, mean, step)
        task = Task(queries, references, exclusion, k, left, right, widths(left, right), rows, consume, sifted)
        if k > SPARSE_LIMIT:
            _whole_rows(task, progress)
        elif queries is references and len(rows) == len(queries) and len(rows) * k <= SHARED_LIMIT:
            _both_ways(task, block, progress)
        else:
            _band_by_band(task, block, progress)
        rows = torch.cat([*task.overflowed, rows[:0]]).sort().values
        if not len(rows):
            return
    _exactly(replace(task, rows=rows))


def fastest_precision() -> str:
    """Bfloat16 where the CPU multiplies it in hardware, else int8 where that is fast, else float32."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"):
        return "bfloat16"
    return "int8" if sieve_is_fast() else "float32"


def nearest_exactly(keys: Float64[Tensor, "r m"], k: int) -> tuple[Float64[Tensor, "r k"], Int64[Tensor, "r k"]]:
    """The k largest of each row in falling order, the earlier of two equal ones first."""
    last = keys.topk(k, dim=1).values[:, -1:]
    above, equal = keys > last, keys == last
    chosen = above | (equal & (equal.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    columns = chosen.nonzero()[:, 1].view(-1, k)
    values, order = keys.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def _both_ways(task: Task, block: int, progress: Progress) -> None:
    """Self-retrieval: each block of products serves its rows and, transposed, its columns."""
    total = len(task.right.matrix)
    starts = [0, *range(FIRST_BAND * block, total, block)]
    bands = [slice(*ends) for ends in zip(starts, [*starts[1:], total], strict=True)]
    rows = [torch.arange(band.start, band.stop) for band in bands]
    width = torch.nn.functional.pad(task.width, (0, total - len(task.width)))
    lists = [replace(task, width=width).shortlist(part) for part in rows]
    to_do = [len(bands)] * len(bands)
    blocks = [(upper, lower) for upper in range(len(bands)) for lower in range(upper, len(bands))]
    done, lock = count(1), Lock()

    def work(ends: tuple[int, int]) -> None:
        upper, lower = ends
        pairs = task.pairs(rows[upper], bands[lower], lists[upper], lists[lower] if upper != lower else None)
        if pairs is not None:
            row, column, values = pairs
            lists[upper].consider(row, column + bands[lower].start, values)
            if upper != lower:
                lists[lower].consider(column, row + bands[upper].start, values)
        else:
            product = task.block(rows[upper], bands[lower])
            lists[upper].take(product, bands[lower].start)
            if upper != lower:
                lists[lower].take(product, bands[upper].start, transposed=True)
        with lock:
            for band in {upper, lower}:
                to_do[band] -= 1
            complete = [band for band in {upper, lower} if not to_do[band]]
            progress(next(done) / len(blocks))
        for band in complete:
            _finish(task, lists[band], rows[band][rows[band] < len(task.queries)])

    side_by_side(work, blocks)


def _band_by_band(task: Task, block: int, progress: Progress) -> None:
    """Each band of queries against all references."""
    total = len(task.right.matrix)
    bands = torch.split(task.rows, block)
    done, lock = count(1), Lock()

    def work(rows: Tensor) -> None:
        shortlist = task.shortlist(rows)
        for start in range(0, total, block):
            columns = slice(start, min(start + block, total))
            pairs = task.pairs(rows, columns, shortlist, None)
            if pairs is not None:
                row, column, values = pairs
                shortlist.consider(row, column + start, values)
            else:
                shortlist.take(task.block(rows, columns), start)
        _finish(task, shortlist, rows)
        with lock:
            progress(next(done) / len(bands))

    side_by_side(work, bands)


def _whole_rows(task: Task, progress: Progress) -> None:
    """Many neighbours: the largest products of whole rows."""
    total = len(task.right.matrix)
    bands = torch.split(task.rows, max(1, ROW_BUDGET // total))
    done, lock = count(1), Lock()

    def work(rows: Tensor) -> None:
        shortlist = task.shortlist(rows)
        shortlist.fill(task.block(rows, slice(0, total)))
        _finish(task, shortlist, rows)
        with lock:
            progress(next(done) / len(bands))

    side_by_side(work, bands)


def _exactly(task: Task) -> None:
    """The rows in which the bound could not decide, with exact arithmetic for all references."""

    def work(rows: Tensor) -> None:
        keys = exact_rows(task.queries, rows, task.references)
        task.exclusion.apply(keys, rows, 0)
        values, columns = nearest_exactly(keys, task.k)
        task.consume(rows, columns.masked_fill_(values == -torch.inf, -1))

    side_by_side(work, torch.split(task.rows, max(1, ROW_BUDGET // 2 // len(task.references))))


def _finish(task: Task, shortlist: Shortlist, rows: Int64[Tensor, " r"]) -> None:
    """Order the candidates of a band for good, and set aside the rows that overflowed."""
    shortlist.settle()
    many = len(rows)  # a band may end in padding
    keys = shortlist.values[:many].double() + task.right.constant
    columns, unsure = shortlist.columns[:many].long(), shortlist.unsure()[:many]
    for compare in (close_pairs, _exact_list):
        touched = unsure.any(dim=1).nonzero().squeeze(1)
        if len(touched):
            some = keys[touched], columns[touched], unsure[touched]
            keys[touched], columns[touched], unsure[touched] = _compared(task, rows[touched], *some, compare)
    sure = ~shortlist.overflowed()[:many]
    if not bool(sure.all()):
        task.overflowed.append(rows[~sure])
    found = columns.masked_fill_(keys == -torch.inf, -1)[:, : task.k]
    task.consume(rows[sure], found[sure])


def _compared(
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
