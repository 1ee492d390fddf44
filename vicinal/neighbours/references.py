"""References prepared once for many searches: laid out, rounded to 8 bits, and saved to a file.

Formula:
    As in int8.py, but the bias of a reference must not depend on the queries. With any fixed length L,

        c . c' + h + h'  <=  ĉ . ĉ' + u + u'
        u  = h + |c - ĉ| longest' + max(0, |ĉ| - L) worst' + rounding      of the query
        u' = h' + |c' - ĉ'| L                                              of the reference, the bias

    where longest' is at least every |c'| and worst' at least every |c' - ĉ'|: for (c - ĉ) . c' is at most
    |c - ĉ| longest', and ĉ . (c' - ĉ') is at most |ĉ| |c' - ĉ'|, which is at most L |c' - ĉ'| plus the excess of |ĉ|
    over L, times worst'. L is the length of a typical reference, so the bound is tight for queries that resemble the
    references. Each side has its own step: queries may have any length.

A scan reads 1 byte per number instead of 4, which determines the time for a few queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int8, Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.int8 import (
    FEWEST_COLUMNS,
    FINEST,
    LEVELS,
    MOST_HITS,
    PlainBlock,
    best_step,
    code,
    int8_is_fast,
    int32_is_fast,
    multiply,
    pack,
    unpack,
)
from vicinal.neighbours.layout import LOWEST, PADDING, BoundedLayout, Bounds, centre, lay_out
from vicinal.neighbours.similarity import Vectors, chunks, rounding_error
from vicinal.neighbours.threads import side_by_side

__all__ = [
    "CodedQueries",
    "Int8References",
    "Pilot",
    "PreparedReferences",
    "as_arrays",
    "from_arrays",
    "int8_references",
    "pilot",
    "prepare",
]


WIDTH = 1 << 16  # references in a block: with fewer, one query spends more time on calls than on products
PRODUCTS = 1 << 21  # products computed at a time: more would not fit the cache
TYPICAL = 4096  # size of the sample of references whose median length is L


@dataclass(frozen=True)
class CodedQueries:
    """Queries as integers.

    Args:
        integers: ĉ / step.
        step: Value of one integer unit.
        excess: u.
        length: The larger of |c| and |ĉ|.
    """

    integers: Int8[Tensor, "n d"]
    step: float
    excess: Float64[Tensor, " n"]
    length: Float64[Tensor, " n"]


@dataclass
class Int8References:
    """The integers of all references, and the norms that the bound of a query needs.

    Args:
        blocks: Integers and biases of each block: plain if the processor multiplies these fast, else packed.
        columns: References of each block.
        step: Value of one integer unit.
        typical: L.
        longest: Upper bound of every |c'|.
        highest: Upper bound of every |h'|.
        worst: Upper bound of every |c' - ĉ'|.
        largest_bias: Upper bound of every |u'|.
        misses: Number of single queries that needed more than the first half of all integers, minus those that did
            not.
    """

    blocks: list[Any]
    columns: list[slice]
    step: float
    typical: float
    longest: float
    highest: float
    worst: float
    largest_bias: float
    misses: int = 0

    def coded(self, queries: Vectors, mean: Float64[Tensor, " d"]) -> CodedQueries:
        """Prepare queries for `hits`; `mean` is that of the references."""
        step = best_step(queries, mean) or self.step  # if all queries equal the mean, any step codes them as zeros
        parts = side_by_side(lambda part: code(queries, part, mean, step), chunks(queries.rows))
        excess = [
            part.height
            + part.residual * self.longest
            + (part.length - self.typical).clamp(min=0.0) * self.worst
            + 2 * rounding_error(len(mean))
            for part in parts
        ]
        length = torch.cat([part.length for part in parts])
        return CodedQueries(torch.cat([part.integers for part in parts]), step, torch.cat(excess), length)

    def hits(
        self, queries: CodedQueries, rows: Int64[Tensor, " r"], block: int, bars: Float32[Tensor, " r"]
    ) -> tuple[Int64[Tensor, " hits"], Int64[Tensor, " hits"]] | None:
        """Return the pairs of some queries and a block of references that may clear the bar of the query.

        Args:
            queries: All queries.
            rows: Indices of the queries to compare.
            block: Number of the block.
            bars: Bar of each row; `LOWEST` if it has none yet.

        Returns:
            Positions in `rows` in ascending order, and references; None if there are so many pairs that computing all
            products of the block, which must be laid out first, is cheaper than comparing pair by pair.
        """
        columns = self.columns[block]
        across = columns.stop - columns.start
        most = across * max(1.0, len(rows) * MOST_HITS)
        if self.plain:
            if bool((bars <= LOWEST).all()):
                return None
            return self._plain_hits(queries, rows, block, bars, most)
        some = max(1, PRODUCTS // across)
        parts, count = [], 0
        for start in range(0, len(rows), some):
            clear = self._clear(queries, rows[start : start + some], block, bars[start : start + some])
            flat = torch.from_numpy(np.flatnonzero(clear.numpy()))
            count += len(flat)
            if count > most:
                return None
            parts.append(flat + start * across)
        flat = torch.cat(parts)
        position = flat.div(across, rounding_mode="floor")
        return position, flat - position * across + columns.start

    def _clear(
        self, queries: CodedQueries, rows: Int64[Tensor, " r"], block: int, bars: Float32[Tensor, " r"]
    ) -> Bool[Tensor, "r c"]:
        """Return where a product, rounded to levels, is not certain to be below the bar."""
        integers = queries.integers[rows]
        lowered = bars.double() - queries.excess[rows]
        is_set = bars > LOWEST
        low, high = (float(end) for end in lowered[is_set].aminmax()) if bool(is_set.any()) else (0.0, 0.0)
        size = queries.step * self.step + self.largest_bias
        level = max((high - low) / LEVELS, (abs(low) + abs(high) + size) * FINEST)
        zero = 2 - int(np.floor(low / level))
        thresholds = (lowered / level).floor().add(zero - 1).where(is_set, torch.zeros(())).to(torch.uint8)
        products = multiply(integers, queries.step, self.blocks[block], level, zero)
        return torch.from_numpy(products >= thresholds.numpy()[:, None])

    @property
    def plain(self) -> bool:
        """Whether the integers are stored as they are."""
        return isinstance(self.blocks[0], PlainBlock)

    def slack(self, queries: CodedQueries) -> Float64[Tensor, " n"]:
        """Return more than the total rounding error of a product and its bias in float32."""
        return (queries.length * (self.longest + self.worst) + self.largest_bias) * 2.0**-20

    def _plain_hits(
        self, queries: CodedQueries, rows: Int64[Tensor, " r"], block: int, bars: Float32[Tensor, " r"], most: float
    ) -> tuple[Int64[Tensor, " hits"], Int64[Tensor, " hits"]] | None:
        lowered = bars.double() - queries.excess[rows] - self.slack(queries)[rows]
        step = queries.step * self.step
        pairs = self.blocks[block].clear(queries.integers[rows], step, lowered, most)
        if pairs is None:
            return None
        row, column = pairs
        order = row.argsort(stable=True)
        return row[order], column[order] + self.columns[block].start


def int8_references(references: Vectors, mean: Float64[Tensor, " d"], width: int = WIDTH) -> Int8References | None:
    """Lay out references with `mean` subtracted, `width` to a block; None if all points are identical."""
    step = best_step(references, mean)
    if not step:
        return None
    sample = torch.linspace(0, len(references) - 1, min(TYPICAL, len(references)), dtype=torch.float64).long()
    typical = float(references.scaled(sample).sub_(mean).norm(dim=1).median())
    columns = [slice(start, min(start + width, len(references))) for start in range(0, len(references), width)]

    def laid(block: slice) -> tuple[Any, float, float, float, float]:
        starts = chunks(references.rows[block])
        parts = [code(references, slice(block.start + p.start, block.start + p.stop), mean, step) for p in starts]
        bias = torch.cat([part.height + part.residual * typical for part in parts])
        norms = [
            max(float(getattr(part, name).abs().max()) for part in parts) for name in ("length", "height", "residual")
        ]
        block_of = laid_block(torch.cat([part.integers for part in parts]), step, bias)
        return block_of, norms[0], norms[1], norms[2], float(bias.abs().max())

    blocks, *norms = zip(*side_by_side(laid, columns), strict=True)
    longest, highest, worst, largest_bias = (max(values) for values in norms)
    return Int8References(list(blocks), columns, step, typical, longest, highest, worst, largest_bias)


def laid_block(integers: Int8[Tensor, "c d"], step: float, bias: Float64[Tensor, " c"]) -> Any:
    """Store integers and biases of some references in the form that this processor multiplies fastest."""
    if _plain_pays(integers.shape[1]):
        return PlainBlock.of(integers, bias)
    return pack(integers, step, bias)


def int8_pays(dimensions: int) -> bool:
    """Return whether this processor and this torch multiply 8-bit integers faster than float32."""
    return _plain_pays(dimensions) or int8_is_fast()


def _plain_pays(dimensions: int) -> bool:
    return dimensions >= FEWEST_COLUMNS and int32_is_fast()


# References laid out once for any number of searches: as 8-bit integers if that is faster, else in float32.

INT8_FROM = 3  # blocks of references above which integers are used; with fewer, most references would set the bar
PILOT = 1 << 14  # largest number of references that set the first bars
PILOT_SHARE = 1 / 8  # largest share of the references for that: more would cost more than the pairs that they save
BLOCKS_TO_SCAN = 32  # largest width of a block of integers, in blocks of float32 products
PARTS_TO_SCAN = 4  # smallest number of blocks of integers: bars rise from one to the next, and cores share them


@dataclass(frozen=True)
class Pilot:
    """Sample of the references, in float32, whose products set the first bars.

    Args:
        index: Indices of the sample, in ascending order.
        layout: Layout of the sample alone.
    """

    index: Int64[Tensor, " p"]
    layout: BoundedLayout


@dataclass(frozen=True)
class PreparedReferences:
    """Everything about the references that a search needs and that does not depend on the queries.

    Args:
        vectors: References for exact comparison.
        mean: Mean that is subtracted from all vectors.
        bounds: Bounds of the references in float32.
        codes: Integers of the references, if they are to be scanned.
        pilot: Sample that sets the first bars; present if the integers are.
        kept: Float32 layout of the references, if there are no integers.
    """

    vectors: Vectors
    mean: Float64[Tensor, " d"]
    bounds: Bounds
    codes: Int8References | None = None
    pilot: Pilot | None = None
    kept: BoundedLayout | None = None

    def layout(self) -> BoundedLayout:
        """Return the references in float32: the stored layout, or a new one for a search that cannot use integers."""
        return self.kept or lay_out(self.vectors, self.mean, "float32")

    @property
    def nbytes(self) -> int:
        """Bytes held in addition to the rows themselves."""
        n, d = self.vectors.rows.shape
        total = sum(side.untyped_storage().nbytes() for side in (self.vectors.scale, self.vectors.offset, self.mean))
        if self.codes is not None:
            total += n * (d + 4 + 4)  # the integers; a bias and a length (or the sum of the integers), 4 bytes each
        for laid in (self.kept, self.pilot.layout if self.pilot else None):
            if laid is not None:
                total += sum(part.nbytes for part in (laid.matrix, laid.length, laid.residual, laid.height))
        return total + (self.pilot.index.nbytes if self.pilot else 0)


def prepare(references: Vectors, precision: str, block: int) -> PreparedReferences:
    """Lay out references, as integers if `precision` is "int8" and there are enough of them, else in float32.

    Args:
        references: References, as `vectors` returns them.
        precision: "int8" or "float32".
        block: Rows and columns of the float32 products.
    """
    mean = centre(references)
    if precision == "int8" and int8_pays(len(mean)) and len(references) > INT8_FROM * block:
        most = min(WIDTH, BLOCKS_TO_SCAN * block)
        parts = max(PARTS_TO_SCAN, -(-len(references) // most))
        width = -(-len(references) // parts)
        codes = int8_references(references, mean, width + -width % PADDING)
        if codes is not None:
            return with_pilot(references, mean, codes)
    laid = lay_out(references, mean, "float32")
    return PreparedReferences(references, mean, laid.bounds, kept=laid)


def with_pilot(references: Vectors, mean: Float64[Tensor, " d"], codes: Int8References) -> PreparedReferences:
    """Add a pilot to references whose integers are laid out."""
    bounds = Bounds.in_float32(codes.longest, codes.highest, len(mean))
    size = min(PILOT, max(PADDING, int(PILOT_SHARE * len(references))))
    sample = torch.linspace(0, len(references) - 1, size, dtype=torch.float64).long()
    return PreparedReferences(references, mean, bounds, codes, pilot(references, mean, sample))


def pilot(references: Vectors, mean: Float64[Tensor, " d"], index: Int64[Tensor, " p"]) -> Pilot:
    """Lay out the references `index`, which should be spread over all: neighbours in a file are often similar."""
    return Pilot(index, lay_out(references.take(index), mean, "float32"))


# Prepared references as plain arrays, which can be stored in a file so that they need not be prepared again.

NUMBERS = ("step", "typical", "longest", "highest", "worst", "largest_bias")


def as_arrays(prepared: PreparedReferences) -> dict[str, NDArray[Any]] | None:
    """Return the parts that are slow to compute; None if there are so few references that nothing is slow."""
    codes, exact = prepared.codes, prepared.vectors
    if codes is None:
        return None
    blocks = [(block.integers, block.bias) if codes.plain else unpack(block) for block in codes.blocks]
    return {
        "integers": torch.cat([integers for integers, _ in blocks]).numpy(),
        "bias": torch.cat([bias.float() for _, bias in blocks]).numpy(),
        "ends": np.array([columns.stop for columns in codes.columns]),
        "numbers": np.array([getattr(codes, name) for name in NUMBERS]),
        "mean": prepared.mean.numpy(),
        "scale": (exact.scale if exact.distance == "cosine" else exact.scale[:1]).numpy(),
        "offset": (exact.offset[:1] if exact.distance == "cosine" else exact.offset).numpy(),
    }


def from_arrays(rows: Tensor, distance: str, arrays: Mapping[str, NDArray[Any]]) -> PreparedReferences:
    """Rebuild prepared references from the result of `as_arrays`, for the same rows.

    Raises:
        InputError: If the arrays do not fit the rows.
    """
    count, dimensions = rows.shape
    shapes = {
        "integers": (count, dimensions),
        "bias": (count,),
        "mean": (dimensions,),
        "numbers": (len(NUMBERS),),
        "scale": (count if distance == "cosine" else 1,),
        "offset": (1 if distance == "cosine" else count,),
    }
    wrong = [name for name, shape in shapes.items() if name not in arrays or arrays[name].shape != shape]
    ends = arrays["ends"].tolist() if "ends" in arrays else []
    if wrong or not ends or ends[-1] != count or sorted(set(ends)) != ends:
        raise InputError(f"The layout belongs to other vectors: {', '.join(wrong) or 'ends'} do not fit {count} rows.")
    scale, offset = (torch.from_numpy(arrays[name]).expand(count) for name in ("scale", "offset"))
    exact = Vectors(rows, scale, offset, distance)
    numbers = dict(zip(NUMBERS, arrays["numbers"].tolist(), strict=True))
    columns = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    integers, bias = (torch.from_numpy(arrays[name]) for name in ("integers", "bias"))
    blocks = [laid_block(integers[part], numbers["step"], bias[part].double()) for part in columns]
    return with_pilot(exact, torch.from_numpy(arrays["mean"]), Int8References(blocks, columns, **numbers))
