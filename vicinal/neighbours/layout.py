"""Vectors laid out so that one matrix product ranks them, with a proven bound on its error.

Formula:
    With the mean m of the references subtracted, c = v - m, both metrics have the same form:

        v . v' - |m|^2     = c . c' + h + h',    h = c . m          (cosine)
        -|v - v'|^2 / 2    = c . c' + h + h',    h = -|c|^2 / 2     (euclidean)

    so that [c, h, 1] . [c', 1, h'] is the similarity itself, up to a constant.

Bound:
    Let ĉ be c as stored (rounded to float32 or bfloat16), D the number of columns and u = 2^-24. The product
    differs from the similarity by at most

        |c - ĉ| |c'| + |ĉ| |c' - ĉ'|            storing c: Cauchy-Schwarz on both rounding errors, measured
        + u (|h| + |h'|)                        storing h, in one float32 or in three bfloat16
        + g (|ĉ| |ĉ'| + |h| + |h'|)             adding D products in float32 in any order, g = D u / (1 - D u)
        + rounding_error                        rounding in similarity.py and float64

    The products of two bfloat16 are exact in float32; CPUs that multiply them add in float32, but may drop
    denormal numbers and round each step differently, for which g is doubled. Rounding the result to bfloat16
    is left to `bar`, because it depends on the result. Subtracting the mean makes the bound shrink with the
    spread of the data: nearly collapsed embeddings are ranked as reliably as spread-out ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from vicinal.neighbours.similarity import Vectors, chunks, rounding_error
from vicinal.neighbours.threads import side_by_side

__all__ = ["PADDING", "BoundedLayout", "Bounds", "bar", "centre", "heights", "lay_out", "widths"]

PADDING = 64  # layouts have a multiple of this number of rows; padding rows are infinitely far from everything
UNIT = 2.0**-24
OUTPUT_ROUNDING = {"float32": 0.0, "bfloat16": 2.0**-8}
PARTS = {"float32": 1, "bfloat16": 3}  # numbers that hold h to 24 bits
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LOWEST = torch.finfo(torch.float32).min


@dataclass(frozen=True)
class Bounds:
    """Largest norms of some vectors as stored: all that the bound needs to know about the other side.

    Args:
        length: Upper bound of every |c|.
        residual: Upper bound of every |c - ĉ|.
        height: Upper bound of every |h|.
    """

    length: float
    residual: float
    height: float

    @classmethod
    def in_float32(cls, length: float, height: float, dimensions: int) -> Bounds:
        """Return the bounds of vectors of at most this length when they are stored in float32.

        An entry is rounded by at most 2^-24 of itself, or by 2^-150 where float32 is denormal.
        """
        return cls(length, UNIT * length + dimensions * 2.0**-150, height)


@dataclass(frozen=True)
class BoundedLayout:
    """The right-hand side [c', 1, h'] of the product for every row, and the norms that its bound needs.

    Args:
        matrix: [c', 1, h'], as stored.
        length: |c|.
        residual: |c - ĉ|.
        height: |h|.
        constant: Amount to add to a product to get the similarity.
        precision: Precision of the matrix.
    """

    matrix: Float[Tensor, "padded columns"]
    length: Float64[Tensor, " n"]
    residual: Float64[Tensor, " n"]
    height: Float64[Tensor, " n"]
    constant: float
    precision: str

    @property
    def bounds(self) -> Bounds:
        """Largest norms of all rows."""
        return Bounds(float(self.length.max()), float(self.residual.max()), float(self.height.max()))

    def left(self, rows: Int64[Tensor, " m"] | slice) -> Float[Tensor, "m columns"]:
        """Return the left-hand side [c, h, 1] of some rows: the right-hand side with its ends exchanged."""
        parts = PARTS[self.precision]
        left = self.matrix[rows].clone()
        left[:, -parts:] = self.matrix[rows, -2 * parts : -parts]
        left[:, -2 * parts : -parts] = self.matrix[rows, -parts:]
        return left


def centre(vectors: Vectors) -> Float64[Tensor, " d"]:
    """Return the mean of the scaled rows."""
    sums = side_by_side(lambda part: vectors.scaled(part).sum(dim=0), chunks(vectors.rows))
    return torch.stack(sums).sum(dim=0) / len(vectors)


def heights(moved: Float64[Tensor, "n d"], mean: Float64[Tensor, " d"], distance: str) -> Float64[Tensor, " n"]:
    """Return the h of each row c."""
    return moved @ mean if distance == "cosine" else moved.square().sum(dim=1) / -2


def lay_out(vectors: Vectors, mean: Float64[Tensor, " d"], precision: str) -> BoundedLayout:
    """Lay out `vectors` with `mean` subtracted."""
    n, d = vectors.rows.shape
    parts, dtype = PARTS[precision], DTYPES[precision]
    matrix = torch.zeros(n + -n % PADDING, d + 2 * parts, dtype=dtype)
    matrix[:, d : d + parts] = 1
    matrix[n:, d + parts] = -torch.inf
    length, residual, height = (torch.empty(n, dtype=torch.float64) for _ in range(3))

    def lay(here: slice) -> None:
        moved = vectors.scaled(here).sub_(mean)
        offset = heights(moved, mean, vectors.distance)
        stored = moved.to(dtype)
        matrix[here, :d] = stored
        length[here], height[here] = moved.norm(dim=1), offset.abs()
        residual[here] = moved.sub_(stored).norm(dim=1)
        for part in range(d + parts, d + 2 * parts):
            matrix[here, part] = offset.to(dtype)
            offset = offset - matrix[here, part]

    side_by_side(lay, chunks(vectors.rows))
    constant = float(mean @ mean) if vectors.distance == "cosine" else 0.0
    return BoundedLayout(matrix, length, residual, height, constant, precision)


def widths(queries: BoundedLayout, references: Bounds) -> Float32[Tensor, " n"]:
    """Return twice the bound of each query: two products further apart than this are in the right order.

    It also covers `close_pairs` rounded to float32, which adds fewer and smaller errors than the product.
    """
    columns = queries.matrix.shape[1]
    growth = columns * UNIT / (1 - columns * UNIT) * (1 if queries.precision == "float32" else 2)
    stored = queries.length + queries.residual
    tops = queries.height + references.height
    bound = (
        queries.residual * references.length
        + stored * references.residual
        + UNIT * tops
        + growth * (stored * (references.length + references.residual) + tops)
        + rounding_error(columns)
    )
    return (2 * bound).float() * (1 + 2.0**-20)  # float32 may round down


def bar(
    values: Float32[Tensor, "*shape"], width: Float32[Tensor, "#*shape"], precision: str
) -> Float32[Tensor, "*shape"]:
    """Return the lowest product that may belong to a reference as near as one with the product `values`.

    Both products may have been rounded on output; `width` covers all other errors. Minus infinity, which marks an
    excluded reference, never clears a bar.
    """
    rounding = 2 * OUTPUT_ROUNDING[precision]
    lowered = values - width - rounding * (values.abs() + width) if rounding else values - width
    return lowered.clamp(min=LOWEST)
