"""References laid out once, for any number of searches: as 8-bit integers where that pays, else in float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vicinal.neighbours.int8_references import WIDTH, Int8References, int8_pays, int8_references
from vicinal.neighbours.layout import PADDING, BoundedLayout, Bounds, centre, lay_out
from vicinal.neighbours.similarity import Vectors

__all__ = ["Pilot", "PreparedReferences", "pilot", "prepare", "with_pilot"]

INT8_FROM = 3  # blocks of references; with fewer, most of them set the bar
PILOT = 1 << 14  # references that set the first bars, at most
PILOT_SHARE = 1 / 8  # of all references: more would cost more than the pairs that they spare
BLOCKS_TO_SCAN = 32  # blocks of float32 products as wide as one of integers, at most
PARTS_TO_SCAN = 4  # blocks of integers, at least: bars rise from one to the next, and cores share them


@dataclass(frozen=True)
class Pilot:
    """Some of the references, in float32: their products set the first bars.

    Args:
        index: Which, in rising order.
        layout: Of these alone.
    """

    index: Int64[Tensor, " p"]
    layout: BoundedLayout


@dataclass(frozen=True)
class PreparedReferences:
    """What a search needs to know about its references, whatever the queries.

    Args:
        vectors: The references, as they compare exactly.
        mean: What is taken off all vectors.
        bounds: Of the references in float32.
        codes: Their integers, if they are to be scanned.
        pilot: Given together with the integers.
        kept: Their float32 layout, if there are no integers.
    """

    vectors: Vectors
    mean: Float64[Tensor, " d"]
    bounds: Bounds
    codes: Int8References | None = None
    pilot: Pilot | None = None
    kept: BoundedLayout | None = None

    def layout(self) -> BoundedLayout:
        """The references in float32: kept, or laid out for one search that integers do not serve."""
        return self.kept or lay_out(self.vectors, self.mean, "float32")

    @property
    def nbytes(self) -> int:
        """Bytes held on top of the rows themselves."""
        n, d = self.vectors.rows.shape
        total = sum(side.untyped_storage().nbytes() for side in (self.vectors.scale, self.vectors.offset, self.mean))
        if self.codes is not None:
            total += n * (d + 4 + 4)  # the integers, a bias, and a length (or the sum of the integers), in 4 bytes each
        for laid in (self.kept, self.pilot.layout if self.pilot else None):
            if laid is not None:
                total += sum(part.nbytes for part in (laid.matrix, laid.length, laid.residual, laid.height))
        return total + (self.pilot.index.nbytes if self.pilot else 0)


def prepare(references: Vectors, precision: str, block: int) -> PreparedReferences:
    """Lay out references, in integers if `precision` is "int8" and there are many of them, else in float32.

    Args:
        references: From `vectors`.
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
    kept = lay_out(references, mean, "float32")
    return PreparedReferences(references, mean, kept.bounds, kept=kept)


def with_pilot(references: Vectors, mean: Float64[Tensor, " d"], codes: Int8References) -> PreparedReferences:
    """References whose integers are laid out, with some of them to set the first bars."""
    bounds = Bounds.in_float32(codes.longest, codes.highest, len(mean))
    size = min(PILOT, max(PADDING, int(PILOT_SHARE * len(references))))
    sample = torch.linspace(0, len(references) - 1, size, dtype=torch.float64).long()
    return PreparedReferences(references, mean, bounds, codes, pilot(references, mean, sample))


def pilot(references: Vectors, mean: Float64[Tensor, " d"], index: Int64[Tensor, " p"]) -> Pilot:
    """Lay out the references `index`, spread over all of them: neighbours in a file are often alike."""
    return Pilot(index, lay_out(references.take(index), mean, "float32"))
