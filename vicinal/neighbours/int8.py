"""Products of 8-bit rows, and a filter based on them that rules out references that cannot be among the nearest.

A pair whose filter product is below the bars of both its items needs no float32 product; the few others get one. The
filter decides nothing else, so the neighbours are exactly the same as without it.

Formula:
    With c and h as in layout.py and ĉ = step * (integers of at most 90), Cauchy-Schwarz gives

        c . c' + h + h'  <=  ĉ . ĉ' + u + u',    u = h + |c - ĉ| longest + rounding,

    where `longest` is at least every |c| and |ĉ| of the other side, and |c - ĉ| is measured, so that clipping
    (which makes the step small) is accounted for. Items differ in u: that of the column is the bias of the
    integer product, that of the row lowers its bar.

Exactness:
    The products are exact except for their rounding to 256 levels, which span the bars of the block. Hence a bar
    counts as one level lower than it is. A product above the last level clears every bar, and the lowest threshold
    is above the first level.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int8, Int32, Int64
from torch import Tensor

from vicinal.neighbours.layout import LOWEST, PADDING, heights
from vicinal.neighbours.similarity import Vectors, chunks, rounding_error
from vicinal.neighbours.threads import side_by_side

__all__ = [
    "FEWEST_COLUMNS",
    "FINEST",
    "LARGEST",
    "LEVELS",
    "Int8Filter",
    "PlainBlock",
    "Side",
    "best_step",
    "code",
    "int8_filter",
    "int8_is_fast",
    "int8_works",
    "int32_is_fast",
    "int32_works",
    "multiply",
    "multiply_exactly",
    "pack",
    "unpack",
]


# Products of 8-bit integers, rounded to 256 levels, with the quantised operators of torch.
#
# Exactness:
#     x86 processors without VNNI multiply unsigned by signed bytes and add two products in 16 bits, which can
#     saturate. The left side is stored as integer + 90, from 0 to 180, and 2 * 180 * 90 < 2^15, so nothing
#     saturates; the sums of up to 2^16 columns fit 32 bits. Only the result is rounded, to 256 levels: by half a level,
#     and by much less in float32, provided that a level is at least 2^-14 of the numbers involved. (The result also
#     passes through 16 bits, where it saturates far outside of the levels.)
#
# The operators are old, and torch may drop or change them. So they are tested once, on products whose exact values are
# known. If anything is wrong, `int8_works` returns False and everything is computed in float32: slower, but with the
# same result.

Levels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

ENGINE = "fbgemm"
LARGEST = 90  # 2 * (2 * 90) * 90 < 2^15
LEVELS = 250
FINEST = 2.0**-14  # smallest level, relative to the numbers involved
ONE_AT_A_TIME = RLock()  # the engine is a setting of the whole process


def pack(integers: Int8[Tensor, "m d"], step: float, bias: Float64[Tensor, " m"]) -> Any:
    """Pack the right-hand side of `multiply`: vectors `step * integers`, and a bias to add to their products."""
    with ONE_AT_A_TIME, _engine():
        wrapped = torch._make_per_tensor_quantized_tensor(integers, step, 0)
        return torch.ops.quantized.linear_prepack(wrapped, bias.float())


def unpack(packed: Any) -> tuple[Int8[Tensor, "m d"], Float64[Tensor, " m"]]:
    """Return the integers and the bias that were packed; the bias is rounded to float32."""
    wrapped, bias = torch.ops.quantized.linear_unpack(packed)
    return wrapped.int_repr(), bias.double()


def multiply(integers: Int8[Tensor, "r d"], step: float, packed: Any, level: float, zero: int) -> Levels:
    """Return the products of `step * integers` with packed vectors, as `zero + product / level`, from 0 to 255."""
    left = (integers + LARGEST).view(torch.uint8)
    wrapped = torch._make_per_tensor_quantized_tensor(left, step, LARGEST)
    product = torch.ops.quantized.linear(wrapped, packed, level, zero)
    plain = torch.empty(0, dtype=torch.uint8)
    return plain.set_(product.untyped_storage(), 0, product.shape, product.stride()).numpy()


@cache
def int8_works() -> bool:
    """Return whether this torch multiplies 8-bit integers as the bound requires; tested once per process."""
    generator = torch.Generator().manual_seed(0)
    try:
        with _quietly():
            return all(_as_required(dimensions, generator) for dimensions in (1, 31, 512))
    except Exception:  # whatever a newer torch raises, there is another method
        return False


def int8_is_fast() -> bool:
    """Return whether this processor and this torch multiply 8-bit integers faster than float32."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx2")) and int8_works()


