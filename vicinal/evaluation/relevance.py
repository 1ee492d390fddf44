"""Which references a query should find: those of its class, or those whose set of labels overlaps with its own.

What holds for all pairs is never held at once: both kinds answer for some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.checked_inputs import as_codes
from vicinal.neighbours.exclusion import Exclusion
from vicinal.pairs import masks

__all__ = ["LabelSets", "OverlappingSets", "Relevance", "SameClass", "are_sets", "as_sets", "set_codes"]

PAIRS_AT_ONCE = 1 << 22  # whose sets are compared at a time, per thread


@dataclass(frozen=True)
class SameClass:
    """A reference is relevant if it has the query's class.

    Args:
        codes: The class of each query.
        reference_codes: The class of each reference.
    """

    codes: Int64[Tensor, " n"]
    reference_codes: Int64[Tensor, " m"]

    def count(self, ignored: Exclusion) -> Int64[Tensor, " n"]:
        """How many relevant references each query may find."""
        many = int(max(self.codes.max(), self.reference_codes.max())) + 1
        found = torch.bincount(self.reference_codes, minlength=many)[self.codes]
        if ignored.queries is None or ignored.references is None:
            return found - int(ignored.itself)
        both = int(max(ignored.queries.max(), ignored.references.max())) + 1
        _, (mine, theirs) = as_codes(
            self.codes * both + ignored.queries, self.reference_codes * both + ignored.references
        )
        size = int(max(mine.max(), theirs.max())) + 1
        return found - torch.bincount(theirs, minlength=size)[mine]

    def hits(self, rows: Int64[Tensor, " r"], columns: Int64[Tensor, "r k"]) -> Bool[Tensor, "r k"]:
        """Whether the references `columns[i]` are relevant to query `rows[i]`; -1 is none."""
        return (self.reference_codes[columns] == self.codes[rows, None]) & (columns >= 0)

    @property
    def together(self) -> Int64[Tensor, " m"]:
        """The references in an order in which those that should be neighbours stand together."""
        return self._by_class[0]

    def positives(self, rows: Int64[Tensor, " r"]) -> Int64[Tensor, "r p"]:
        """The references that are relevant to each of some queries, filled up with -1; ignored ones are among them."""
        order, sizes = self._by_class
        mine = self.codes[rows]
        place = torch.arange(max(1, int(sizes[mine].max())))
        known = place < sizes[mine, None]
        starts = sizes.cumsum(0) - sizes
        return order[torch.where(known, starts[mine, None] + place, 0)].where(known, -1)

    @cached_property
    def _by_class(self) -> tuple[Int64[Tensor, " m"], Int64[Tensor, " c"]]:
        """The references in the order of their classes, and how many each class has."""
        sizes = torch.bincount(self.reference_codes, minlength=int(self.codes.max()) + 1)
        return self.reference_codes.argsort(stable=True), sizes


@dataclass(frozen=True)
class OverlappingSets:
    """A reference is relevant if it shares labels with the query, as `vicinal.pairs.masks` has it for training.

    Args:
        sets: The labels of each query, a row of booleans.
        reference_sets: The labels of each reference.
        overlap: Their Jaccard index must be above this; 0 asks for one common label.
    """

    sets: Bool[Tensor, "n c"]
    reference_sets: Bool[Tensor, "m c"]
    overlap: float = 0.0

    def count(self, ignored: Exclusion) -> Int64[Tensor, " n"]:
        """How many relevant references each query may find."""
        counts = []
        everything = torch.arange(len(self.sets))
        for part in self._parts(len(self.sets)):
            rows = everything[part]
            relevant = self._mask(rows).float()
            ignored.apply(relevant, rows, 0)
            counts.append((relevant > 0).sum(dim=1))
        return torch.cat(counts)

    def hits(self, rows: Int64[Tensor, " r"], columns: Int64[Tensor, "r k"]) -> Bool[Tensor, "r k"]:
        """Whether the references `columns[i]` are relevant to query `rows[i]`; -1 is none."""
        found = [self._mask(rows[part]).gather(1, columns[part].clamp(min=0)) for part in self._parts(len(rows))]
        return torch.cat(found) & (columns >= 0)

    def positives(self, rows: Int64[Tensor, " r"]) -> Int64[Tensor, "r p"]:
        """The references that are relevant to each of some queries, filled up with -1; ignored ones are among them."""
        relevant = self._mask(rows)
        row, column = relevant.nonzero(as_tuple=True)
        many = relevant.sum(dim=1)
        first = many.cumsum(0) - many
        filled = torch.full((len(rows), max(1, int(many.max()))), -1)
        filled[row, torch.arange(len(row)) - first[row]] = column
        return filled

    def _mask(self, rows: Tensor) -> Tensor:
        return masks(self.sets[rows], self.reference_sets, overlap=self.overlap)[0]

    def _parts(self, many: int) -> Iterator[slice]:
        step = max(1, PAIRS_AT_ONCE // len(self.reference_sets))
        return (slice(start, start + step) for start in range(0, many, step))


LabelSets: TypeAlias = Tensor | NDArray[np.bool_] | Sequence[Sequence[bool]]
Relevance: TypeAlias = SameClass | OverlappingSets


def are_sets(labels: Any) -> bool:
    """Whether labels are sets: a row of booleans for each item."""
    if isinstance(labels, Tensor):
        return labels.ndim == 2 and labels.dtype == torch.bool
    try:
        array = np.asarray(labels)
    except ValueError:
        raise InputError("labels must have one entry per item; got rows of different lengths.") from None
    return array.ndim == 2 and array.dtype == np.bool_


def as_sets(labels: Any, items: int, name: str = "labels") -> Bool[Tensor, "n c"]:
    """Return sets of labels as a tensor on the CPU, one row for each item."""
    if not are_sets(labels):
        raise InputError(f"{name} must be sets as the others are: booleans [items, labels].")
    sets = labels.detach().cpu() if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    if len(sets) != items:
        raise InputError(f"There are {items} embeddings but {len(sets)} {name}; each needs exactly one row.")
    return sets


def set_codes(sets: Bool[Tensor, "n c"]) -> tuple[tuple[str, ...], Int64[Tensor, " n"]]:
    """Number the different sets, and name each by the places of its labels: "0+3", "none" for the empty one.

    Example:
        >>> set_codes(torch.tensor([[True, False, True], [False, False, False], [True, False, True]]))
        (('none', '0+2'), tensor([1, 0, 1]))
    """
    distinct, codes = np.unique(sets.numpy(), axis=0, return_inverse=True)
    names = tuple("+".join(map(str, np.flatnonzero(row))) or "none" for row in distinct)
    return names, torch.from_numpy(codes.reshape(-1).astype(np.int64))
