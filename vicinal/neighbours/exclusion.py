"""Which references a query must not find."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.checked_inputs import Labels, as_codes

__all__ = ["Exclusion", "exclusion"]


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