def _as_required(dimensions: int, generator: torch.Generator) -> bool:
    """Test integers at the ends of the range, where 16 bits would saturate, and random ones, with steps and a bias."""
    left, right = (torch.randint(-LARGEST, LARGEST + 1, (33, dimensions), generator=generator) for _ in range(2))
    left[:9], right[:9] = LARGEST, LARGEST
    left[9:12], right[9:12] = -LARGEST, -LARGEST
    bias = torch.rand(33, generator=generator, dtype=torch.float64) - 0.5
    steps = 2.0**-7, 0.75 * 2.0**-8
    exact = (left @ right.T).double() * (steps[0] * steps[1]) + bias
    packed = pack(right.to(torch.int8), steps[1], bias)
    reach = float(exact.abs().max())
    for level in (reach / 100, reach / 2000):
        got = torch.from_numpy(multiply(left.to(torch.int8), steps[0], packed, level, 128)).double()
        wanted = (exact / level + 128).clamp(0, 255)
        if bool(((got - wanted).abs() > 0.51).any()):
            return False
    return True


@contextmanager
def _engine() -> Iterator[None]:
    """Select the engine whose arithmetic the bound describes, and restore the user's choice afterwards."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress torch's once-per-process warnings that quantised and sparse tensors may change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*(quantize|Sparse CSR).*")
        torch._make_per_tensor_quantized_tensor(torch.zeros(1, dtype=torch.uint8), 1.0, 0)
        torch.eye(1).to_sparse_csr()
        yield


# Exact products of 8-bit integers in 32 bits, with the instructions that newer processors have for them (VNNI).
#
# The integers are stored unpacked, in two halves of their columns: they can be read directly from a file, and the first
# half alone already rules out most references (see `search_few` in exact.py).
#
# Older processors would add in 16 bits, which saturate, or multiply one number at a time. So the operator is used only
# if the processor has the instructions, and is tested once, on products whose values are known. Otherwise the packed
# products above are used, or else float32: each slower, all with the same result.

INSTRUCTIONS = ("avx512_vnni", "avx_vnni", "amx_int8")
FEWEST_COLUMNS = 16  # smallest dimension of integer vectors; with one column, torch 2.13 returns wrong numbers
PRODUCTS = 1 << 18  # products computed at a time: they stay in the cache until they are compared
AT_ONCE = 64  # queries multiplied at a time


@dataclass(frozen=True)
class PlainBlock:
    """Integers of some references, and the bias to add to their products.

    Args:
        head: First half of the columns.
        tail: Second half of the columns.
        tail_length: Upper bound of the length of each tail, in integer units.
        bias: Bias to add to a product.
    """

    head: Int8[Tensor, "c h"]
    tail: Int8[Tensor, "c t"]
    tail_length: Float32[Tensor, " c"]
    bias: Float32[Tensor, " c"]

    @classmethod
    def of(cls, integers: Int8[Tensor, "c d"], bias: Float64[Tensor, " c"]) -> PlainBlock:
        """Lay out the integers of some references."""
        half = integers.shape[1] // 2
        tail = integers[:, half:].contiguous()
        length = tail.float().norm(dim=1) * (1 + 2.0**-20)  # float32 may round down
        return cls(integers[:, :half].contiguous(), tail, length, bias.float())

    def __len__(self) -> int:
        return len(self.bias)

    @property
    def integers(self) -> Int8[Tensor, "c d"]:
        """Both halves together, as a copy."""
        return torch.cat([self.head, self.tail], dim=1)

    def clear(
        self, integers: Int8[Tensor, "r d"], step: float, bars: Float64[Tensor, " r"], most: float
    ) -> tuple[Int64[Tensor, " hits"], Int64[Tensor, " hits"]] | None:
        """Return the pairs whose `step * product + bias` is not below the bar: positions in the rows and in the block.

        Args:
            integers: Integers of some queries.
            step: Value of one unit of a product.
            bars: Bar of each query, lowered to allow for a few roundings in float32.
            most: Largest number of pairs; with more, None is returned.
        """
        rows, columns, count = [], [], 0
        lowest = bars.float()
        wide = max(1, PRODUCTS // AT_ONCE)
        half = self.head.shape[1]
        for first in range(0, len(integers), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            left, right = integers[some, :half].contiguous(), integers[some, half:].contiguous()
            for start in range(0, len(self), wide):
                here = slice(start, start + wide)
                products = multiply_exactly(left, self.head[here]).add_(multiply_exactly(right, self.tail[here]))
                bounds = torch.add(self.bias[here], products, alpha=step)
                hits = np.flatnonzero((bounds >= lowest[some, None]).numpy())
                count += len(hits)
                if count > most:
                    return None
                row, column = np.divmod(hits, bounds.shape[1])
                rows.append(row + first)
                columns.append(column + start)
        return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(columns))


def multiply_exactly(left: Int8[Tensor, "r d"], right: Int8[Tensor, "c d"]) -> Int32[Tensor, "r c"]:
    """Return the inner products of all pairs."""
    return torch._int_mm(left, right.T)


@cache
def int32_works() -> bool:
    """Return whether this torch multiplies 8-bit integers exactly; tested once per process."""
    generator = torch.Generator().manual_seed(0)
    try:
        for rows, dimensions in ((1, 8), (1, 31), (5, 9), (AT_ONCE, 64), (33, 512)):
            sides = [torch.randint(-90, 91, (count, dimensions), generator=generator) for count in (rows, 37)]
            for side, extreme in zip(sides, (90, -90), strict=True):
                side[: len(side) // 2] = extreme  # where 16 bits would saturate
            products = multiply_exactly(sides[0].to(torch.int8), sides[1].to(torch.int8))
            if not torch.equal(products.long(), sides[0] @ sides[1].T):
                return False
    except Exception:  # whatever a newer torch raises, there is another method
        return False
    return True


def int32_is_fast() -> bool:
    """Return whether this processor has instructions for such products, and this torch computes them correctly."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in INSTRUCTIONS) and int32_works()


