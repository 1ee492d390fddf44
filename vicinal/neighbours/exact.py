"""Exact nearest-neighbour search: fast products propose candidates, a proven error bound and exact arithmetic decide.

Products in float32 (or bfloat16, if the CPU is fast at it) shortlist every reference that may be among the k nearest;
on other CPUs a filter of 8-bit integers first rules out most pairs. Candidates whose products differ by less than the
error bound are compared exactly. A row whose shortlist overflows is repeated in the next higher precision.

Why the result is exact: let t be the k-th largest product of a row so far and w twice its error bound. At least k
references have a similarity of at least t - w/2, so the k-th nearest has one too, so the products of all k nearest are
at least t - w, the bar. A reference below the bar can be dropped, whichever block, thread or rounding put it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Lock

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from vicinal._util.machine import release_memory
from vicinal.errors import look_up
from vicinal.neighbours.inputs import Exclusion
from vicinal.neighbours.int8 import Int8Filter, PlainBlock, int8_filter, int8_is_fast, multiply_exactly
from vicinal.neighbours.layout import PADDING, BoundedLayout, centre, lay_out, widths
from vicinal.neighbours.references import INT8_FROM, WIDTH, CodedQueries, Int8References, PreparedReferences, prepare
from vicinal.neighbours.scan import ROW_BUDGET, every_reference, finish, nearest_exactly, scan
from vicinal.neighbours.shortlist import Consume, Progress, Task
from vicinal.neighbours.similarity import Vectors, exact_pairs
from vicinal.neighbours.threads import side_by_side

__all__ = ["Progress", "fastest_precision", "search"]


# Search for a few queries in references stored as plain 8-bit integers: read one half of each, then very little more.
#
# With the columns in two parts, head and tail, Cauchy-Schwarz bounds what the tail can add:
#
#     ĉ . ĉ'  <=  ĉ1 . ĉ1' + |ĉ2| |ĉ2'|
#
# A query is first compared with the heads of all references. Those with the highest bounds are compared exactly, and
# the k-th of them is the bar: a reference below it cannot be among the k nearest. The others get the products of their
# tails, the best of them raise the bar, and the rest are compared exactly. If heads rule out too little, as in noise,
# all tails are read as well. There is no shortlist and no float32 layout: for one query in 100,000 references they
# would take too long.

FEW = 8  # queries; more are cheaper together
MOST_NEIGHBOURS = 256
GROUP = 32  # size of a group of bounds, of which only the highest is used to set a bar
TRIED = 2  # a bar is set by this many times k references
LONG = 1 / 32  # share of references that heads may leave; with more, all tails are read
PATIENCE = 2  # heads alone are no longer tried once they have failed for this many more queries than they helped
CROWD = 1 << 14  # candidates above which comparing all of them exactly is not the cheapest method
SHARED = 1 << 18  # references from which cores share the blocks of one query
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
        queries: At most `FEW` queries.
        references: Prepared references.
        codes: Their integers, plain.
        k: Number of neighbours.
        allowed: Mask of the references that may be found.
        consume: Called with rows and their neighbours.

    Returns:
        Rows that were skipped because they have too many equally good candidates.
    """
    coded = codes.coded(queries, references.mean)
    constant = float(references.mean @ references.mean) if queries.distance == "cosine" else 0.0
    reach = constant + coded.excess + codes.slack(coded)
    crowded = []
    for number, row in enumerate(torch.arange(len(queries))[:, None]):

        def keys(indices: Int64[np.ndarray, " m"], row: Tensor = row) -> Float64[Tensor, " m"]:
            return exact_pairs(queries, row, references.vectors, torch.from_numpy(indices)[None])[0]

        hits = _candidates(codes, coded, number, k, float(reach[number]), allowed, keys)
        if len(hits) > CROWD:
            crowded.append(row)
            continue
        _, order = nearest_exactly(keys(hits)[None], min(k, len(hits)))
        nearest = torch.full((1, k), -1)
        nearest[:, : order.shape[1]] = torch.from_numpy(hits)[order]
        consume(row, nearest)
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
    """Return every reference that may be among the k nearest of a query, in ascending order.

    Args:
        codes: Integers of the references.
        coded: Integers of all queries.
        number: Position of the query.
        k: Number of neighbours.
        reach: Largest amount by which an exact key may exceed its bound.
        allowed: Mask of the references that may be found.
        keys: Function that compares the query with some references exactly.
    """
    step, half = coded.step * codes.step, codes.blocks[0].head.shape[1]
    integers = coded.integers[number : number + 1]
    head, tail = integers[:, :half].contiguous(), integers[:, half:].contiguous()
    rest = step * float(tail.double().norm())

    def bar(indices: Int64[np.ndarray, " m"]) -> float:
        """Return the lowest bound of a reference that may be as near as the k-th of these."""
        return float(keys(indices).topk(k).values[-1]) - reach if len(indices) >= k else LOWEST

    def of_head(block: PlainBlock) -> Float32[np.ndarray, " c"]:
        bounds = torch.add(block.bias, block.tail_length, alpha=rest)
        return bounds.add_(multiply_exactly(head, block.head)[0], alpha=step).numpy()

    def of_both(block: PlainBlock) -> Float32[np.ndarray, " c"]:
        products = multiply_exactly(head, block.head)[0].add_(multiply_exactly(tail, block.tail)[0])
        return torch.add(block.bias, products, alpha=step).numpy()

    def of_all(bound: Callable[[PlainBlock], Float32[np.ndarray, " c"]]) -> Float32[np.ndarray, " m"]:
        bounds = np.concatenate(
            side_by_side(bound, codes.blocks) if shared else [bound(block) for block in codes.blocks]
        )
        if allowed is not None:
            bounds[~allowed.numpy()] = -np.inf
        return bounds

    shared = codes.columns[-1].stop >= SHARED
    if codes.misses > PATIENCE:
        bounds = of_all(of_both)
        return np.flatnonzero(bounds >= bar(_highest(bounds, TRIED * k)))
    bounds = of_all(of_head)
    lowest = bar(_highest(bounds, TRIED * k))
    hits = np.flatnonzero(bounds >= lowest)
    if len(hits) > LONG * len(bounds):
        codes.misses += 1
        bounds = of_all(of_both)
        return np.flatnonzero(bounds >= max(lowest, bar(_highest(bounds, TRIED * k))))
    codes.misses -= 1
    if len(hits) <= TRIED * k:
        return hits
    ends = np.searchsorted(hits, [columns.stop for columns in codes.columns]).tolist()
    better = []
    for block, columns, start, stop in zip(codes.blocks, codes.columns, [0, *ends], ends, strict=False):
        positions = torch.from_numpy(hits[start:stop] - columns.start)
        products = multiply_exactly(head, block.head[positions])[0].add_(
            multiply_exactly(tail, block.tail[positions])[0]
        )
        better.append(torch.add(block.bias[positions], products, alpha=step).numpy())
    bounds = np.concatenate(better)
    return hits[bounds >= max(lowest, bar(hits[_highest(bounds, TRIED * k)]))]


