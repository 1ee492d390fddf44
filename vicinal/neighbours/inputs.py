"""Embeddings and labels, checked before anything is computed from them, and the pairs that do not count."""

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


FINITE_CHUNK = 1 << 20  # numbers that are checked at a time
LARGEST = 1e140  # whose square, summed over all dimensions, is far from float64's limits, as that of its inverse is


ArrayLike: TypeAlias = Tensor | NDArray[np.generic] | Sequence[Sequence[float]] | Sequence[Sequence[int]]
Labels: TypeAlias = Tensor | NDArray[np.generic] | Sequence[int] | Sequence[str]


def as_embeddings(values: ArrayLike, name: str = "embeddings", *, as_given: bool = False) -> Real[Tensor, "n d"]:
    """Return finite, non-empty embeddings as a detached matrix on the CPU, without a copy where possible.

    Float64 stays float64; every other kind of number becomes float32.

    Args:
        values: One row per item: a torch tensor on any device, a numpy array, or nested lists.
        name: What to call them in an error.
        as_given: Floats of any kind and 8-bit integers stay what and where they are, a read-only memory map too: they
            are only read.

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
    """Return an array, or say in words that the rows of a list are not of one length.

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
    """Return a whole number, of Python or numpy.

    Args:
        value: What was given.
        name: What to call it in an error.
        least: The smallest that it may be.

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
    """Refuse a least similarity that nothing could reach.

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
    """Number the distinct labels of one or several groups from 0, the same label by the same number.

    Args:
        *groups: Integers of any size or strings, each a torch tensor, a numpy array or a list.
        sizes: How many labels each group must have.
        name: What to call them in an error.

    Returns:
        The distinct labels in rising order, and the codes of each group.

    Example:
        >>> as_codes(["cat", "ant", "cat"])
        (['ant', 'cat'], [tensor([1, 0, 1])])
    """
    arrays = [_label_array(group, name) for group in groups]
    for array, size in zip(arrays, sizes or [], strict=False):
        if len(array) != size:
            raise InputError(f"There are {size} embeddings but {len(array)} {name}; each needs exactly one.")
    if len({array.dtype.kind in "US" for array in arrays}) > 1:
        raise InputError(f"The {name} of one group are strings and of the other numbers; use one kind.")
    distinct, codes = np.unique(np.concatenate(arrays), return_inverse=True)
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return distinct.tolist(), [torch.from_numpy(part) for part in np.split(codes.astype(np.int64), ends)]


def read_only(array: NDArray[np.generic]) -> Tensor:
    """A tensor on the same memory, which nobody may write to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)


def _require_finite(matrix: Tensor, name: str) -> None:
    """Raise `NotFinite` with the first offending row; one pass of sums finds the innocent case."""
    step = max(1, FINITE_CHUNK // matrix.shape[1])
    pieces = [matrix[start : start + step] for start in range(0, len(matrix), step)]
    kind = matrix.dtype if matrix.dtype == torch.float64 else torch.float32
    if bool(torch.isfinite(torch.stack([piece.sum(dtype=kind) for piece in pieces])).all()):
        return
    bad = torch.cat([(~torch.isfinite(piece)).any(dim=1) for piece in pieces]).nonzero().squeeze(1)
    if len(bad):
        raise NotFinite(
            f"{len(bad)} of {len(matrix)} rows of {name} hold NaN or infinity, the first of them row "
            f"{int(bad[0])}; mend the model or drop these items before evaluating."
        )


def _require_comparable(matrix: Tensor, name: str) -> None:
    """Refuse float64 rows so long or so short that their squares are infinite or zero; float32 has none."""
    if matrix.dtype != torch.float64:
        return
    step = max(1, FINITE_CHUNK // matrix.shape[1])
    largest = torch.cat([matrix[start : start + step].abs().amax(dim=1) for start in range(0, len(matrix), step)])
    bad = ((largest > LARGEST) | ((largest < 1 / LARGEST) & (largest > 0))).nonzero().squeeze(1)
    if len(bad):
        raise InputError(
            f"{len(bad)} of {len(matrix)} rows of {name} cannot be compared, the first of them row {int(bad[0])}: its "
            f"largest number is {float(largest[bad[0]]):.3g}, and must be between {1 / LARGEST:.0e} and {LARGEST:.0e} "
            "or zero. Multiply all of them by one factor, or mend the model."
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
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InputError(f"{name} must be all integers or all strings; got {found}.")
    if array.dtype.kind not in "iubUSO" and len(array):
        raise InputError(
            f"{name} must be integers or strings, got {array.dtype}; for floats that are whole numbers, "
            "convert them with .astype(int)."
        )
    return array


# Which references a query must not find.


@dataclass(frozen=True)
class Exclusion:
    """Which references a query must not find.

    Args:
        itself: The queries are the references: an item does not find itself.
        queries: A sequence per query; references of the same sequence are ignored.
        references: A sequence per reference.
        allowed: The references that may be found at all; without it, every one.
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
        """Put minus infinity where `rows`, in rising order, must not find the references from `first` on.

        Rows and references may be prolonged by padding.
        """
        if self.itself and int(rows[0]) < first + block.shape[1] and first <= int(rows[-1]):
            column = rows - first
            inside = ((column >= 0) & (column < block.shape[1])).nonzero().squeeze(1)
            block[inside, column[inside]] = -torch.inf
        if self.queries is not None and self.references is not None:
            mine = self.queries[rows[rows < len(self.queries)]]
            others = self.references[first : first + block.shape[1]]
            block[: len(mine), : len(others)].masked_fill_(mine[:, None] == others, -torch.inf)
        if self.allowed is not None:
            may = self.allowed[first : first + block.shape[1]]
            block[:, : len(may)].masked_fill_(~may, -torch.inf)

    def covers(self, rows: Int64[Tensor, " m"], columns: Int64[Tensor, " m"]) -> Bool[Tensor, " m"]:
        """Whether query `rows[i]` must not find reference `columns[i]`."""
        covered = rows == columns if self.itself else torch.zeros(len(rows), dtype=torch.bool)
        if self.queries is not None and self.references is not None:
            covered |= self.queries[rows] == self.references[columns]
        if self.allowed is not None:
            covered |= ~self.allowed[columns]
        return covered

    def among(self, index: Int64[Tensor, " s"]) -> Exclusion:
        """The same for the references `index` alone, of which no query is one."""
        references = None if self.references is None else self.references[index]
        return Exclusion(False, self.queries, references, None if self.allowed is None else self.allowed[index])

    def in_order(self, order: Int64[Tensor, " n"]) -> Exclusion:
        """The same for items that are searched in themselves and have been put in another order."""
        sides = (self.queries, self.references, self.allowed)
        return Exclusion(self.itself, *(None if side is None else side[order] for side in sides))


def exclusion(
    queries: int,
    references: int,
    itself: bool,
    sequences: Labels | None = None,
    gallery_sequences: Labels | None = None,
) -> Exclusion:
    """Check the sequences and say which references each query must not find."""
    if sequences is None and gallery_sequences is None:
        return Exclusion(itself)
    if itself:
        if sequences is None or gallery_sequences is not None:
            raise InputError("Without a gallery, give `sequences` alone, one entry per item.")
        _, (codes,) = as_codes(sequences, sizes=[queries], name="sequences")
        return Exclusion(True, codes, codes)
    if sequences is None or gallery_sequences is None:
        raise InputError("With a gallery, `sequences` and `gallery_sequences` must be given together.")
    _, (mine, theirs) = as_codes(sequences, gallery_sequences, sizes=[queries, references], name="sequences")
    return Exclusion(False, mine, theirs)
