"""Similarity of two items, defined so that no block size, thread count or CPU can change it.

A sum of rounded products depends on the order of summation, and a matrix product chooses its order by the
shape of its operands: the same two vectors may get different similarities with different block sizes, and
duplicates may not tie. Here no product is rounded. Vectors have a length of at most one and are split into

    v = high + low,    high a multiple of 2^-26,    low a multiple of 2^-45,    |low_i| <= 2^-27,

and the inner product is `high . high' + (high . low' + low . high')`. The products of the first sum are
multiples of 2^-52 and every partial sum is below 2 (Cauchy-Schwarz), those of the second are multiples of
2^-71 with partial sums below 2^-18 for up to 2^16 dimensions: both fit the 53 bits of a float64, so
every addition is exact and any order gives the same bits. The result differs from the real inner product by
at most `definition_error`, which is 7e-13 for 512 dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64, Real
from torch import Tensor

from vicinal.errors import InputError, look_up
from vicinal.neighbours.threads import side_by_side

__all__ = [
    "Vectors",
    "chunks",
    "close_pairs",
    "exact_pairs",
    "exact_rows",
    "readable",
    "rounding_error",
    "similarities",
    "vectors",
    "vectors_like",
]


DISTANCES = ("cosine", "euclidean")

HIGH, LOW = 1.5 * 2.0**26, 1.5 * 2.0**7  # adding and subtracting 1.5 * 2^52 / 2^b rounds to multiples of 2^-b
MOST_DIMENSIONS = 1 << 16
TINY = torch.finfo(torch.float64).tiny
CHUNK = 1 << 18  # float64 numbers at a time: about the size of a cache; with fewer, threads wait for the interpreter


@dataclass(frozen=True)
class Vectors:
    """Embeddings, with the scales and offsets that make them comparable.

    Args:
        rows: Embeddings as they were passed in.
        scale: Factor of each row: one over its length, or one power of two for all.
        offset: Minus half the squared length of each scaled row for distances, zero for cosine.
        distance: "cosine" or "euclidean".
    """

    rows: Tensor
    scale: Float64[Tensor, " n"]
    offset: Float64[Tensor, " n"]
    distance: str

    def __len__(self) -> int:
        return len(self.rows)

    def scaled(self, index: Int64[Tensor, " m"] | slice) -> Float64[Tensor, "m d"]:
        """Return the rows `index`, scaled to a length of at most one, in float64."""
        return self.rows[index].double() * self.scale[index, None]

    def take(self, index: Int64[Tensor, " m"]) -> Vectors:
        """Return a copy of some of the rows; their similarities do not change."""
        return Vectors(self.rows[index], self.scale[index], self.offset[index], self.distance)


def vectors(queries: Tensor, references: Tensor | None = None, *, distance: str = "cosine") -> tuple[Vectors, Vectors]:
    """Prepare queries and references for comparison; without references, the queries are compared with themselves.

    A vector of length zero has the cosine similarity 0 with everything.
    """
    look_up("distance", distance, dict.fromkeys(DISTANCES))
    sides = [queries] if references is None else [queries, references]
    _check_dimensions(queries, sides[-1])
    if distance == "cosine":
        prepared = [_of_length_one(side) for side in sides]
    else:
        shrink = min(_shrink(side) for side in sides)
        prepared = [_with_offsets(side, shrink) for side in sides]
    return prepared[0], prepared[-1]


def vectors_like(queries: Tensor, references: Vectors) -> Vectors | None:
    """Prepare queries for comparison with references that are already prepared, as `vectors` prepares both.

    For the cosine every row has its own scale. Distances need one power of two that scales the longest of all rows
    below one: the smaller of those that the two sides need. If that is the scale of the references, they stay as they
    are. A query that needs a smaller one does not fit.

    Returns:
        The queries; None if a query is too long for the scale of the references: then prepare both with `vectors`.
    """
    _check_dimensions(queries, references.rows)
    if references.distance == "cosine":
        return _of_length_one(queries)
    shrink = float(references.scale[0])
    return _with_offsets(queries, shrink) if _shrink(queries) >= shrink else None


def exact_pairs(
    queries: Vectors, rows: Int64[Tensor, " m"], references: Vectors, columns: Int64[Tensor, "m c"]
) -> Float64[Tensor, "m c"]:
    """Compare query `rows[i]` with each of the references `columns[i]`; larger is nearer.

    Returns:
        Inner products of the unit vectors, or minus half the squared distances of the scaled ones.
    """
    step = max(1, CHUNK // max(1, columns.shape[1] * queries.rows.shape[1]))
    out = torch.empty(columns.shape, dtype=torch.float64)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        high, low = _split(queries.scaled(rows[part]).unsqueeze(1))
        other_high, other_low = _split(references.scaled(columns[part].flatten()).view(*columns[part].shape, -1))
        cross = other_low.mul_(high).addcmul_(other_high, low).sum(dim=2)
        out[part] = other_high.mul_(high).sum(dim=2) + cross
    return out + (queries.offset[rows, None] + references.offset[columns])


def close_pairs(
    queries: Vectors, rows: Int64[Tensor, " m"], references: Vectors, columns: Int64[Tensor, " m"]
) -> Float64[Tensor, " m"]:
    """Compare query `rows[i]` with reference `columns[i]` as `exact_pairs` does, to within `rounding_error`."""
    out = queries.offset[rows] + references.offset[columns]
    step = max(1, CHUNK // queries.rows.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        left, right = queries.scaled(rows[part]), references.scaled(columns[part])
        out[part] += left.mul_(right).sum(dim=1)
    return out


def exact_rows(queries: Vectors, rows: Int64[Tensor, " m"], references: Vectors) -> Float64[Tensor, "m n"]:
    """Compare the queries `rows` with every reference, with the same results as `exact_pairs`."""
    high, low = _split(queries.scaled(rows))
    both = torch.cat([high, low], 1)
    out = torch.empty(len(rows), len(references), dtype=torch.float64)
    for part in chunks(references.rows):
        other_high, other_low = _split(references.scaled(part))
        out[:, part] = high @ other_high.T + both @ torch.cat([other_low, other_high], 1).T
    return out + (queries.offset[rows, None] + references.offset)


def chunks(rows: Tensor) -> list[slice]:
    """Split a matrix into slices that fit the cache in float64."""
    step = max(1, CHUNK // rows.shape[1])
    return [slice(start, min(start + step, len(rows))) for start in range(0, len(rows), step)]


def definition_error(dimensions: int) -> float:
    """Bound the error of an exact comparison against the real inner product: from rounding low, and low . low'."""
    return math.sqrt(dimensions) * 2.0**-45 + dimensions * 2.0**-54 + 2.0**-50


