"""Scored items: queries and gallery, and which references are relevant to which query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    "Gallery",
    "GroundTruth",
    "LabelledItems",
    "OverlappingSets",
    "SameClass",
    "ScoredItems",
    "as_scored_items",
    "by_role",
    "name_a_gallery",
]


# Relevance: a query should find the references of its class, or those whose label set overlaps with its own.
# The full matrix of pairs is never in memory: both classes answer for some rows at a time.

PAIRS_AT_ONCE = 1 << 22  # pairs of sets compared at a time, per thread


@dataclass(frozen=True)
class SameClass:
    """A reference is relevant if it has the query's class.

    Args:
        codes: Class of each query.
        reference_codes: Class of each reference.
    """

    codes: Int64[Tensor, " n"]
    reference_codes: Int64[Tensor, " m"]

    def count(self, ignored: Exclusion) -> Int64[Tensor, " n"]:
        """Return the number of relevant references of each query, without ignored ones."""
        classes = int(max(self.codes.max(), self.reference_codes.max())) + 1
        relevant = torch.bincount(self.reference_codes, minlength=classes)[self.codes]
        if ignored.queries is None or ignored.references is None:
            return relevant - int(ignored.itself)
        both = int(max(ignored.queries.max(), ignored.references.max())) + 1
        _, (own, other) = as_codes(
            self.codes * both + ignored.queries, self.reference_codes * both + ignored.references
        )
        size = int(max(own.max(), other.max())) + 1
        return relevant - torch.bincount(other, minlength=size)[own]

    def hits(self, rows: Int64[Tensor, " r"], columns: Int64[Tensor, "r k"]) -> Bool[Tensor, "r k"]:
        """Return whether the references `columns[i]` are relevant to query `rows[i]`; -1 is no reference."""
        return (self.reference_codes[columns] == self.codes[rows, None]) & (columns >= 0)

    @property
    def together(self) -> Int64[Tensor, " m"]:
        """Indices of the references, ordered so that items of one class are adjacent."""
        return self._by_class[0]

    def positives(self, rows: Int64[Tensor, " r"]) -> Int64[Tensor, "r p"]:
        """Return the references that are relevant to each of some queries, padded with -1; includes ignored ones."""
        order, sizes = self._by_class
        own = self.codes[rows]
        offset = torch.arange(max(1, int(sizes[own].max())))
        present = offset < sizes[own, None]
        starts = sizes.cumsum(0) - sizes
        return order[torch.where(present, starts[own, None] + offset, 0)].where(present, -1)

    @cached_property
    def _by_class(self) -> tuple[Int64[Tensor, " m"], Int64[Tensor, " c"]]:
        """Indices of the references ordered by class, and the size of each class."""
        sizes = torch.bincount(self.reference_codes, minlength=int(self.codes.max()) + 1)
        return self.reference_codes.argsort(stable=True), sizes


@dataclass(frozen=True)
class OverlappingSets:
    """A reference is relevant if it shares labels with the query, as `vicinal.pairs.masks` defines it for training.

    Args:
        sets: Labels of each query, a row of booleans.
        reference_sets: Labels of each reference.
        overlap: Jaccard index that must be exceeded; 0 requires one common label.
    """

    sets: Bool[Tensor, "n c"]
    reference_sets: Bool[Tensor, "m c"]
    overlap: float = 0.0

    def count(self, ignored: Exclusion) -> Int64[Tensor, " n"]:
        """Return the number of relevant references of each query, without ignored ones."""
        counts = []
        everything = torch.arange(len(self.sets))
        for part in self._parts(len(self.sets)):
            rows = everything[part]
            relevant = self._mask(rows).float()
            ignored.apply(relevant, rows, 0)
            counts.append((relevant > 0).sum(dim=1))
        return torch.cat(counts)

    def hits(self, rows: Int64[Tensor, " r"], columns: Int64[Tensor, "r k"]) -> Bool[Tensor, "r k"]:
        """Return whether the references `columns[i]` are relevant to query `rows[i]`; -1 is no reference."""
        relevant = [self._mask(rows[part]).gather(1, columns[part].clamp(min=0)) for part in self._parts(len(rows))]
        return torch.cat(relevant) & (columns >= 0)

    def positives(self, rows: Int64[Tensor, " r"]) -> Int64[Tensor, "r p"]:
        """Return the references that are relevant to each of some queries, padded with -1; includes ignored ones."""
        relevant = self._mask(rows)
        row, column = relevant.nonzero(as_tuple=True)
        counts = relevant.sum(dim=1)
        first = counts.cumsum(0) - counts
        filled = torch.full((len(rows), max(1, int(counts.max()))), -1)
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
    """Return whether labels are sets: a row of booleans for each item."""
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
    """Number the distinct sets, and name each by the indices of its labels: "0+3", "none" for the empty set.

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
    """Embeds items and names the distance that compares the embeddings, such as an `Embedder`."""

    @property
    def distance(self) -> str: ...  # noqa: D102 (see the class)
    def encode(self, inputs: Any, /) -> NDArray[np.float32]: ...  # noqa: D102