def _highest(bounds: Float32[np.ndarray, " n"], count: int) -> Int64[np.ndarray, " m"]:
    """Return the indices of about `count` of the highest bounds: the peaks of the best groups, if there are enough."""
    inner = len(bounds) // GROUP
    if inner < 2 * count:
        indices = np.argpartition(-bounds, count - 1)[:count] if len(bounds) > count else np.arange(len(bounds))
    else:
        groups = bounds[: inner * GROUP].reshape(GROUP, inner)
        best = np.argpartition(-groups.max(axis=0), count - 1)[:count]
        indices = groups[:, best].argmax(axis=0) * inner + best
    return indices[bounds[indices] >= LOWEST]


# Search in general: each precision with the layouts that it tries in turn.
STEPS = {"int8": ["float32"], "bfloat16": ["bfloat16", "float32"], "float32": ["float32"]}

BLOCK = 2048
FIRST_BAND = 2  # blocks of rows that set the first bars of all others: the more, the higher
SPARSE_LIMIT = 128  # with more neighbours than this, sorting whole rows is cheaper than tracking a bar
SHARED_LIMIT = 1 << 27  # candidates that may be held at a time for all rows: up to 1.3 GB, and as much that is queued
TIDY = 256  # number of blocks after which unused memory is returned to the system
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
        queries: Queries from `vectors`, like the references; or from `vectors_like` if the references are prepared.
        references: References; in self-retrieval the same object as the queries, which halves the work.
        exclusion: Pairs that must not be found.
        k: Number of neighbours, at most the number of references.
        consume: Called with rows and their neighbours, once for every row, by several threads in any order;
            rows with fewer than k references are padded with -1.
        precision: Precision of the products; by default the fastest on this CPU. The result does not depend on it.
            Prepared references have their own.
        block: Rows and columns of a block. The result does not depend on it.
        wanted: Number of neighbours of each query, from 1 to k, if not every query needs k; the rest of the row is
            padded with -1.
        order: Order of the items in self-retrieval that is likely to put neighbours next to each other, such as by
            class: near items are found first and rule out more of the rest. The result does not depend on it.
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
    """Lay out both sides for this search only: self-retrieval, or products in bfloat16."""
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
    """Return the 8-bit filter, if this processor is fast at it and there are enough items."""
    return int8_filter(items, mean, block) if len(items) > INT8_FROM * block and int8_is_fast() else None


def _only_wanted(consume: Consume, wanted: Int64[Tensor, " n"]) -> Consume:
    """Wrap `consume` to pass on only as many neighbours of each row as are wanted."""

    def consume_wanted(rows: Tensor, columns: Tensor) -> None:
        consume(rows, columns.masked_fill(torch.arange(columns.shape[1]) >= wanted[rows, None], -1))

    return consume_wanted


def fastest_precision() -> str:
    """Return "int8" if that is fast, unless the CPU is even faster at bfloat16, and "float32" if it has neither.

    With AVX-512, the 8-bit filter took 0.6 of the CPU time of bfloat16 on CPUs that multiply both in hardware (VNNI).
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
        blocks.sort(key=lambda ends: ends[1] - ends[0])  # blocks near the diagonal set the bars of all others
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
            release_memory()
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
    """Compare each band of queries with all references; with few queries, blocks of references are wider."""
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
    """Take the largest products of whole rows, for many neighbours."""
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
