"""From a query to what is nearest: queries as vectors, and the search by whatever an index is told to do."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from vicinal.data.readers.layout import images_below
from vicinal.embedder import Embedder
from vicinal.embedder.query_embedding import embed_queries
from vicinal.errors import InputError
from vicinal.index.better_search import KeptReranker, expanded_rows, without
from vicinal.index.generations import Generation
from vicinal.index.given_rows import checked_rows
from vicinal.index.improved_store import ImprovedStore, ImprovedStores
from vicinal.index.item import Id
from vicinal.index.own_similarities import with_own_similarities
from vicinal.index.store import Answer, Store
from vicinal.index.where import Compare, Condition
from vicinal.neighbours.reranking import Reranking

__all__ = ["KeptForSearch", "embedded", "find_nearest", "vector_of"]

ATTEMPTS = 5  # to search an index that changes between two looks at it


@dataclass(frozen=True)
class KeptForSearch:
    """What one search prepares for the next: improved vectors, and sets of neighbours for re-ranking."""

    improved: ImprovedStores = field(default_factory=ImprovedStores)
    reranker: KeptReranker = field(default_factory=KeptReranker)


def find_nearest(
    generation: Generation,
    kept: KeptForSearch,
    rows: Float32[np.ndarray, "n d"],
    k: int,
    where: Condition | None,
    *,
    key: Id | None = None,
    fast: bool = False,
    expand: int = 0,
    rerank: Reranking | None = None,
    items: bool = True,
) -> Answer:
    """What is nearest to rows, of which a single one may be the item `key`; with the similarities of these rows.

    Args:
        generation: Which is searched.
        kept: Of the searches before.
        rows: The queries.
        k: How many.
        where: Which items may be found.
        key: The item that the query is, which it does not find.
        fast: Whether by codes; see `Index.search`.
        expand: Items that queries are drawn towards first.
        rerank: How to put what is found in order.
        items: Whether to say more of them than their ids.
    """
    store = generation.store
    for _ in range(ATTEMPTS):
        better = kept.improved.of(store, generation.folder)
        if rerank is not None and better is not None and better.improvement.augment:
            raise InputError("Re-ranking orders the nearest alone: it goes without the augmented vectors here.")
        searched: Store | ImprovedStore = store if better is None else better
        asked = rows if better is None else better.improvement.of_queries(rows)
        if expand:
            asked = expanded_rows(searched, asked, expand, where, key)
        many = k if rerank is None else max(k, rerank.shortlist)
        answer = searched.search(asked, many + (key is not None), where, fast=fast, items=items)
        answer = without(answer, key)
        if rerank is not None:
            state = generation.state() if better is None else better.state
            answer = kept.reranker.reordered(searched, state, asked, answer, rerank, None if expand else key)
        answer = replace(answer, ids=answer.ids[:, :k], similarities=answer.similarities[:, :k])
        if better is None and not expand:
            return answer
        plain = with_own_similarities(store, rows, answer, items=items)
        if plain is not None and (better is None or better.is_current()):
            return plain if better is None else replace(plain, improved=str(better.improvement))
    raise InputError("The index changes faster than it can be searched; search when it is at rest.")


def embedded(model: Embedder, query: Any) -> tuple[Float32[np.ndarray, "n d"], bool]:
    """Queries as vectors, and whether there is one alone.

    Args:
        model: What embeds them.
        query: A folder of images, or what the embedder takes.
    """
    if isinstance(query, str | os.PathLike) and Path(query).is_dir():
        query = list(images_below(Path(query)))
        if not query:
            raise InputError("That folder has no images to search for.")
    rows = embed_queries(model, query)
    if isinstance(query, str | os.PathLike) or not hasattr(query, "__len__"):
        single = True
    else:
        single = hasattr(query, "ndim") and len(rows) == 1 and len(query) != 1  # one image or vector as an array
    return checked_rows(rows, "the embeddings of the queries"), single


def vector_of(store: Store, key: Id, path: Path) -> tuple[Id, Float32[np.ndarray, "1 d"]]:
    """The vector of an item, and its id, which for a file is its absolute path.

    Args:
        store: Of the items.
        key: Its id, or the path of its file.
        path: Of the index, for messages.
    """
    names: list[Id] = [key, os.path.abspath(key)] if isinstance(key, str) else [key]
    for name in names:
        rows = store.get(Compare("id", "=", name))[1]
        if len(rows):
            return name, rows
    raise InputError(f"{path} has no item {key!r}; search for it as a query, or add it first.")
