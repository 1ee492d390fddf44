"""Validation of embeddings and labels, and the pairs that a search must exclude."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Int64, Real
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError, NotFinite

__all__ = [
    "ArrayLike",
    "Exclusion",
    "Labels",
    "as_array",
    "as_codes",
    "as_embeddings",
    "check_threshold",
    "checked_count",
    "exclusion",
    "read_only",
]


FINITE_CHUNK = 1 << 20  # numbers checked at a time
LARGEST = 1e140  # squares of this and of its inverse, summed over all dimensions, are far from the limits of float64


ArrayLike: TypeAlias = Tensor | NDArray[np.generic] | Sequence[Sequence[float]] | Sequence[Sequence[int]]
Labels: TypeAlias = Tensor | NDArray[np.generic] | Sequence[int] | Sequence[str]


def as_embeddings(values: ArrayLike, name: str = "embeddings", *, as_given: bool = False) -> Real[Tensor, "n d"]:
    """Return finite, non-empty embeddings as a detached matrix on the CPU, without a copy where possible.

    Float64 stays float64; every other numeric type becomes float32.

    Args:
        values: One row per item: a torch tensor on any device, a numpy array, or nested lists.
        name: Name of the values in error messages.
        as_given: Whether to leave floats of any type and 8-bit integers as they are, without a copy, including
            read-only memory maps. They are only read.

    Example:
        >>> as_embeddings([[1, 2], [3, 4]]).dtype
        torch.float32
    """
    if isinstance(values, Tensor):
        matrix = values.detach().cpu()
    else:
        array = as_array(values, name) if as_given else np.ascontiguousarray(as_array(values, name))
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise InputError(f"{name} must be numbers of at most 64 bits, got an array of {array.dtype}.")
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        matrix = read_only(array) if as_given else torch.from_numpy(array if array.flags.writeable else array.copy())
    if matrix.ndim != 2:
        raise InputError(f"{name} must be a matrix, one row per item; got the shape {tuple(matrix.shape)}.")
    if 0 in matrix.shape:
        raise InputError(f"{name} are empty: the shape is {tuple(matrix.shape)}.")
    if as_given and (matrix.is_floating_point() or matrix.dtype == torch.int8):
        _require_finite(matrix, name)
        _require_comparable(matrix, name)
        return matrix
    if matrix.dtype != torch.float64:
        matrix = matrix.float()
    _require_finite(matrix, name)
    _require_comparable(matrix, name)
    return matrix.contiguous()


def as_array(values: Any, name: str) -> NDArray[np.generic]:
    """Return an array, or raise a readable error if the rows of a list have different lengths.

    Example:
        >>> as_array([[1.0, 2.0], [3.0]], "queries")
        Traceback (most recent call last):
        vicinal.errors.InputError: queries must be a matrix of numbers, one row each; got rows of different lengths.
    """
    try:
        return np.asarray(values)
    except ValueError:  # "setting an array element with a sequence ... inhomogeneous shape"
        raise InputError(f"{name} must be a matrix of numbers, one row each; got rows of different lengths.") from None


def checked_count(value: Any, name: str, *, least: int = 1) -> int:
    """Check that a value is a whole number, from Python or numpy, and return it as an int.

    Args:
        value: Value to check.
        name: Name of the value in error messages.
        least: Smallest allowed value.

    Example:
        >>> checked_count("3", "k")
        Traceback (most recent call last):
        vicinal.errors.InputError: k must be a whole number, got '3'.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be a whole number, got {value!r}.")
    if value < least:
        raise InputError(f"{name} must be at least {least}, got {value}.")
    return int(value)


def check_threshold(threshold: float, distance: str) -> None:
    """Raise if no pair could have a similarity of at least `threshold`.

    Example:
        >>> check_threshold(7.0, "cosine")
        Traceback (most recent call last):
        vicinal.errors.InputError: The threshold is a cosine, between -1 and 1; got 7.
    """
    if distance == "cosine" and not -1 <= threshold <= 1:
        raise InputError(f"The threshold is a cosine, between -1 and 1; got {threshold:g}.")
    if distance != "cosine" and not -np.inf < threshold <= 0:
        raise InputError(
            f"The threshold is minus a Euclidean distance, such as -0.5, and at most 0; got {threshold:g}."
        )


