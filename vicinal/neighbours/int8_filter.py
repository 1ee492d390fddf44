"""Products of 8-bit integers that are never less than the similarity, to rule most pairs out at half the price.

A pair whose sieve product is under the bar of both its items needs no float32 product; the few others get one. The
sieve decides nothing else, so the neighbours stay exactly what they are without it.

Formula:
    With c and h as in panel.py and ĉ = step * (integers of at most 90), Cauchy-Schwarz gives

        c . c' + h + h'  <=  ĉ . ĉ' + u + u',    u = h + |c - ĉ| longest + rounding,

    where `longest` is at least every |c| and |ĉ| of the other side, and |c - ĉ| is measured, so that clipping
    (which makes the step small) is accounted for. Items differ in u: that of the column is the bias of the
    integer product, that of the row lowers its bar.

Exactness:
    x86 processors without VNNI multiply unsigned by signed bytes and add two products in 16 bits, which
    saturate. The left side is stored as integer + 90, from 0 to 180, and 2 * 180 * 90 < 2^15, so that nothing
    does; the sums of up to 2^16 columns fit 32 bits. Only the result is rounded, to 256 levels that span the
    bars of the block: by half a level, and by much less in float32, since a level is at least 2^-14 of the
    numbers around. (It also passes through 16 bits there, saturating, far outside of the levels.) Hence a bar
    counts as one level lower than it is. What is above the last level clears every bar, and the lowest
    threshold is above the first.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int8, Int64
from torch import Tensor

from vicinal.neighbours.layout import LOWEST, PADDING, heights
from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.similarity import Vectors, chunks, rounding_error

__all__ = ["Sieve", "sieve", "sieve_is_fast"]

ENGINE = "fbgemm"
LARGEST = 90  # 2 * (2 * 90) * 90 < 2^15
LEVELS = 250
FINEST = 2.0**-14  # level, relative to the numbers around
SAMPLE = 512  # rows that choose the step
CLIPS = 2.0 ** -(torch.arange(13, dtype=torch.float64) / 4)  # of the largest entry: from all of it to an eighth
MOST_HITS = 1 / 32  # of a block: beyond, its float32 products are cheaper
PATIENCE = 4  # blocks in vain, more than not, until the sieve is given up


@dataclass(frozen=True)
class Side:
    """The integers of some vectors, and what to add to their products.

    Args:
        integers: ĉ / step; zeros in the padding.
        excess: u.
    """

    integers: Int8[Tensor, "padded d"]
    excess: Float64[Tensor, " n"]


class Sieve:
    """Finds the pairs of a block that may clear a bar; several threads may ask.

    Args:
        left: The queries.
        right: The references.
        step: What one integer stands for, on both sides.
        block: Columns of a block.
    """

    def __init__(self, left: Side, right: Side, step: float, block: int) -> None:
        self.left, self.unit, self.block = left, step * step, block
        self.least, self.most = float(left.excess.min()), float(left.excess.max())
        self.size = self.unit + float(left.excess.abs().max() + right.excess.abs().max())
        self.in_vain = 0
        starts = range(0, len(right.integers), block)
        with _quietly(), _engine():
            self.packed = side_by_side(lambda start: self._pack(right, slice(start, start + block)), starts)

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
            None if a bar is not set yet, or if there are so many hits that the sieve does not pay.
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
        thresholds = np.minimum(of_rows[:, None], of_columns)
        np.subtract(thresholds, lowering, out=thresholds)
        clear = np.greater_equal(products, thresholds, out=thresholds.view(bool))
        many = int(np.count_nonzero(clear))
        if many > MOST_HITS * clear.size:
            self.in_vain += 1
            return None
        self.in_vain -= 1
        return torch.from_numpy(np.flatnonzero(clear))

    def _products(self, rows: slice, start: int, level: float, zero: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        left = (self.left.integers[rows] + LARGEST).view(torch.uint8)
        wrapped = torch._make_per_tensor_quantized_tensor(left, 1.0, LARGEST)
        found = torch.ops.quantized.linear(wrapped, self.packed[start // self.block], level / self.unit, zero)
        plain = torch.empty(0, dtype=torch.uint8)
        return plain.set_(found.untyped_storage(), 0, found.shape, found.stride()).numpy()

    def _pack(self, right: Side, columns: slice) -> Any:
        integers = right.integers[columns]
        bias = torch.zeros(len(integers))
        excess = right.excess[columns]
        bias[: len(excess)] = excess / self.unit
        wrapped = torch._make_per_tensor_quantized_tensor(integers, 1.0, 0)
        return torch.ops.quantized.linear_prepack(wrapped, bias)


def sieve_is_fast() -> bool:
    """Whether this processor and this torch multiply 8-bit integers faster than float32."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    known = hasattr(torch, "_make_per_tensor_quantized_tensor") and ENGINE in torch.backends.quantized.supported_engines
    return known and bool(capabilities.get("avx2"))