@runtime_checkable
class LabelledItems(Protocol):
    """Items with labels, and with roles if queries are searched in a gallery, such as a `Dataset`."""

    labels: NDArray[Any]
    roles: NDArray[Any] | None


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Labels, and which references count for a query.

    Args:
        labels: One label per row; sets of labels; or the dataset of the rows.
        sequences: One entry per row, such as the video it is from; references with the query's entry are ignored.
        overlap: Jaccard index above which two sets of labels match; 0 for one common label.

    Example:
        >>> from vicinal.evaluation import evaluate
        >>> rows, frames = [[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]], ["a", "a", "b", "c"]
        >>> evaluate(rows, GroundTruth([0, 0, 0, 1], sequences=frames)).queries
        4
    """

    labels: Any
    sequences: Labels | None = None
    overlap: float = 0.0


Gallery: TypeAlias = tuple[ArrayLike, Labels | LabelSets | GroundTruth]


@dataclass(frozen=True)
class ScoredItems:
    """Queries and references, ready to be compared.

    Args:
        queries: Vectors of the queries.
        references: Vectors that are searched; the queries themselves if there is no gallery.
        codes: Class of each query, an index into `classes`.
        reference_codes: Class of each reference.
        classes: Labels in ascending order.
        ignored: Pairs of a query and a reference that do not count.
        relevance: References that a query should find.
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
    gallery: Any = None,
    distance: str | None = None,
    sets: bool = False,
) -> ScoredItems:
    """Validate the inputs of `evaluate` and `verify`; an embedder embeds the items of a dataset.

    Args:
        embeddings: One row per query; or an embedder.
        labels: One label per row, a dataset, or `GroundTruth`.
        gallery: Embeddings and labels of the references.
        distance: "cosine" or "euclidean"; by default the embedder's own, and cosine for embeddings.
        sets: Whether labels may be sets; each distinct set is then a class.
    """
    truth = labels if isinstance(labels, GroundTruth) else GroundTruth(labels)
    if isinstance(embeddings, Encoder):
        if not isinstance(truth.labels, LabelledItems) and hasattr(embeddings, "labelled"):
            truth = replace(truth, labels=embeddings.labelled(truth.labels))  # a dataset of another library
        if not isinstance(truth.labels, LabelledItems):
            raise InputError(f"An embedder is scored on a Dataset; got {type(truth.labels).__name__}.")
        distance = distance or embeddings.distance
        embeddings = embeddings.encode(truth.labels)
    if isinstance(truth.labels, LabelledItems):
        embeddings, truth, gallery = by_role(np.asarray(embeddings), truth.labels.labels, truth.labels.roles, truth)
    others, gallery_truth = _checked_gallery(gallery, truth)
    items = as_embeddings(embeddings)
    relevance: Relevance
    if are_sets(truth.labels):
        if not sets:
            raise InputError("Sets of labels are scored by `evaluate` alone; this needs one label per item.")
        classes, codes, reference_codes, relevance = _joint_sets(items, truth, others, gallery_truth)
    else:
        if truth.overlap:
            raise InputError("overlap is for labels that are sets: booleans [items, labels].")
        classes, codes, reference_codes = _joint_codes(items, truth, others, gallery_truth)
        relevance = SameClass(codes, reference_codes)
    queries, references = vectors(items, others, distance=distance or "cosine")
    gallery_sequences = None if gallery_truth is None else gallery_truth.sequences
    ignored = exclusion(len(queries), len(references), others is None, truth.sequences, gallery_sequences)
    return ScoredItems(queries, references, codes, reference_codes, classes, ignored, relevance)


