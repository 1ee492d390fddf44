"""Rows in fewer bytes: 8-bit integers and single bits, for vectors that are compared by the cosine.

The cosine does not depend on the length of a row. So every row has its own scale, which need not be stored: a row added
later is rounded as it would have been before, and rounding a row twice changes nothing.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
from jaxtyping import Float, Float32, Float64, Int8
from numpy.typing import NDArray

from vicinal.errors import InputError

__all__ = ["Numbers", "as_bits", "as_int8", "check_numbers", "middle_of", "pack_rows", "row_shape", "unpack_rows"]

Numbers = Literal["float32", "int8", "bits"]


def as_int8(rows: Float[np.ndarray, "n d"]) -> Int8[np.ndarray, "n d"]:
    """Round each row to 8-bit integers whose largest is 127 or -127, so that cosines hardly change.

    Example:
        >>> as_int8(np.array([[0.6, -0.8], [0.0, 0.1]]))
        array([[  95, -127],
               [   0,  127]], dtype=int8)
    """
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0).astype(np.float64)
    return np.round(rows * (127.0 / np.where(largest > 0, largest, 1.0))).astype(np.int8)


def as_bits(rows: Float[np.ndarray, "n d"], middle: Float64[np.ndarray, " d"] | None = None) -> Int8[np.ndarray, "n d"]:
    """Return 1 or -1 for each number, for above the middle or not; their inner products count bits that agree.

    Example:
        >>> as_bits(np.array([[0.6, -0.8]]))
        array([[ 1, -1]], dtype=int8)
    """
    return np.where(rows > (0.0 if middle is None else middle), 1, -1).astype(np.int8)


def middle_of(rows: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, " d"]:
    """Return the median of each column of the unit-length rows, the threshold at which bits carry most information."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(np.median(rows / np.where(lengths > 0, lengths, 1.0), axis=0))


def pack_rows(rows: Float32[np.ndarray, "n d"], numbers: Numbers) -> NDArray[Any]:
    """Pack rows for storage: as float32, int8, or eight bits to a byte, where a number above zero is a one.

    Example:
        >>> pack_rows(np.float32([[0.6, -0.8, 0.1]]), "bits")
        array([[160]], dtype=uint8)
    """
    if numbers == "float32":
        return np.ascontiguousarray(rows, dtype=np.float32)
    return as_int8(rows) if numbers == "int8" else np.packbits(rows > 0, axis=1)


def unpack_rows(packed: NDArray[Any], numbers: Numbers, dim: int) -> Float32[np.ndarray, "n d"]:
    """Return the rows that were packed, of length 1 unless they are float32.

    Example:
        >>> unpack_rows(np.array([[160]], np.uint8), "bits", 4) * 2
        array([[ 1., -1.,  1., -1.]], dtype=float32)
    """
    if numbers == "float32":
        return np.asarray(packed, dtype=np.float32)
    rows = packed if numbers == "int8" else as_bits(np.unpackbits(packed, axis=1, count=dim).astype(np.float64))
    lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
    return (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def row_shape(numbers: Numbers, dim: int) -> tuple[np.dtype[Any], int]:
    """Return the data type and the number of entries of a packed row."""
    if numbers == "bits":
        return np.dtype(np.uint8), -(-dim // 8)
    return np.dtype("<f4" if numbers == "float32" else np.int8), dim


def check_numbers(numbers: str, distance: str) -> Numbers:
    """Raise for an unknown number format, and for fewer bytes with a distance that depends on lengths."""
    if numbers not in get_args(Numbers):
        raise InputError(f"numbers must be one of {', '.join(get_args(Numbers))}; got {numbers!r}.")
    if numbers != "float32" and distance != "cosine":
        raise InputError(
            f"Vectors compared by the {distance} distance must be stored in float32: {numbers} does not store the "
            "length of a vector, which only the cosine ignores."
        )
    return cast(Numbers, numbers)
