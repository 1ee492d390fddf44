"""Products of 8-bit integers that are never less than the similarity, to rule most pairs out at half the price.

A pair whose filter product is under the bar of both its items needs no float32 product; the few others get one. The
filter decides nothing else, so the neighbours stay exactly what they are without it.

Formula:
    With c and h as in layout.py and ĉ = step * (integers of at most 90), Cauchy-Schwarz gives

        c . c' + h + h'  <=  ĉ . ĉ' + u + u',    u = h + |c - ĉ| longest + rounding,

    where `longest` is at least every |c| and |ĉ| of the other side, and |c - ĉ| is measured, so that clipping
    (which makes the step small) is accounted for. Items differ in u: that of the column is the bias of the
    integer product, that of the row lowers its bar.

Exactness:
    The products are exact but for their rounding to 256 levels (int8_products.py), which span the bars of the
    block. Hence a bar counts as one level lower than it is. What is above the last level clears every bar, and
    the lowest threshold is above the first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int8, Int64
from torch import Tensor

from vicinal.neighbours.int8_products import FINEST, LARGEST, LEVELS, Levels, int8_works, multiply, pack
from vicinal.neighbours.layout import LOWEST, PADDING, heights
from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.similarity import Vectors, chunks, rounding_error

__all__ = ["Coded", "Int8Filter", "Side", "best_step", "code", "int8_filter"]

SAMPLE = 512  # rows that choose the step
CLIPS = 2.0 ** -(torch.arange(13, dtype=torch.float64) / 4)  # of the largest entry: from all of it to an eighth
MOST_HITS = 1 / 32  # of a block: beyond, its float32 products are cheaper
PATIENCE = 4  # blocks in vain, more than not, until the filter is given up


@dataclass(frozen=True)
class Side:
    """The integers of some vectors, and what to add to their products.

    Args:
        integers: ĉ / step; zeros in the padding.
        excess: u.
    """

    integers: Int8[Tensor, "padded d"]
    excess: Float64[Tensor, " n"]


class Int8Filter:
    """Finds the pairs of a block that may clear a bar; several threads may ask.

    Args:
        left: The queries.
        right: The references.
        step: What one integer stands for, on both sides.
        block: Columns of a block.
    """

    def __init__(self, left: Side, right: Side, step: float, block: int) -> None:
        self.left, self.step, self.block = left, step, block
        self.least, self.most = float(left.excess.min()), float(left.excess.max())
        self.size = step * step + float(left.excess.abs().max() + right.excess.abs().max())
        self.in_vain = 0
        starts = range(0, len(right.integers), block)
        bias = torch.nn.functional.pad(right.excess, (0, len(right.integers) - len(right.excess)))
        self.packed = side_by_side(
            lambda start: pack(right.integers[start : start + block], step, bias[start : start + block]), starts
        )

    def hits(
        self, rows: slice, start: int, bars: Float32[Tensor, " r"], column_bars: Float32[Tensor, " c"]
    ) -> Int64[Tensor, " hits"] | None:
        """Where, counted along its rows, a pair of the block may clear the bar of its row or its column.

        Args:
            rows: Of the block.
            start: Its first column, a multiple of the block size.
            bars: One for each row, infinite for padding.
            column_bars: One for each column; all infinite if only the rows matter.

        Returns:
            None if a bar is not set yet, or if there are so many hits that the filter does not pay.
        """
        if self.in_vain > PATIENCE:
            return None
        every = torch.cat([bars, column_bars])
        every = every[every < torch.inf].double()
        if not len(every):
            return torch.empty(0, dtype=torch.int64)
        low, high = float(every.min()), float(every.max())
        if low == LOWEST:
            return None
        spread = self.most - self.least
        level = max((high - low + spread) / LEVELS, (abs(low) + abs(high) + self.size) * FINEST)
        lowering = np.ceil((self.left.excess[rows].numpy() - self.least) / level)
        lowering = np.pad(lowering, (0, len(bars) - len(lowering))).astype(np.uint8)[:, None]
        zero = int(np.ceil(spread / level)) + 2 - int(np.floor((low - self.least) / level))
        products = self._products(rows, start, level, zero)
        of_rows, of_columns = (
            ((side.double() - self.least) / level).floor().add(zero - 1).clamp(max=255).numpy().astype(np.uint8)
            for side in (bars, column_bars)
        )
        if int(products.max()) < int(min(of_rows.min(), of_columns.min())) - int(lowering.max()):
            self.in_vain -= 1
            return torch.empty(0, dtype=torch.int64)
        thresholds = np.minimum(of_rows[:, None], of_columns)
        np.subtract(thresholds, lowering, out=thresholds)
        clear = np.greater_equal(products, thresholds, out=thresholds.view(bool))
        many = int(np.count_nonzero(clear))
        if many > MOST_HITS * clear.size:
            self.in_vain += 1
            return None
        self.in_vain -= 1
        return torch.from_numpy(np.flatnonzero(clear))

    def _products(self, rows: slice, start: int, level: float, zero: int) -> Levels:
        return multiply(self.left.integers[rows], self.step, self.packed[start // self.block], level, zero)


@dataclass(frozen=True)
class Coded:
    """Vectors as integers, and what that costs.

    Args:
        integers: ĉ / step.
        height: h.
        residual: |c - ĉ|.
        length: The larger of |c| and |ĉ|.
    """

    integers: Int8[Tensor, "n d"]
    height: Float64[Tensor, " n"]
    residual: Float64[Tensor, " n"]
    length: Float64[Tensor, " n"]


def int8_filter(items: Vectors, mean: Float64[Tensor, " d"], block: int) -> Int8Filter | None:
    """Lay out items that are searched in themselves, with `mean` taken off.

    Returns:
        None for points that are all the same, and where torch does not multiply 8-bit integers as it should.
    """
    step = best_step(items, mean) if int8_works() else 0.0
    if not step:
        return None
    integers = torch.zeros(len(items) + -len(items) % PADDING, len(mean), dtype=torch.int8)
    height, residual, length = (torch.empty(len(items), dtype=torch.float64) for _ in range(3))

    def lay(part: slice) -> None:
        coded = code(items, part, mean, step)
        integers[part], height[part], residual[part], length[part] = (
            coded.integers,
            coded.height,
            coded.residual,
            coded.length,
        )

    side_by_side(lay, chunks(items.rows))
    side = Side(integers, height + residual * length.max() + 2 * rounding_error(len(mean)))
    return Int8Filter(side, side, step, block)


def best_step(vectors: Vectors, mean: Float64[Tensor, " d"]) -> float:
    """The step with the smallest squared residual over some rows; 0 for points that are all the same."""
    some = torch.linspace(0, len(vectors) - 1, min(SAMPLE, len(vectors))).long()
    moved = vectors.scaled(some).sub_(mean)
    steps = moved.abs().max() / LARGEST * CLIPS
    if not bool(steps[-1] > 0):
        return 0.0
    errors = [(_rounded(moved, float(step)) * step - moved).square_().sum() for step in steps]
    return float(steps[int(torch.stack(errors).argmin())])


def code(vectors: Vectors, part: slice, mean: Float64[Tensor, " d"], step: float) -> Coded:
    """Some rows as integers."""
    moved = vectors.scaled(part).sub_(mean)
    height = heights(moved, mean, vectors.distance)
    rounded = _rounded(moved, step)
    integers = rounded.to(torch.int8)
    rounded *= step
    length = torch.maximum(moved.norm(dim=1), rounded.norm(dim=1))
    return Coded(integers, height, moved.sub_(rounded).norm(dim=1), length)


def _rounded(values: Float64[Tensor, "n d"], step: float) -> Float64[Tensor, "n d"]:
    return (values / step).round_().clamp_(-LARGEST, LARGEST)
