"""Better neighbours from the same vectors: whitened, drawn towards their neighbours, or in the order of shared ones."""

from __future__ import annotations

from dataclasses import replace

import torch

from vicinal.errors import InputError
from vicinal.evaluation.scored_items import ScoredItems
from vicinal.neighbours.expansion import augment_references, expand_queries
from vicinal.neighbours.nearest import Neighbours, collect
from vicinal.neighbours.reranking import Reranker, Reranking
from vicinal.neighbours.similarity import vectors
from vicinal.neighbours.whitening import Whitening

__all__ = ["improved_items", "reranked_neighbours"]


def improved_items(
    scored: ScoredItems, *, whitening: Whitening | None = None, augment: int = 0, expand: int = 0
) -> ScoredItems:
    """Whiten all vectors, then draw references towards their neighbours, then queries towards the references.

    Args:
        scored: Queries and references.
        whitening: Learned elsewhere, on training classes; after it vectors are compared by their cosine.
        augment: Neighbours that a reference is drawn towards; 0 for none.
        expand: References that a query is drawn towards; 0 for none.
    """
    if min(augment, expand) < 0:
        raise InputError(f"augment and expand must not be negative; got {augment} and {expand}.")
    itself = scored.ignored.itself
    queries, references, distance = scored.queries.rows, scored.references.rows, scored.queries.distance
    if whitening is not None:
        queries = torch.from_numpy(whitening.apply(queries.numpy()))
        references = queries if itself else torch.from_numpy(whitening.apply(references.numpy()))
        distance = "cosine"
    if augment or expand:
        _check_drawing(scored, distance)
        # Where items are searched among themselves none may be drawn towards itself, nor towards its own copy.
        asked, plain = queries, references
        if augment:
            references = augment_references(plain, count=augment)
        if expand:
            queries = expand_queries(asked, None if itself else references, count=expand)
    elif whitening is None:
        return scored
    asked_for, among = vectors(queries, references, distance=distance)
    return replace(scored, queries=asked_for, references=among)


def reranked_neighbours(scored: ScoredItems, many: int, rerank: Reranking) -> Neighbours:
    """Return at least `many` neighbours of every query, the shortlist of each in the order of shared neighbours."""
    if scored.ignored.queries is not None:
        raise InputError("Re-ranking looks at all neighbours; it does not know of sequences.")
    enough = min(max(many, rerank.shortlist), len(scored.references))
    found = collect(scored.queries, scored.references, scored.ignored, enough)
    reranker = Reranker(scored.references.rows, scored.references.distance, settings=rerank)
    if scored.ignored.itself:
        return reranker.reordered_items(torch.arange(len(scored.queries)), found)
    return reranker.reordered(scored.queries.rows, found)


def _check_drawing(scored: ScoredItems, distance: str) -> None:
    if distance != "cosine":
        raise InputError("Vectors are drawn towards their neighbours on the sphere: expand and augment need cosines.")
    if scored.ignored.queries is not None:
        raise InputError("Expansion looks at all neighbours; it does not know of sequences.")