# The filter for self-retrieval.

SAMPLE = 512  # number of rows that determine the step
CLIPS = 2.0 ** -(torch.arange(13, dtype=torch.float64) / 4)  # shares of the largest entry: from all of it to an eighth
MOST_HITS = 1 / 32  # share of the pairs of a block; with more hits, its float32 products are cheaper
PATIENCE = 4  # the filter is no longer used once it has failed for this many more blocks than it helped


@dataclass(frozen=True)
class Side:
    """Integers of some vectors, and the amounts to add to their products.

    Args:
        integers: ĉ / step; zeros in the padding.
        excess: u.
    """

    integers: Int8[Tensor, "padded d"]
    excess: Float64[Tensor, " n"]


class Int8Filter:
    """Finds the pairs of a block that may clear a bar; several threads may use it.

    Args:
        left: Queries.
        right: References.
        step: Value of one integer unit, on both sides.
        block: Number of columns of a block.
    """

    def __init__(self, left: Side, right: Side, step: float, block: int) -> None:
        self.left, self.step, self.block = left, step, block
        self.least, self.most = float(left.excess.min()), float(left.excess.max())
        self.size = step * step + float(left.excess.abs().max() + right.excess.abs().max())
        self.misses = 0
        starts = range(0, len(right.integers), block)
        bias = torch.nn.functional.pad(right.excess, (0, len(right.integers) - len(right.excess)))
        self.packed = side_by_side(
            lambda start: pack(right.integers[start : start + block], step, bias[start : start + block]), starts
        )

    def hits(
        self, rows: slice, start: int, bars: Float32[Tensor, " r"], column_bars: Float32[Tensor, " c"]
    ) -> Int64[Tensor, " hits"] | None:
        """Return the flat indices of the pairs of a block that may clear the bar of their row or their column.

        Args:
            rows: Rows of the block.
            start: First column of the block, a multiple of the block size.
            bars: Bar of each row, infinite for padding.
            column_bars: Bar of each column; all infinite if only the rows matter.

        Returns:
            The indices; None if a bar is not set yet, or if there are so many hits that the filter saves no time.
        """
        if self.misses > PATIENCE:
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
            self.misses -= 1
            return torch.empty(0, dtype=torch.int64)
        thresholds = np.minimum(of_rows[:, None], of_columns)
        np.subtract(thresholds, lowering, out=thresholds)
        clear = np.greater_equal(products, thresholds, out=thresholds.view(bool))
        count = int(np.count_nonzero(clear))
        if count > MOST_HITS * clear.size:
            self.misses += 1
            return None
        self.misses -= 1
        return torch.from_numpy(np.flatnonzero(clear))

    def _products(self, rows: slice, start: int, level: float, zero: int) -> Levels:
        return multiply(self.left.integers[rows], self.step, self.packed[start // self.block], level, zero)


@dataclass(frozen=True)
class Coded:
    """Vectors as integers, and the errors that this causes.

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
    """Lay out items that are searched among themselves, with `mean` subtracted.

    Returns:
        The filter; None if all points are identical, or if torch does not multiply 8-bit integers correctly.
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
    """Return the step with the smallest squared residual over some rows; 0 if all points are identical."""
    some = torch.linspace(0, len(vectors) - 1, min(SAMPLE, len(vectors))).long()
    moved = vectors.scaled(some).sub_(mean)
    steps = moved.abs().max() / LARGEST * CLIPS
    if not bool(steps[-1] > 0):
        return 0.0
    errors = [(_rounded(moved, float(step)) * step - moved).square_().sum() for step in steps]
    return float(steps[int(torch.stack(errors).argmin())])


def code(vectors: Vectors, part: slice, mean: Float64[Tensor, " d"], step: float) -> Coded:
    """Round some rows to integers."""
    moved = vectors.scaled(part).sub_(mean)
    height = heights(moved, mean, vectors.distance)
    rounded = _rounded(moved, step)
    integers = rounded.to(torch.int8)
    rounded *= step
    length = torch.maximum(moved.norm(dim=1), rounded.norm(dim=1))
    return Coded(integers, height, moved.sub_(rounded).norm(dim=1), length)


def _rounded(values: Float64[Tensor, "n d"], step: float) -> Float64[Tensor, "n d"]:
    return (values / step).round_().clamp_(-LARGEST, LARGEST)
