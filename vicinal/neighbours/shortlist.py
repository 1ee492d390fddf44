"""The best candidates so far for each row of a band, and the bar that a newcomer has to clear."""

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


GROUP = 16  # products ruled out by one comparison, if their maximum is under the bar


class Shortlist:
    """Keeps, for each row, every reference that may be among its k nearest; several threads may offer.

    A reference is dropped in one of two ways: its product is under the bar (then k references are surely
    nearer), or more than `capacity` cleared the bar (then `dropped` remembers the best product dropped, and
    `overflowed` tells whether that reference could have mattered).

    Args:
        width: How far apart two products must be for their order to be sure, per row.
        k: Neighbours wanted.
        capacity: References kept.
        precision: Of the products.
        wanted: Neighbours of each row, at most k; without it, k.
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
        """Take the best of whole rows at once."""
        values, columns = block.topk(min(self.capacity + 1, block.shape[1]), dim=1)
        self._keep(values, columns.int())

    def foresee(self, products: Float32[Tensor, "rows c"]) -> None:
        """Raise the bar by the products of some references, all of which will come again to be taken."""
        peaks = products.view(len(products), GROUP, -1).amax(dim=1)
        best = peaks if peaks.shape[1] >= 4 * self.k else products
        if best.shape[1] >= self.k:
            self._raise(best.topk(self.k, dim=1).values)

    def take(self, block: Float32[Tensor, "r c"], first: int, *, transposed: bool = False) -> None:
        """Take what clears the bar from a block whose references count from `first`.

        Args:
            block: Products; of references (down) with the rows of this list (across) if `transposed`.
            first: The number of the block's first reference.
        """
        across = block.shape[1]
        peaks = block.view(1 if transposed else len(block), GROUP, -1).amax(dim=1)
        by_row = peaks.view(-1, across).T if transposed else peaks
        if not self.begun and by_row.shape[1] >= self.k:
            # Each of the k largest peaks is a product, so the k-th largest product is no less than their last.
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
        places = starts[:, None] + torch.arange(0, GROUP * inner, inner)
        values = block.view(-1).take(places)
        kept = _where(values >= bars[owners, None])
        place = places.view(-1)[kept]
        row = place.div(across, rounding_mode="floor")
        column = place - row * across
        mine, other = (column, row) if transposed else (row, column)
        self.offer(mine, other + first, values.view(-1)[kept])

    def _take_best(self, block: Float32[Tensor, "r c"], rows: Int64[Tensor, " m"], first: int) -> None:
        """Take the best of rows in which too much clears the bar; the rest could not be kept anyway."""
        for some in torch.split(rows, 256):
            values, columns = block[some].topk(min(self.capacity + 1, block.shape[1]), dim=1)
            self.offer(some.repeat_interleave(columns.shape[1]), columns.flatten() + first, values.flatten())

    def consider(self, rows: Int64[Tensor, " m"], columns: Int64[Tensor, " m"], values: Float32[Tensor, " m"]) -> None:
        """Add those of some references that clear the bar."""
        kept = _where(values >= self.bar[rows])
        self.offer(rows[kept], columns[kept], values[kept])

    def offer(self, rows: Int64[Tensor, " m"], columns: Int64[Tensor, " m"], values: Float32[Tensor, " m"]) -> None:
        """Add references that cleared the bar."""
        if not len(rows):  # nothing to keep: even an empty tensor would pin the memory around it
            return
        with self.lock:
            self.waiting.append((rows, columns.int(), values))
            self.waiting_count += len(rows)
            if 2 * self.waiting_count >= self.k * len(self.bar):
                self.settle()

    def settle(self) -> None:
        """Merge what waits into the list and raise the bar."""
        if not self.waiting_count:
            return
        rows, columns, values = (torch.cat(parts) for parts in zip(*self.waiting, strict=True))
        self.waiting, self.waiting_count = [], 0
        by_row = torch.from_numpy(np.argsort(rows.numpy().astype(np.uint16), kind="stable"))  # a radix sort
        counts = torch.bincount(rows, minlength=len(self.bar))
        rows = rows[by_row]
        place = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows] + self.capacity
        wide = self.capacity + int(counts.max())
        all_values = torch.full((len(self.bar), wide), -torch.inf)
        all_columns = torch.full((len(self.bar), wide), -1, dtype=torch.int32)
        all_values[:, : self.capacity], all_columns[:, : self.capacity] = self.values, self.columns
        place += rows * wide
        all_values.view(-1)[place] = values[by_row]
        all_columns.view(-1)[place] = columns[by_row]
        best, at = all_values.topk(self.capacity + 1, dim=1)
        self._keep(best, all_columns.gather(1, at))

    def _keep(self, values: Float32[Tensor, "rows c"], columns: Int32[Tensor, "rows c"]) -> None:
        kept = min(self.capacity, values.shape[1])
        self.values[:, :kept], self.columns[:, :kept] = values[:, :kept], columns[:, :kept]
        if values.shape[1] > self.capacity:
            self.dropped = torch.maximum(self.dropped, values[:, self.capacity])
        self._raise(self.values)

    def _raise(self, falling: Float32[Tensor, "rows c"]) -> None:
        """Raise the bar to the last product that is wanted, of some that fall along the row."""
        kth = falling.gather(1, self.last).squeeze(1)
        self.bar = torch.maximum(self.bar, bar(kth, self.width, self.precision))

    def overflowed(self) -> Tensor:
        """The rows in which a dropped reference may be one of the k nearest."""
        return self.dropped >= self.bar

    def unsure(self) -> Tensor:
        """The candidates whose order beside their neighbour in the list is within the error.

        After the last that is wanted, only those count that are linked to it without a gap.
        """
        reach = bar(self.values[:, :-1], self.width[:, None], self.precision)
        close = self.values[:, 1:] >= reach
        before = torch.arange(close.shape[1]) < self.last
        return both_sides(close & (before | (close | before).cumprod(dim=1).bool()))


def both_sides(close: Bool[Tensor, "r gaps"]) -> Bool[Tensor, "r c"]:
    """The candidates on either side of a gap that is too small."""
    none = torch.zeros(len(close), 1, dtype=torch.bool)
    return torch.cat([close, none], dim=1) | torch.cat([none, close], dim=1)


def _where(mask: Bool[Tensor, "*shape"]) -> Int64[Tensor, " hits"]:
    """Where a mask of any shape is true, counted along its rows; numpy is much faster at this than torch."""
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


# What the threads of one search share, and the products they ask for.

Progress: TypeAlias = Callable[[float], None]
Consume: TypeAlias = Callable[[Int64[Tensor, " r"], Int64[Tensor, "r k"]], None]
Pairs: TypeAlias = tuple[Int64[Tensor, " m"], Int64[Tensor, " m"], Float32[Tensor, " m"]]


@dataclass(frozen=True)
class Task:
    """Everything that the threads of one search share.

    Args:
        queries: As they compare exactly.
        references: The same.
        exclusion: What must not be found.
        k: Neighbours wanted.
        left: The queries, laid out.
        lay: Lays the references out in the same precision, or returns them if they are.
        width: Twice the bound of each query.
        rows: The queries to be searched for.
        consume: Called with rows and their neighbours.
        filter: Rules pairs out before their products are computed.
        wanted: Neighbours of each query, at most k; without it, k.
        order: The items in the order in which they are laid out, which all else here follows but `queries`,
            `references` and what is consumed; without it, their own.
        overflowed: Rows whose shortlist was too short, as `queries` counts them, and their bars.
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
        """The references, laid out when the first thread asks."""
        with self.lock:
            return self._right

    @cached_property
    def _right(self) -> BoundedLayout:
        return self.lay()

    def shortlist(self, rows: Int64[Tensor, " r"]) -> Shortlist:
        """An empty shortlist with room for the neighbours and for those too close to them to tell."""
        room = max(8, self.k // 4) if self.left.precision == "float32" else max(16, self.k)
        capacity = min(self.k + room, len(self.references))
        wanted = None if self.wanted is None else self.wanted[rows]
        return Shortlist(self.width[rows], self.k, capacity, self.left.precision, wanted)

    def named(self, index: Int64[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """Items by their number in `queries` and `references`; -1 stays."""
        return index if self.order is None else self.order[index.clamp(min=0)].where(index >= 0, -1)

    def block(self, rows: Int64[Tensor, " r"], columns: slice) -> Float32[Tensor, "r c"]:
        """The products of `rows` with some references, minus infinity where excluded.

        They are overwritten by the next block of the same thread.
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
        """The pairs of a block that may clear a bar, by their place in it, and their products.

        Args:
            rows: Of the block, without a gap.
            columns: Of the block.
            mine: The list of the rows.
            theirs: The list of the columns, if they want neighbours too.

        Returns:
            None where the whole block is cheaper.
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
        found = ~self.exclusion.covers(rows[row], column + columns.start)
        return row[found], column[found], values[found]

    def sampled(
        self, rows: Int64[Tensor, " r"], columns: slice, row: Int64[Tensor, " m"], column: Int64[Tensor, " m"]
    ) -> Float32[Tensor, " m"]:
        """The products of some pairs of a block, which are given by their places in it, along its rows."""
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
        """Have torch say now, unheard, what it says once in a process: that sparse tensors may change."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*Sparse CSR.*")
            torch.eye(1).to_sparse_csr()

    def _left(self, rows: Int64[Tensor, " r"]) -> Tensor:
        """The left-hand side of `rows`, kept while the thread asks for the same ones."""
        if getattr(self.scratch, "rows", None) is not rows:
            self.scratch.rows, self.scratch.left = rows, self.left.left(rows)
        return self.scratch.left
