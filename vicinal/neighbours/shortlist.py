"""Shortlists: the best candidates so far for each row of a band, and the bar that a new candidate has to clear."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from threading import Lock, local
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int32, Int64
from torch import Tensor

from vicinal.neighbours.inputs import Exclusion
from vicinal.neighbours.int8 import Int8Filter
from vicinal.neighbours.layout import LOWEST, BoundedLayout, bar
from vicinal.neighbours.similarity import Vectors

__all__ = ["Consume", "Progress", "Shortlist", "Task", "both_sides"]


GROUP = 16  # products ruled out by one comparison, if their maximum is below the bar


class Shortlist:
    """Keeps, for each row, every reference that may be among its k nearest; several threads may offer candidates.

    A reference is dropped for one of two reasons: its product is below the bar (then k references are certainly
    nearer), or more than `capacity` references cleared the bar (then `dropped` stores the best product dropped, and
    `overflowed` tells whether that reference could have mattered).

    Args:
        width: Difference of two products from which their order is certain, per row.
        k: Number of neighbours.
        capacity: Number of references kept per row.
        precision: Precision of the products.
        wanted: Number of neighbours of each row, at most k; by default k.
    """

    def __init__(
        self,
        width: Float32[Tensor, " rows"],
        k: int,
        capacity: int,
        precision: str,
        wanted: Int64[Tensor, " rows"] | None = None,
    ) -> None:
        rows = len(width)
        self.width, self.k, self.capacity, self.precision = width, k, capacity, precision
        self.last = torch.full((rows, 1), k - 1) if wanted is None else wanted[:, None] - 1
        self.values: Float32[Tensor, "rows capacity"] = torch.full((rows, capacity), -torch.inf)
        self.columns: Int32[Tensor, "rows capacity"] = torch.full((rows, capacity), -1, dtype=torch.int32)
        self.dropped: Float32[Tensor, " rows"] = torch.full((rows,), -torch.inf)
        self.bar: Float32[Tensor, " rows"] = torch.full((rows,), LOWEST)
        self.begun = False
        self.lock = Lock()
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self.waiting_count = 0

    def fill(self, block: Float32[Tensor, "rows c"]) -> None:
        """Take the best of whole rows in one step."""
        values, columns = block.topk(min(self.capacity + 1, block.shape[1]), dim=1)
        self._keep(values, columns.int())

    def foresee(self, products: Float32[Tensor, "rows c"]) -> None:
        """Raise the bar with the products of some references, all of which will be offered again later."""
        peaks = products.view(len(products), GROUP, -1).amax(dim=1)
        best = peaks if peaks.shape[1] >= 4 * self.k else products
        if best.shape[1] >= self.k:
            self._raise(best.topk(self.k, dim=1).values)

    def take(self, block: Float32[Tensor, "r c"], first: int, *, transposed: bool = False) -> None:
        """Take the references that clear the bar from a block whose references start at `first`.

        Args:
            block: Products of the rows of this list with references; references by rows if `transposed`.
            first: Index of the block's first reference.
        """
        across = block.shape[1]
        peaks = block.view(1 if transposed else len(block), GROUP, -1).amax(dim=1)
        by_row = peaks.view(-1, across).T if transposed else peaks
        if not self.begun and by_row.shape[1] >= self.k:
            # Each of the k largest peaks is a product, so the k-th largest product is at least the k-th peak.
            self._raise(by_row.topk(self.k, dim=1).values)
            self.begun = True
        bars = self.bar
        hits = _where(peaks.view(-1, across) >= bars if transposed else peaks >= bars[:, None])
        inner = peaks.shape[1]
        owners = hits.remainder(across) if transposed else hits.div(inner, rounding_mode="floor")
        crowded = torch.bincount(owners, minlength=len(bars)) > 2 * self.capacity
        if bool(crowded.any()):
            self._take_best(block.T if transposed else block, crowded.nonzero().squeeze(1), first)
            others = ~crowded[owners]
            hits, owners = hits[others], owners[others]
        starts = hits + hits.div(inner, rounding_mode="floor") * ((GROUP - 1) * inner)
        positions = starts[:, None] + torch.arange(0, GROUP * inner, inner)
        values = block.view(-1).take(positions)
        clear = _where(values >= bars[owners, None])
        position = positions.view(-1)[clear]
        row = position.div(across, rounding_mode="floor")
        column = position - row * across
        owner, other = (column, row) if transposed else (row, column)
        self.offer(owner, other + first, values.view(-1)[clear])

    def _take_best(self, block: Float32[Tensor, "r c"], rows: Int64[Tensor, " m"], first: int) -> None:
        """Take the best of rows in which too many references clear the bar; there is no room for the rest."""
        for some in torch.split(rows, 256):
            values, columns = block[some].topk(min(self.capacity + 1, block.shape[1]), dim=1)
            self.offer(some.repeat_interleave(columns.shape[1]), columns.flatten() + first, values.flatten())

    def consider(self, rows: Int64[Tensor, " m"], columns: Int64[Tensor, " m"], values: Float32[Tensor, " m"]) -> None:
        """Add the references that clear the bar."""
        clear = _where(values >= self.bar[rows])
        self.offer(rows[clear], columns[clear], values[clear])

    def offer(self, rows: Int64[Tensor, " m"], columns: Int64[Tensor, " m"], values: Float32[Tensor, " m"]) -> None:
        """Add references that have cleared the bar."""
        if not len(rows):  # even an empty tensor would keep the memory it is a view of
            return
        with self.lock:
            self.waiting.append((rows, columns.int(), values))
            self.waiting_count += len(rows)
            if 2 * self.waiting_count >= self.k * len(self.bar):
                self.settle()

    def settle(self) -> None:
        """Merge waiting references into the list and raise the bar."""
        if not self.waiting_count:
            return
        rows, columns, values = (torch.cat(parts) for parts in zip(*self.waiting, strict=True))
        self.waiting, self.waiting_count = [], 0
        by_row = torch.from_numpy(np.argsort(rows.numpy().astype(np.uint16), kind="stable"))  # a radix sort
        counts = torch.bincount(rows, minlength=len(self.bar))
        rows = rows[by_row]
        position = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows] + self.capacity
        wide = self.capacity + int(counts.max())
        all_values = torch.full((len(self.bar), wide), -torch.inf)
        all_columns = torch.full((len(self.bar), wide), -1, dtype=torch.int32)
        all_values[:, : self.capacity], all_columns[:, : self.capacity] = self.values, self.columns
        position += rows * wide
        all_values.view(-1)[position] = values[by_row]
        all_columns.view(-1)[position] = columns[by_row]
        best, order = all_values.topk(self.capacity + 1, dim=1)
        self._keep(best, all_columns.gather(1, order))

    def _keep(self, values: Float32[Tensor, "rows c"], columns: Int32[Tensor, "rows c"]) -> None:
        count = min(self.capacity, values.shape[1])
        self.values[:, :count], self.columns[:, :count] = values[:, :count], columns[:, :count]
        if values.shape[1] > self.capacity:
            self.dropped = torch.maximum(self.dropped, values[:, self.capacity])
        self._raise(self.values)

    def _raise(self, falling: Float32[Tensor, "rows c"]) -> None:
        """Raise the bar to the last wanted product of each row; products descend along the row."""
        kth = falling.gather(1, self.last).squeeze(1)
        self.bar = torch.maximum(self.bar, bar(kth, self.width, self.precision))

    def overflowed(self) -> Tensor:
        """Return the rows in which a dropped reference may be among the k nearest."""
        return self.dropped >= self.bar

    def unsure(self) -> Tensor:
        """Return the candidates that are closer to the next one in the list than the error bound.

        After the last wanted candidate, only those count that are linked to it without a gap.
        """
        reach = bar(self.values[:, :-1], self.width[:, None], self.precision)
        close = self.values[:, 1:] >= reach
        before = torch.arange(close.shape[1]) < self.last
        return both_sides(close & (before | (close | before).cumprod(dim=1).bool()))


def both_sides(close: Bool[Tensor, "r gaps"]) -> Bool[Tensor, "r c"]:
    """Return the candidates on either side of a gap that is too small."""
    none = torch.zeros(len(close), 1, dtype=torch.bool)
    return torch.cat([close, none], dim=1) | torch.cat([none, close], dim=1)


def _where(mask: Bool[Tensor, "*shape"]) -> Int64[Tensor, " hits"]:
    """Return the flat indices at which a mask is true; numpy is much faster at this than torch."""
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


# State shared by the threads of one search, and the products that they need.

Progress: TypeAlias = Callable[[float], None]
Consume: TypeAlias = Callable[[Int64[Tensor, " r"], Int64[Tensor, "r k"]], None]
Pairs: TypeAlias = tuple[Int64[Tensor, " m"], Int64[Tensor, " m"], Float32[Tensor, " m"]]


@dataclass(frozen=True)
class Task:
    """Everything that the threads of one search share.

    Args:
        queries: Queries for exact comparison.
        references: References for exact comparison.
        exclusion: Pairs that must not be found.
        k: Number of neighbours.
        left: Layout of the queries.
        lay: Function that returns the layout of the references in the same precision.
        width: Twice the bound of each query.
        rows: Queries to search for.
        consume: Called with rows and their neighbours.
        filter: Filter that rules out pairs before their products are computed.
        wanted: Number of neighbours of each query, at most k; by default k.
        order: Order in which the items are laid out. Everything here follows it except `queries`, `references` and
            what is consumed. By default their own order.
        overflowed: Rows whose shortlist was too short, as indices of `queries`, and their bars.
    """

    queries: Vectors
    references: Vectors
    exclusion: Exclusion
    k: int
    left: BoundedLayout
    lay: Callable[[], BoundedLayout]
    width: Float32[Tensor, " n"]
    rows: Int64[Tensor, " r"]
    consume: Consume
    filter: Int8Filter | None = None
    wanted: Int64[Tensor, " n"] | None = None
    order: Int64[Tensor, " items"] | None = None
    overflowed: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    scratch: local = field(default_factory=local)
    lock: Lock = field(default_factory=Lock)

    @property
    def right(self) -> BoundedLayout:
        """Layout of the references, built on first use."""
        with self.lock:
            return self._right

    @cached_property
    def _right(self) -> BoundedLayout:
        return self.lay()

    def shortlist(self, rows: Int64[Tensor, " r"]) -> Shortlist:
        """Return an empty shortlist with room for the neighbours and for candidates too close to them to decide."""
        room = max(8, self.k // 4) if self.left.precision == "float32" else max(16, self.k)
        capacity = min(self.k + room, len(self.references))
        wanted = None if self.wanted is None else self.wanted[rows]
        return Shortlist(self.width[rows], self.k, capacity, self.left.precision, wanted)

    def named(self, index: Int64[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """Translate positions in the layout to indices of `queries` and `references`; -1 stays."""
        return index if self.order is None else self.order[index.clamp(min=0)].where(index >= 0, -1)

    def block(self, rows: Int64[Tensor, " r"], columns: slice) -> Float32[Tensor, "r c"]:
        """Return the products of `rows` with some references, minus infinity where excluded.

        The next block of the same thread overwrites them.
        """
        left = self._left(rows)
        right = self.right.matrix[columns]
        if right.dtype == torch.float32:
            shape = (len(left), len(right))
            if getattr(self.scratch, "shape", None) != shape:
                self.scratch.shape, self.scratch.product = shape, torch.empty(shape)
            product = torch.mm(left, right.T, out=self.scratch.product)
        else:
            product = torch.mm(left, right.T).float()
        self.exclusion.apply(product, rows, columns.start)
        return product

    def pairs(
        self, rows: Int64[Tensor, " r"], columns: slice, mine: Shortlist, theirs: Shortlist | None
    ) -> Pairs | None:
        """Return the pairs of a block that may clear a bar, by their position in it, and their products.

        Args:
            rows: Rows of the block, without a gap.
            columns: Columns of the block.
            mine: Shortlist of the rows.
            theirs: Shortlist of the columns, if they need neighbours too.

        Returns:
            The pairs; None if computing the whole block is cheaper.
        """
        if self.filter is None:
            return None
        across = columns.stop - columns.start
        bars = mine.bar.masked_fill(rows >= len(self.queries), torch.inf)
        column_bars = torch.full((across,), torch.inf)
        if theirs is not None:
            real = min(across, len(self.references) - columns.start)
            column_bars[:real] = theirs.bar[:real]
        hits = self.filter.hits(slice(int(rows[0]), int(rows[-1]) + 1), columns.start, bars, column_bars)
        if hits is None:
            return None
        if not len(hits):
            return hits, hits, torch.empty(0)
        row = hits.div(across, rounding_mode="floor")
        column = hits - row * across
        values = self.sampled(rows, columns, row, column)
        real_pairs = values > -torch.inf
        row, column, values = row[real_pairs], column[real_pairs], values[real_pairs]
        allowed = ~self.exclusion.covers(rows[row], column + columns.start)
        return row[allowed], column[allowed], values[allowed]

    def sampled(
        self, rows: Int64[Tensor, " r"], columns: slice, row: Int64[Tensor, " m"], column: Int64[Tensor, " m"]
    ) -> Float32[Tensor, " m"]:
        """Return the products of some pairs of a block, given by their positions in it in row-major order."""
        across = columns.stop - columns.start
        ends = torch.bincount(row, minlength=len(rows)).cumsum(0)
        pattern = torch.sparse_csr_tensor(
            torch.nn.functional.pad(ends, (1, 0)),
            column,
            torch.zeros(len(row)),
            (len(rows), across),
            check_invariants=False,
        )
        product = torch.sparse.sampled_addmm(pattern, self._left(rows), self.right.matrix[columns].T, beta=0.0)
        return product.values()

    @staticmethod
    @cache
    def hush() -> None:
        """Trigger and suppress torch's once-per-process warning that sparse tensors may change."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*Sparse CSR.*")
            torch.eye(1).to_sparse_csr()

    def _left(self, rows: Int64[Tensor, " r"]) -> Tensor:
        """Return the left-hand side of `rows`, cached while the thread uses the same rows."""
        if getattr(self.scratch, "rows", None) is not rows:
            self.scratch.rows, self.scratch.left = rows, self.left.left(rows)
        return self.scratch.left
