"""What is scored: embeddings with labels, or an embedder and a dataset, as queries, references and classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.evaluation.relevance import LabelSets, OverlappingSets, Relevance, SameClass, are_sets, as_sets, set_codes
from vicinal.neighbours.checked_inputs import ArrayLike, Labels, as_codes, as_embeddings
from vicinal.neighbours.exclusion import Exclusion, exclusion
from vicinal.neighbours.similarity import Vectors, vectors

__all__ = ["Encoder", "LabelledItems", "ScoredItems", "as_scored_items", "by_role"]


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