def sieve(queries: Vectors, references: Vectors, mean: Float64[Tensor, " d"], block: int) -> Sieve | None:
    """Lay out both sides, with `mean` taken off; None for points that are all the same."""
    step = _best_step(references, mean)
    if not step:
        return None
    sides = [references] if queries is references else [queries, references]
    laid = [_lay(side, mean, step) for side in sides]
    longest = [float(length.max()) for *_, length in laid]
    longest.reverse()  # that of the other side
    made = [
        Side(integers, offset + residual * other + 2 * rounding_error(len(mean)))
        for (integers, offset, residual, _), other in zip(laid, longest, strict=True)
    ]
    return Sieve(made[0], made[-1], step, block)


def _best_step(vectors: Vectors, mean: Float64[Tensor, " d"]) -> float:
    """The step with the smallest squared residual over some rows."""
    some = torch.linspace(0, len(vectors) - 1, min(SAMPLE, len(vectors))).long()
    moved = vectors.scaled(some).sub_(mean)
    steps = moved.abs().max() / LARGEST * CLIPS
    if not bool(steps[-1] > 0):
        return 0.0
    errors = [(_rounded(moved, float(step)) * step - moved).square_().sum() for step in steps]
    return float(steps[int(torch.stack(errors).argmin())])


def _lay(vectors: Vectors, mean: Float64[Tensor, " d"], step: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The integers; h, |c - ĉ| and the larger of |c| and |ĉ| of each row."""
    n, d = vectors.rows.shape
    integers = torch.zeros(n + -n % PADDING, d, dtype=torch.int8)
    offset, residual, length = (torch.empty(n, dtype=torch.float64) for _ in range(3))

    def lay(here: slice) -> None:
        moved = vectors.scaled(here).sub_(mean)
        offset[here] = heights(moved, mean, vectors.distance)
        rounded = _rounded(moved, step)
        integers[here] = rounded
        rounded *= step
        length[here] = torch.maximum(moved.norm(dim=1), rounded.norm(dim=1))
        residual[here] = moved.sub_(rounded).norm(dim=1)

    side_by_side(lay, chunks(vectors.rows))
    return integers, offset, residual, length


def _rounded(values: Float64[Tensor, "n d"], step: float) -> Float64[Tensor, "n d"]:
    return (values / step).round_().clamp_(-LARGEST, LARGEST)


@contextmanager
def _engine() -> Iterator[None]:
    """Pack for the one engine whose arithmetic the bound is about, whichever the user has chosen."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


@contextmanager
def _quietly() -> Iterator[None]:
    """Torch warns once in a process that quantised and sparse tensors may change; have it do so here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*(quantize|Sparse CSR).*")
        torch._make_per_tensor_quantized_tensor(torch.zeros(1, dtype=torch.uint8), 1.0, 0)
        torch.eye(1).to_sparse_csr()
        yield
