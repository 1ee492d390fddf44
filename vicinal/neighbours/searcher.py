"""Exact search with references that are prepared once and searched many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.exact import BLOCK
from vicinal.neighbours.inputs import ArrayLike, Exclusion, as_embeddings, read_only
from vicinal.neighbours.nearest import Neighbours, check_k, collect
from vicinal.neighbours.references import PILOT, PreparedReferences, as_arrays, from_arrays, pilot, prepare
from vicinal.neighbours.similarity import Vectors, vectors, vectors_like

__all__ = ["Among", "Searcher"]

Among: TypeAlias = Tensor | NDArray[np.bool_] | NDArray[np.integer] | Sequence[int] | Sequence[bool]

DIRECT = 1 << 14  # number of chosen references up to which laying them out is cheaper than scanning all
ENOUGH = 8  # the pilot needs this many times k chosen references to set a useful bar


class Searcher:
    """Finds the nearest references of any queries, exactly, without laying out the references again.

    Results are bit for bit those of `find_neighbours` for the same queries and references: the same indices and the
    same values, with ties in the order of the index. Preparation costs a few passes over the references. A search
    reads their 8-bit integers once and compares the few remaining candidates with the rows themselves.

    Several threads may search at once. Rows that are int8 or floats are kept without a copy and must not change. They
    may be a memory map, of which a search reads only the candidates.

    For the Euclidean distance, all vectors are scaled below length one by the same power of two: the smaller of those
    that the queries and the references need. As long as no query reaches the power of two above the longest reference,
    that is the one the references were prepared with, so nothing about them depends on the queries. A call with a
    longer query needs a smaller one and prepares the references again: as slow as `find_neighbours`, with the same
    result.

    Args:
        references: One row per reference: torch, numpy or lists.
        distance: "cosine" or "euclidean".
        precision: "int8", which is used only if this processor and this torch are fast at it, or "float32". Only speed
            and memory depend on it.
        block: Rows and columns of float32 products computed at a time; integers have wider blocks. Only speed and
            memory depend on it.

    Example:
        >>> searcher = Searcher([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> searcher.search([[2.0, 0.1]], k=2).indices.tolist()
        [[0, 2]]
        >>> searcher.search([[2.0, 0.1]], k=2, among=[1, 2]).indices.tolist()
        [[2, 1]]
        >>> len(searcher), searcher.dim, searcher.distance
        (3, 2, 'cosine')
    """

    def __init__(
        self,
        references: ArrayLike,
        distance: str = "cosine",
        *,
        precision: str = "int8",
        block: int = BLOCK,
    ) -> None:
        if precision not in ("int8", "float32"):
            raise InputError(f"The precision of a Searcher is 'int8' or 'float32', got {precision!r}.")
        rows = as_embeddings(references, "references", as_given=True)
        self.block = block
        self._prepared = prepare(vectors(rows, distance=distance)[0], precision, block)

    @classmethod
    def from_layout(
        cls, references: ArrayLike, distance: str, layout: Mapping[str, NDArray[Any]], *, block: int = BLOCK
    ) -> Searcher:
        """Return a searcher for references that were prepared before, without a pass over them.

        Args:
            references: The rows that were prepared; this is not checked.
            distance: The distance that they were prepared for.
            layout: Result of `layout`.
            block: Rows and columns of float32 products computed at a time, as for a new searcher.
        """
        searcher = cls.__new__(cls)
        searcher.block = block
        rows = references if isinstance(references, Tensor) else read_only(np.asarray(references))
        searcher._prepared = from_arrays(rows, distance, layout)
        return searcher

    def layout(self) -> dict[str, NDArray[Any]] | None:
        """Return the parts that are slow to prepare, as arrays; None if nothing is slow."""
        return as_arrays(self._prepared)

    def __len__(self) -> int:
        return len(self._prepared.vectors)

    def __repr__(self) -> str:
        kind = "float32" if self._prepared.codes is None else "int8"
        return f"Searcher({len(self):,} references, {self.dim} dimensions, {self.distance}, {kind})"

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self._prepared.vectors.rows.shape[1]

    @property
    def distance(self) -> str:
        """How vectors are compared: "cosine" or "euclidean"."""
        return self._prepared.vectors.distance

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the searcher holds in addition to the rows."""
        return self._prepared.nbytes

    def search(self, queries: ArrayLike, k: int, *, among: Among | None = None) -> Neighbours:
        """Find the k nearest references of each query, nearest first, ties by index.

        Args:
            queries: One row per query.
            k: Number of neighbours; results are padded with -1 and NaN if there are fewer references.
            among: References that may be found: one boolean per reference, or their indices in any order.
        """
        rows = as_embeddings(queries, "queries")
        check_k(k, len(self))
        allowed = None if among is None else _mask(among, len(self))
        prepared = self._prepared
        exact = vectors_like(rows, prepared.vectors)
        if exact is None:
            exact, longer = vectors(rows, prepared.vectors.rows, distance=self.distance)
            chosen = None if allowed is None else allowed.nonzero().squeeze(1)
            return self._directly(exact, longer, k, chosen)
        if allowed is None:
            return collect(exact, prepared, Exclusion(False), k, block=self.block)
        chosen = allowed.nonzero().squeeze(1)
        if prepared.codes is None or len(chosen) <= DIRECT:
            return self._directly(exact, prepared.vectors, k, chosen)
        some = Exclusion(False, allowed=allowed)
        return collect(exact, _with_pilot(prepared, allowed, chosen, k), some, k, block=self.block)

    def _directly(
        self, queries: Vectors, references: Vectors, k: int, chosen: Int64[Tensor, " c"] | None
    ) -> Neighbours:
        """Prepare the chosen references for this call alone."""
        if chosen is None:
            return collect(queries, references, Exclusion(False), k, block=self.block)
        if not len(chosen):
            empty = torch.full((len(queries), k), torch.nan, dtype=torch.float64)
            return Neighbours(torch.full((len(queries), k), -1), empty)
        nearest = collect(queries, references.take(chosen), Exclusion(False), k, block=self.block)
        return Neighbours(torch.where(nearest.indices < 0, -1, chosen[nearest.indices]), nearest.values)


def _with_pilot(
    prepared: PreparedReferences, allowed: Bool[Tensor, " m"], chosen: Int64[Tensor, " c"], k: int
) -> PreparedReferences:
    """Return references whose pilot, which sets the first bars, contains enough of the allowed ones."""
    if prepared.pilot is not None and int(allowed[prepared.pilot.index].sum()) >= ENOUGH * k:
        return prepared
    spread = torch.linspace(0, len(chosen) - 1, min(len(chosen), PILOT), dtype=torch.float64).long()
    return replace(prepared, pilot=pilot(prepared.vectors, prepared.mean, chosen[spread]))


def _mask(among: Among, references: int) -> Bool[Tensor, " m"]:
    values = among.detach().cpu() if isinstance(among, Tensor) else torch.from_numpy(np.array(among))
    if values.ndim == 1 and values.dtype == torch.bool:
        if len(values) != references:
            raise InputError(f"The mask `among` needs {references} entries, one per reference; got {len(values)}.")
        return values
    if values.ndim != 1 or (len(values) and (values.is_floating_point() or values.is_complex())):
        raise InputError(
            "`among` must be a list of booleans, one per reference, or of indices; "
            f"got the shape {tuple(values.shape)} and {values.dtype}."
        )
    index = values.long()
    outside = index[(index < 0) | (index >= references)]
    if len(outside):
        raise InputError(f"`among` holds the index {int(outside[0])}; indices must be from 0 to {references - 1}.")
    mask = torch.zeros(references, dtype=torch.bool)
    mask[index] = True
    return mask
