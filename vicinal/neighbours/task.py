"""What the threads of one search share, and the products they ask for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from threading import Lock, local
from typing import TypeAlias

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from vicinal.neighbours.exclusion import Exclusion
from vicinal.neighbours.int8_filter import Int8Filter
from vicinal.neighbours.layout import BoundedLayout
from vicinal.neighbours.shortlist import Shortlist
from vicinal.neighbours.similarity import Vectors

__all__ = ["Consume", "Progress", "Task"]

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