def rounding_error(dimensions: int) -> float:
    """Bound the difference between float64 arithmetic in any order and an exact comparison."""
    return definition_error(dimensions) + (dimensions + 4) * 2.0**-52


def readable(keys: Float64[Tensor, "*shape"], references: Vectors) -> Float64[Tensor, "*shape"]:
    """Convert the keys that `exact_pairs` returns to cosines or distances."""
    if references.distance == "cosine":
        return keys.clamp(-1.0, 1.0)
    return (-2 * keys).clamp(min=0.0).sqrt() / references.scale[0]


def _split(values: Float64[Tensor, "*shape"]) -> tuple[Float64[Tensor, "*shape"], Float64[Tensor, "*shape"]]:
    high = (values + HIGH).sub_(HIGH)
    return high, (values - high).add_(LOW).sub_(LOW)


def _lengths(rows: Tensor) -> Float64[Tensor, " n"]:
    """Return the lengths of rows of any finite numbers; dividing by the largest entry avoids overflow."""

    def of(part: slice) -> Tensor:
        values = rows[part].to(torch.float64, copy=True)  # changed in place below
        largest = values.abs().amax(dim=1).clamp(min=TINY)
        return _sum_of_columns(values.div_(largest[:, None]).square_()).sqrt_().mul_(largest)

    return torch.cat(side_by_side(of, chunks(rows)))


def _sum_of_columns(values: Float64[Tensor, "n d"]) -> Float64[Tensor, " n"]:
    """Add the right half to the left until one column remains: an order that is the same on every processor."""
    while (width := values.shape[1]) > 1:
        half = (width + 1) // 2
        values[:, : width - half] += values[:, half:]
        values = values[:, :half]
    return values[:, 0].clone()


def _check_dimensions(queries: Tensor, references: Tensor) -> None:
    if references.shape[1] != queries.shape[1]:
        raise InputError(
            f"The queries have {queries.shape[1]} dimensions and the gallery {references.shape[1]}; "
            "embed both with the same model."
        )
    if queries.shape[1] > MOST_DIMENSIONS:
        raise InputError(f"Embeddings may have at most {MOST_DIMENSIONS} dimensions; got {queries.shape[1]}.")


def _shrink(rows: Tensor) -> float:
    """Return the power of two that scales the longest row below one."""
    return 2.0 ** min(1000, -math.frexp(float(_lengths(rows).max()))[1])


def _of_length_one(rows: Tensor) -> Vectors:
    length = _lengths(rows)
    none = torch.zeros((), dtype=torch.float64).expand(len(rows))
    return Vectors(rows, torch.where(length > TINY, 1 / length, 0.0), none, "cosine")


def _with_offsets(rows: Tensor, shrink: float) -> Vectors:
    scale = torch.tensor(shrink, dtype=torch.float64).expand(len(rows))
    plain = Vectors(rows, scale, torch.zeros((), dtype=torch.float64).expand(len(rows)), "euclidean")

    def of(part: slice) -> Tensor:
        index = torch.arange(part.start, part.stop)
        return exact_pairs(plain, index, plain, index[:, None]).squeeze(1)

    return Vectors(rows, scale, torch.cat(side_by_side(of, chunks(rows))) / -2, "euclidean")


# Similarity in an index, by definition: plain float64 arithmetic, the same for every store and every shortcut.


def similarities(
    queries: Float32[np.ndarray, "n d"], rows: Real[np.ndarray, "n c d"], distance: str
) -> Float64[np.ndarray, "n c"]:
    """Compare query i with each of the rows i: the cosine, or minus the Euclidean distance; larger is nearer.

    A vector of length zero has the cosine 0 with everything. Nothing overflows: float32 squared fits float64.

    Example:
        >>> similarities(np.float32([[3, 4]]), np.float32([[[3, 0], [6, 8], [0, 0]]]), "cosine").tolist()
        [[0.6, 1.0, 0.0]]
        >>> similarities(np.float32([[3, 4]]), np.float32([[[3, 0], [6, 8], [0, 0]]]), "euclidean").tolist()
        [[-4.0, -5.0, -5.0]]
    """
    left, right = queries[:, None, :].astype(np.float64), rows.astype(np.float64)
    if distance == "euclidean":
        return 0.0 - np.sqrt(np.square(left - right).sum(axis=2))  # not -0.0
    products = (left * right).sum(axis=2)
    lengths = np.sqrt(np.square(left).sum(axis=2)) * np.sqrt(np.square(right).sum(axis=2))
    return np.clip(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0), -1.0, 1.0)