def as_codes(
    *groups: Labels, sizes: Sequence[int] | None = None, name: str = "labels"
) -> tuple[list[int] | list[str], list[Int64[Tensor, " _"]]]:
    """Encode the labels of one or several groups as integers from 0; equal labels get equal codes.

    Args:
        *groups: Integers of any size or strings, each group a torch tensor, a numpy array or a list.
        sizes: Expected number of labels in each group.
        name: Name of the labels in error messages.

    Returns:
        The distinct labels in ascending order, and the codes of each group.

    Example:
        >>> as_codes(["cat", "ant", "cat"])
        (['ant', 'cat'], [tensor([1, 0, 1])])
    """
    arrays = [_label_array(group, name) for group in groups]
    for array, size in zip(arrays, sizes or [], strict=False):
        if len(array) != size:
            raise InputError(f"There are {size} embeddings but {len(array)} {name}; each embedding needs exactly one.")
    if len({array.dtype.kind in "US" for array in arrays}) > 1:
        raise InputError(f"The {name} of one group are strings and those of the other are numbers; use one type.")
    distinct, codes = np.unique(np.concatenate(arrays), return_inverse=True)
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return distinct.tolist(), [torch.from_numpy(part) for part in np.split(codes.astype(np.int64), ends)]


def read_only(array: NDArray[np.generic]) -> Tensor:
    """Return a tensor that shares the array's memory and must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)


def _require_finite(matrix: Tensor, name: str) -> None:
    """Raise `NotFinite` with the first offending row; finite input costs only one pass of sums."""
    step = max(1, FINITE_CHUNK // matrix.shape[1])
    pieces = [matrix[start : start + step] for start in range(0, len(matrix), step)]
    kind = matrix.dtype if matrix.dtype == torch.float64 else torch.float32
    if bool(torch.isfinite(torch.stack([piece.sum(dtype=kind) for piece in pieces])).all()):
        return
    bad = torch.cat([(~torch.isfinite(piece)).any(dim=1) for piece in pieces]).nonzero().squeeze(1)
    if len(bad):
        raise NotFinite(
            f"{len(bad)} of {len(matrix)} rows of {name} hold NaN or infinity, the first of them row "
            f"{int(bad[0])}; fix the model or drop these items before evaluating."
        )


def _require_comparable(matrix: Tensor, name: str) -> None:
    """Raise for float64 rows so long or so short that squares overflow or vanish; float32 rows never are."""
    if matrix.dtype != torch.float64:
        return
    step = max(1, FINITE_CHUNK // matrix.shape[1])
    largest = torch.cat([matrix[start : start + step].abs().amax(dim=1) for start in range(0, len(matrix), step)])
    bad = ((largest > LARGEST) | ((largest < 1 / LARGEST) & (largest > 0))).nonzero().squeeze(1)
    if len(bad):
        raise InputError(
            f"{len(bad)} of {len(matrix)} rows of {name} cannot be compared, the first of them row {int(bad[0])}: its "
            f"largest number is {float(largest[bad[0]]):.3g}, and must be between {1 / LARGEST:.0e} and {LARGEST:.0e} "
            "or zero. Multiply all rows by one factor, or fix the model."
        )


def _label_array(labels: Labels, name: str) -> NDArray[np.generic]:
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        sets = " For sets of labels, `evaluate` takes booleans [items, labels]." if array.ndim == 2 else ""
        raise InputError(f"{name} must be a list with one entry per item; got the shape {array.shape}.{sets}")
    if array.dtype.kind == "O" and len(array):
        kinds = {str if isinstance(label, str) else int if isinstance(label, int) else type(label) for label in array}
        if kinds == {str}:
            array = array.astype(str)
        elif kinds != {int}:
            got = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InputError(f"{name} must be all integers or all strings; got {got}.")
    if array.dtype.kind not in "iubUSO" and len(array):
        raise InputError(
            f"{name} must be integers or strings, got {array.dtype}; for floats that are whole numbers, "
            "convert them with .astype(int)."
        )
    return array


# References that a query must not find.


@dataclass(frozen=True)
class Exclusion:
    """References that a query must not find.

    Args:
        itself: Whether the queries are the references, so that an item must not find itself.
        queries: Sequence of each query; references of the same sequence are ignored.
        references: Sequence of each reference.
        allowed: Mask of the references that may be found at all; by default all of them.
    """

    itself: bool
    queries: Int64[Tensor, " n"] | None = None
    references: Int64[Tensor, " m"] | None = None
    allowed: Bool[Tensor, " m"] | None = None

    @property
    def by_mask_alone(self) -> bool:
        """Whether all queries may find the same references."""
        return not self.itself and (self.queries is None or self.references is None)

    def apply(self, block: Tensor, rows: Int64[Tensor, " r"], first: int) -> None:
        """Write minus infinity where `rows`, in ascending order, must not find the references from `first` on.

        Rows and references may be followed by padding.
        """
        if self.itself and int(rows[0]) < first + block.shape[1] and first <= int(rows[-1]):
            column = rows - first
            inside = ((column >= 0) & (column < block.shape[1])).nonzero().squeeze(1)
            block[inside, column[inside]] = -torch.inf
        if self.queries is not None and self.references is not None:
            sequences = self.queries[rows[rows < len(self.queries)]]
            others = self.references[first : first + block.shape[1]]
            block[: len(sequences), : len(others)].masked_fill_(sequences[:, None] == others, -torch.inf)
        if self.allowed is not None:
            may = self.allowed[first : first + block.shape[1]]
            block[:, : len(may)].masked_fill_(~may, -torch.inf)

    def covers(self, rows: Int64[Tensor, " m"], columns: Int64[Tensor, " m"]) -> Bool[Tensor, " m"]:
        """Return whether query `rows[i]` must not find reference `columns[i]`."""
        covered = rows == columns if self.itself else torch.zeros(len(rows), dtype=torch.bool)
        if self.queries is not None and self.references is not None:
            covered |= self.queries[rows] == self.references[columns]
        if self.allowed is not None:
            covered |= ~self.allowed[columns]
        return covered

    def among(self, index: Int64[Tensor, " s"]) -> Exclusion:
        """Return the exclusion for the references `index` alone, none of which is a query."""
        references = None if self.references is None else self.references[index]
        return Exclusion(False, self.queries, references, None if self.allowed is None else self.allowed[index])

    def in_order(self, order: Int64[Tensor, " n"]) -> Exclusion:
        """Return the exclusion for self-retrieval after the items have been reordered."""
        sides = (self.queries, self.references, self.allowed)
        return Exclusion(self.itself, *(None if side is None else side[order] for side in sides))


def exclusion(
    queries: int,
    references: int,
    itself: bool,
    sequences: Labels | None = None,
    gallery_sequences: Labels | None = None,
) -> Exclusion:
    """Check the sequences and return which references each query must not find."""
    if sequences is None and gallery_sequences is None:
        return Exclusion(itself)
    if itself:
        if sequences is None or gallery_sequences is not None:
            raise InputError("Without a gallery, pass `sequences` alone, one entry per item.")
        _, (codes,) = as_codes(sequences, sizes=[queries], name="sequences")
        return Exclusion(True, codes, codes)
    if sequences is None or gallery_sequences is None:
        raise InputError("With a gallery, pass `sequences` and `gallery_sequences` together.")
    _, (query_codes, reference_codes) = as_codes(
        sequences, gallery_sequences, sizes=[queries, references], name="sequences"
    )
    return Exclusion(False, query_codes, reference_codes)
