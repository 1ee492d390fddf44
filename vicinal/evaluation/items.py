"""The items that are scored: queries and gallery, and which items are relevant to which query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.inputs import ArrayLike, Exclusion, Labels, as_codes, as_embeddings, exclusion
from vicinal.neighbours.similarity import Vectors, vectors
from vicinal.pairs import masks

__all__ = [
    "Encoder",
    "LabelSets",
    "LabelledItems",
    "OverlappingSets",
    "SameClass",
    "ScoredItems",
    "as_scored_items",
    "by_role",
]


# Which references a query should find: those of its class, or those whose set of labels overlaps with its own.
#
# What holds for all pairs is never held at once: both kinds answer for some rows at a time.

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


Classes: TypeAlias = tuple[int, ...] | tuple[str, ...]


@runtime_checkable
class Encoder(Protocol):
    """What embeds items and knows how its embeddings are compared: an `Embedder`, say."""

    @property
    def distance(self) -> str: ...  # noqa: D102 (said above)
    def encode(self, inputs: Any, /) -> NDArray[np.float32]: ...  # noqa: D102


@runtime_checkable
class LabelledItems(Protocol):
    """Items with labels, and roles where queries are searched in a gallery: a `Dataset`, say."""

    labels: NDArray[Any]
    roles: NDArray[Any] | None


@dataclass(frozen=True)
class ScoredItems:
    """Queries and references, ready to be compared.

    Args:
        queries: What is looked for.
        references: Among what; the queries themselves where there is no gallery.
        codes: The class of each query, a position in `classes`.
        reference_codes: The class of each reference.
        classes: The labels in rising order.
        ignored: Which pairs of a query and a reference do not count.
        relevance: Which references a query should find.
    """

    queries: Vectors
    references: Vectors
    codes: Int64[Tensor, " n"]
    reference_codes: Int64[Tensor, " m"]
    classes: Classes
    ignored: Exclusion
    relevance: Relevance


def as_scored_items(
    embeddings: ArrayLike | Encoder,
    labels: Any,
    *,
    gallery: ArrayLike | None = None,
    gallery_labels: Labels | LabelSets | None = None,
    sequences: Labels | None = None,
    gallery_sequences: Labels | None = None,
    distance: str | None = None,
    overlap: float | None = None,
) -> ScoredItems:
    """Check what `evaluate` and `verify` are given; an embedder embeds the items of a dataset.

    Labels that are sets are taken where an `overlap` is given; their classes are the sets that differ.
    """
    if isinstance(embeddings, Encoder):
        if not isinstance(labels, LabelledItems) and hasattr(embeddings, "labelled"):
            labels = embeddings.labelled(labels)  # a dataset of another library
        if not isinstance(labels, LabelledItems):
            raise InputError(f"An embedder is scored on a Dataset; got {type(labels).__name__}.")
        distance = distance or embeddings.distance
        embeddings = embeddings.encode(labels)
    if isinstance(labels, LabelledItems):
        rows = np.asarray(embeddings)
        embeddings, labels, gallery, gallery_labels = by_role(rows, labels.labels, labels.roles)
    items = as_embeddings(embeddings)
    others = None if gallery is None else as_embeddings(gallery, "gallery embeddings")
    relevance: Relevance
    if are_sets(labels):
        classes, codes, reference_codes, relevance = _joint_sets(items, labels, others, gallery_labels, overlap)
    else:
        if overlap:
            raise InputError("overlap is for labels that are sets: booleans [items, labels].")
        classes, codes, reference_codes = _joint_codes(items, labels, others, gallery_labels)
        relevance = SameClass(codes, reference_codes)
    queries, references = vectors(items, others, distance=distance or "cosine")
    ignored = exclusion(len(queries), len(references), gallery is None, sequences, gallery_sequences)
    return ScoredItems(queries, references, codes, reference_codes, classes, ignored, relevance)


def by_role(
    embeddings: NDArray[np.float32], labels: NDArray[Any], roles: NDArray[Any] | None
) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32] | None, NDArray[Any] | None]:
    """Divide items into queries and gallery where their roles name both; all items are both where they do not.

    Returns:
        Embeddings and labels of the queries, and of the gallery.
    """
    if roles is None or not {"query", "gallery"} <= set(roles.tolist()):
        return embeddings, labels, None, None
    query, gallery = roles == "query", roles == "gallery"
    return embeddings[query], labels[query], embeddings[gallery], labels[gallery]


def _check_gallery(others: Tensor | None, gallery_labels: Any) -> None:
    if others is None and gallery_labels is not None:
        raise InputError("gallery_labels came without a gallery; give both or neither.")
    if others is not None and gallery_labels is None:
        raise InputError("A gallery needs gallery_labels, one label per reference.")


def _joint_codes(
    items: Tensor, labels: Any, others: Tensor | None, gallery_labels: Any
) -> tuple[Classes, Tensor, Tensor]:
    _check_gallery(others, gallery_labels)
    if others is None or gallery_labels is None:
        classes, (codes,) = as_codes(labels, sizes=[len(items)])
        return tuple(classes), codes, codes  # type: ignore[return-value]
    classes, (codes, reference_codes) = as_codes(labels, gallery_labels, sizes=[len(items), len(others)])
    return tuple(classes), codes, reference_codes  # type: ignore[return-value]


def _joint_sets(
    items: Tensor, labels: Any, others: Tensor | None, gallery_labels: Any, overlap: float | None
) -> tuple[Classes, Tensor, Tensor, OverlappingSets]:
    if overlap is None:
        raise InputError("Sets of labels are scored by `evaluate` alone; this needs one label per item.")
    if not 0 <= overlap < 1:
        raise InputError(f"overlap must be at least 0 and below 1; got {overlap}.")
    _check_gallery(others, gallery_labels)
    sets = as_sets(labels, len(items))
    if others is None:
        classes, codes = set_codes(sets)
        return classes, codes, codes, OverlappingSets(sets, sets, overlap)
    reference_sets = as_sets(gallery_labels, len(others), "gallery_labels")
    if sets.shape[1] != reference_sets.shape[1]:
        raise InputError(
            f"Sets of labels need the same columns: labels have {sets.shape[1]}, gallery_labels "
            f"{reference_sets.shape[1]}."
        )
    classes, codes = set_codes(torch.cat([sets, reference_sets]))
    mine, theirs = codes[: len(sets)], codes[len(sets) :]
    return classes, mine, theirs, OverlappingSets(sets, reference_sets, overlap)