def by_role(
    embeddings: NDArray[Any],
    labels: NDArray[Any],
    roles: NDArray[Any] | None,
    truth: GroundTruth | None = None,
) -> tuple[NDArray[Any], GroundTruth, Gallery | None]:
    """Divide items into queries and gallery if their roles name both; otherwise all items are both.

    Args:
        embeddings: One row per item.
        labels: One label, or set of labels, per item.
        roles: Role of each item, or None.
        truth: Sequences and overlap, one entry per item; its labels are ignored.

    Returns:
        Embeddings and labels of the queries, and the gallery.
    """
    truth = replace(truth or GroundTruth(labels), labels=labels)
    if roles is None or not name_a_gallery(roles):
        return embeddings, truth, None
    query, gallery = roles == "query", roles == "gallery"
    if truth.sequences is None:
        sequences, gallery_sequences = None, None
    else:
        entries = np.asarray(truth.sequences)
        if len(entries) != len(roles):
            raise InputError(f"There are {len(roles)} items but {len(entries)} sequences; give one entry per item.")
        sequences, gallery_sequences = entries[query], entries[gallery]
    queries = GroundTruth(labels[query], sequences, truth.overlap)
    return embeddings[query], queries, (embeddings[gallery], GroundTruth(labels[gallery], gallery_sequences))


def name_a_gallery(roles: NDArray[Any]) -> bool:
    """Return whether roles name both queries and a gallery; for a dataset, see `Dataset.has_gallery`."""
    return {"query", "gallery"} <= set(roles.tolist())


def _checked_gallery(gallery: Any, truth: GroundTruth) -> tuple[Tensor | None, GroundTruth | None]:
    """Return the embeddings of a gallery and its labels; both None if there is no gallery."""
    if gallery is None:
        return None, None
    if not isinstance(gallery, tuple) or len(gallery) != 2:
        raise InputError(
            "A gallery is a pair of embeddings and labels, gallery=(embeddings, labels); "
            f"got {f'a tuple of {len(gallery)}' if isinstance(gallery, tuple) else type(gallery).__name__}."
        )
    rows, labels = gallery
    if labels is None:
        raise InputError("A gallery needs labels, one per reference: gallery=(embeddings, labels).")
    others = labels if isinstance(labels, GroundTruth) else GroundTruth(labels)
    if others.overlap:
        raise InputError("Pass overlap with the labels of the queries, not with those of the gallery.")
    if (others.sequences is None) != (truth.sequences is None):
        raise InputError(
            "Queries and gallery need sequences alike: evaluate(embeddings, GroundTruth(labels, sequences), "
            "gallery=(embeddings, GroundTruth(labels, sequences)))."
        )
    return as_embeddings(rows, "gallery embeddings"), others


def _joint_codes(
    items: Tensor, truth: GroundTruth, others: Tensor | None, gallery: GroundTruth | None
) -> tuple[Classes, Tensor, Tensor]:
    if others is None or gallery is None:
        classes, (codes,) = as_codes(truth.labels, sizes=[len(items)])
        return tuple(classes), codes, codes  # type: ignore[return-value]
    classes, (codes, reference_codes) = as_codes(truth.labels, gallery.labels, sizes=[len(items), len(others)])
    return tuple(classes), codes, reference_codes  # type: ignore[return-value]


def _joint_sets(
    items: Tensor, truth: GroundTruth, others: Tensor | None, gallery: GroundTruth | None
) -> tuple[Classes, Tensor, Tensor, OverlappingSets]:
    overlap = truth.overlap
    if not 0 <= overlap < 1:
        raise InputError(f"overlap must be at least 0 and below 1; got {overlap}.")
    sets = as_sets(truth.labels, len(items))
    if others is None or gallery is None:
        classes, codes = set_codes(sets)
        return classes, codes, codes, OverlappingSets(sets, sets, overlap)
    reference_sets = as_sets(gallery.labels, len(others), "labels of the gallery")
    if sets.shape[1] != reference_sets.shape[1]:
        raise InputError(
            f"Sets of labels need the same columns: those of the queries have {sets.shape[1]}, those of the gallery "
            f"{reference_sets.shape[1]}."
        )
    classes, codes = set_codes(torch.cat([sets, reference_sets]))
    query_codes, reference_codes = codes[: len(sets)], codes[len(sets) :]
    return classes, query_codes, reference_codes, OverlappingSets(sets, reference_sets, overlap)
