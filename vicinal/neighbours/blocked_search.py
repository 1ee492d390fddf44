"""Exact nearest neighbours: fast products propose, a proven bound and exact arithmetic dispose.

Products in float32 (or bfloat16, where the CPU is fast at it) shortlist every reference that may be among the
k nearest; on other CPUs a filter of 8-bit integers rules most pairs out before. Candidates whose products differ
by less than the error bound are compared exactly; a row whose shortlist overflows is done again, in the next
better precision. Why the result is exact: let t be the k-th largest product of a row so far and w twice its
error bound. At least k references have a similarity of at least t - w/2, hence so has the k-th nearest, hence
the products of all k nearest are at least t - w, the bar. What stays under the bar may be dropped, and it does
not matter which block, thread or rounding put it there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from threading import Lock

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vicinal.errors import look_up
from vicinal.neighbours.exact_order import ROW_BUDGET, every_reference, finish
from vicinal.neighbours.exclusion import Exclusion
from vicinal.neighbours.few_queries import FEW, MOST_NEIGHBOURS, search_few
from vicinal.neighbours.freed_memory import give_back
from vicinal.neighbours.int8_filter import Int8Filter, int8_filter
from vicinal.neighbours.int8_products import int8_is_fast
from vicinal.neighbours.int8_references import WIDTH
from vicinal.neighbours.layout import PADDING, BoundedLayout, centre, lay_out, widths
from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.prepared_references import INT8_FROM, PreparedReferences, prepare
from vicinal.neighbours.scan import scan
from vicinal.neighbours.similarity import Vectors
from vicinal.neighbours.task import Consume, Progress, Task

__all__ = ["Consume", "Progress", "fastest_precision", "search"]

STEPS = {"int8": ["float32"], "bfloat16": ["bfloat16", "float32"], "float32": ["float32"]}  # of the layouts

BLOCK = 2048
FIRST_BAND = 2  # blocks of rows that set the bar of all others: the more, the higher
SPARSE_LIMIT = 128  # from this many neighbours on, sorting whole rows is cheaper than tracking a bar
SHARED_LIMIT = 1 << 27  # candidates that may be held at once for all rows: up to 1.3 GB, and as much that waits
TIDY = 256  # blocks of which the memory is kept for the next ones
SCAN_LIMIT = 1024  # neighbours up to which references are scanned for candidates


def search(
    queries: Vectors,
    references: Vectors | PreparedReferences,
    exclusion: Exclusion,
    k: int,
    consume: Consume,
    *,
    precision: str | None = None,
    block: int = BLOCK,
    wanted: Int64[Tensor, " n"] | None = None,
    order: Int64[Tensor, " n"] | None = None,
    progress: Progress = lambda fraction: None,
) -> None:
    """Find the k nearest references of every query, nearest first, ties by index.

    Args:
        queries: From `vectors`, as are the references; or from `vectors_like` if these are prepared.
        references: The same object as the queries in self-retrieval, which halves the work.
        exclusion: What must not be found.
        k: At most the number of references.
        consume: Called with rows and their neighbours, every row once, by several threads in any order;
            -1 fills up rows with fewer than k references.
        precision: Of the products; by default what is fastest here. The result does not depend on it. References
            that are prepared have theirs.
        block: Rows and columns of a block; nor on this.
        wanted: Neighbours of each query, from 1 to k, where not all queries want k: -1 fills up the others' rows.
        order: In self-retrieval, the items in an order in which neighbours are likely to stand together, such as that
            of their classes: what is near is found first, and rules out more of the rest. Nor on this.
        progress: Called with the fraction done so far.
    """
    if wanted is not None:
        consume = _only_wanted(consume, wanted)
    precision = precision or fastest_precision()
    steps = look_up("precision", precision, STEPS)
    block = max(PADDING, min(block, 1 << 15) // PADDING * PADDING)
    if isinstance(references, Vectors):
        if queries is references or precision == "bfloat16":
            _search_once(queries, references, exclusion, k, consume, steps, block, wanted, order, progress)
            return
        references = prepare(references, precision if k <= SCAN_LIMIT else "float32", block)
    rows = torch.arange(len(queries))
    codes = references.codes
    if codes is not None and codes.plain and len(rows) <= FEW and k <= MOST_NEIGHBOURS and exclusion.by_mask_alone:
        rows = search_few(queries, references, codes, k, exclusion.allowed, consume)
        if not len(rows):
            progress(1.0)
            return
    left = lay_out(queries, references.mean, "float32")
    width = widths(left, references.bounds)
    task = Task(queries, references.vectors, exclusion, k, left, references.layout, width, rows, consume, wanted=wanted)
    if references.codes is not None and references.pilot is not None and k <= SCAN_LIMIT:
        scan(task, references.codes, references.pilot, references.mean, block, progress)
    else:
        _by_layout(task, block, progress)
        if task.overflowed:
            every_reference(task, torch.cat([rows for rows, _ in task.overflowed]).sort().values)


def _search_once(
    queries: Vectors,
    references: Vectors,
    exclusion: Exclusion,
    k: int,
    consume: Consume,
    steps: list[str],
    block: int,
    wanted: Int64[Tensor, " n"] | None,
    order: Int64[Tensor, " n"] | None,
    progress: Progress,
) -> None:
    """Lay both sides out for this one search: items among themselves, or products in bfloat16."""
    itself = queries is references
    rows = torch.arange(len(queries))
    mean = centre(references)
    both_ways = itself and k <= SPARSE_LIMIT and len(rows) * k <= SHARED_LIMIT
    for step in steps:
        together = order if both_ways and len(rows) == len(queries) else None
        laid = references if together is None else references.take(together)
        right = lay_out(laid, mean, step)
        left = right if itself else lay_out(queries, mean, step)
        task = Task(
            queries,
            references,
            exclusion if together is None else exclusion.in_order(together),
            k,
            left,
            partial(_same, right),
            widths(left, right.bounds),
            rows,
            consume,
            _filter(laid, mean, block) if itself and steps is STEPS["int8"] and k <= SPARSE_LIMIT else None,
            wanted if together is None or wanted is None else wanted[together],
            together,
        )
        del laid  # a copy, if in another order
        if both_ways and len(rows) == len(queries):
            _both_ways(task, block, progress)
        else:
            _by_layout(task, block, progress)
        rows = torch.cat([*(some for some, _ in task.overflowed), rows[:0]]).sort().values
        if not len(rows):
            return
    every_reference(replace(task, exclusion=exclusion), rows)


def _filter(items: Vectors, mean: Float64[Tensor, " d"], block: int) -> Int8Filter | None:
    """The filter, where this processor is fast at it and there are enough items."""
    return int8_filter(items, mean, block) if len(items) > INT8_FROM * block and int8_is_fast() else None


def _only_wanted(consume: Consume, wanted: Int64[Tensor, " n"]) -> Consume:
    """Hand over as many neighbours of each row as it wants."""

    def consume_wanted(rows: Tensor, columns: Tensor) -> None:
        consume(rows, columns.masked_fill(torch.arange(columns.shape[1]) >= wanted[rows, None], -1))

    return consume_wanted


def fastest_precision() -> str:
    """Int8 where that is fast, unless the CPU is faster still at bfloat16; float32 where it has neither.

    With AVX-512 the 8-bit filter took .6 of the CPU time of bfloat16 where both are multiplied in hardware (VNNI).
    """
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    by_vectors = capabilities.get("avx512_bf16") and not (capabilities.get("avx512_vnni") and int8_is_fast())
    if capabilities.get("amx_bf16") or by_vectors:
        return "bfloat16"
    return "int8" if int8_is_fast() else "float32"


def _both_ways(task: Task, block: int, progress: Progress) -> None:
    """Self-retrieval: each block of products serves its rows and, transposed, its columns."""
    total = len(task.right.matrix)
    starts = [0, *range(FIRST_BAND * block, total, block)]
    bands = [slice(*ends) for ends in zip(starts, [*starts[1:], total], strict=True)]
    rows = [torch.arange(band.start, band.stop) for band in bands]
    padding = (0, total - len(task.width))
    width = torch.nn.functional.pad(task.width, padding)
    wanted = None if task.wanted is None else torch.nn.functional.pad(task.wanted, padding, value=1)
    lists = [replace(task, width=width, wanted=wanted).shortlist(part) for part in rows]
    to_do = [len(bands)] * len(bands)
    blocks = [(upper, lower) for upper in range(len(bands)) for lower in range(upper, len(bands))]
    if task.order is not None:
        blocks.sort(key=lambda ends: ends[1] - ends[0])  # what stands together sets the bars of all else
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
            number = next(done)
            progress(number / len(blocks))
        if not number % TIDY:
            give_back()
        for band in complete:
            finish(task, lists[band], rows[band][rows[band] < len(task.queries)])

    side_by_side(work, blocks)


def _same(layout: BoundedLayout) -> BoundedLayout:
    return layout


def _by_layout(task: Task, block: int, progress: Progress) -> None:
    if task.k > SPARSE_LIMIT:
        _whole_rows(task, progress)
    else:
        _band_by_band(task, block, progress)


def _band_by_band(task: Task, block: int, progress: Progress) -> None:
    """Each band of queries against all references; few queries take more of these at a time."""
    total = len(task.right.matrix)
    bands = torch.split(task.rows, block)
    done, lock = count(1), Lock()
    across = block if task.filter else min(WIDTH, block * block // len(bands[0])) // PADDING * PADDING

    def work(rows: Tensor) -> None:
        shortlist = task.shortlist(rows)
        for start in range(0, total, across):
            columns = slice(start, min(start + across, total))
            pairs = task.pairs(rows, columns, shortlist, None)
            if pairs is not None:
                row, column, values = pairs
                shortlist.consider(row, column + start, values)
            else:
                shortlist.take(task.block(rows, columns), start)
        finish(task, shortlist, rows)
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
        finish(task, shortlist, rows)
        with lock:
            progress(next(done) / len(bands))

    side_by_side(work, bands)
