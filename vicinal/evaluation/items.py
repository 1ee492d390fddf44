"""The items that are scored: queries and gallery, and which items are relevant to which query."""

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


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Labels, and which references count for a query.

    Args:
        labels: One label per row; sets of labels; or the dataset that the rows are of.
        sequences: One entry per row, such as the video it is from; references with the query's entry are ignored.
        overlap: For sets of labels: two match where their Jaccard similarity is above this; 0 for one common label.

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
    gallery: Any = None,
    distance: str | None = None,
    sets: bool = False,
) -> ScoredItems:
    """Check what `evaluate` and `verify` are given; an embedder embeds the items of a dataset.

    Args:
        embeddings: One row per query; or an embedder.
        labels: One label per row, a dataset, or `GroundTruth`.
        gallery: Embeddings and labels of the references.
        distance: "cosine" or "euclidean"; by default the embedder's own, and cosine for embeddings.
        sets: Whether labels may be sets; their classes are then the sets that differ.
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
    """Divide items into queries and gallery where their roles name both; all items are both where they do not.

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
    """Return whether roles name queries and a gallery; `Dataset.has_gallery` says so of a dataset."""
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
        raise InputError("overlap is given with the labels of the queries, not with those of the gallery.")
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
