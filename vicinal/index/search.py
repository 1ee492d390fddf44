"""Search in an index: embedding of queries, improved vectors, query expansion and re-ranking."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float32

from vicinal.data.readers.layout import images_below
from vicinal.embedder import Embedder
from vicinal.embedder.queries import embed_queries
from vicinal.errors import InputError
from vicinal.index.filters import Compare, Condition, In
from vicinal.index.generations import Generation
from vicinal.index.improve import ImprovedStore, ImprovedStores
from vicinal.index.item import Id
from vicinal.index.sources import checked_rows
from vicinal.index.stores.store import Answer, Store
from vicinal.neighbours import Neighbours, Reranker, Reranking
from vicinal.neighbours.reranking import ALPHA, drawn_towards
from vicinal.neighbours.similarity import similarities

__all__ = ["SearchCache", "embedded", "find_nearest", "vector_of"]


# Similarities between the original queries and their hits, whatever vectors the search used.

NUMBERS = 1 << 22  # numbers held in float64 at a time


def with_own_similarities(
    store: Store, queries: Float32[np.ndarray, "n d"], answer: Answer, *, items: bool
) -> Answer | None:
    """Return an answer with the similarities of the original vectors, to which thresholds apply; order and ids stay.

    Args:
        store: Store of the items, with their original vectors.
        queries: The original queries.
        answer: Answer of a search by other vectors: improved items or expanded queries.
        items: Whether to return the items in addition to their ids.

    Returns:
        The answer; None if an item in it no longer exists.
    """
    distinct = tuple(dict.fromkeys(answer.ids.ravel().tolist()))
    hits, rows = store.get(In("id", distinct)) if distinct else ([], queries[:0])
    if len(hits) != len(distinct):
        return None
    place_of = {item.id: position for position, item in enumerate(hits)}
    values = np.zeros((len(queries), answer.ids.shape[1]))
    step = max(1, NUMBERS // max(1, values.shape[1] * queries.shape[1]))
    for start in range(0, len(queries) if distinct else 0, step):
        part = slice(start, start + step)
        positions = [[place_of[key] for key in row] for row in answer.ids[part].tolist()]
        values[part] = similarities(queries[part], rows[np.array(positions)], store.header.distance)
    return replace(answer, similarities=values, items={item.id: item for item in hits} if items else {})


# Better neighbours: query expansion, and re-ranking by shared neighbours.


def expanded_rows(
    store: Store | ImprovedStore, rows: Float32[np.ndarray, "n d"], count: int, where: Condition | None, but: Id | None
) -> Float32[np.ndarray, "n d"]:
    """Draw each query towards its nearest items that pass the filter; see `vicinal.neighbours.expand_queries`.

    Args:
        store: Store of the items.
        rows: The queries.
        count: Number of items that a query is averaged with.
        where: Filter on the items.
        but: Id of the query, if it is an item; it is not averaged with itself.
    """
    if store.header.distance != "cosine":
        raise InputError("expand needs the cosine distance.")
    answer = without(store.search(rows, count + (but is not None), where, items=False), but)
    ids, cosines = answer.ids[:, :count], answer.similarities[:, :count]
    if not ids.size:
        return rows
    items, vectors = store.get(In("id", tuple(dict.fromkeys(ids.ravel().tolist()))))
    place_of = {item.id: position for position, item in enumerate(items)}
    if not place_of.keys() >= set(ids.ravel().tolist()):
        raise InputError("The index changed while it was searched; search again.")
    positions = np.array([[place_of[key] for key in row] for row in ids.tolist()])
    unit = [torch.nn.functional.normalize(torch.from_numpy(part).double()) for part in (rows, vectors)]
    drawn = drawn_towards(unit[0], unit[1], torch.from_numpy(positions), torch.from_numpy(cosines.copy()), ALPHA)
    return drawn.float().numpy()


def without(answer: Answer, key: Id | None) -> Answer:
    """Return the answer to a search by an item, without that item."""
    if key is None:
        return answer
    others = answer.ids[0] != key
    return replace(answer, ids=answer.ids[:, others], similarities=answer.similarities[:, others])


@final
class CachedReranker:
    """Caches the neighbour sets of all items of an index; computed on first use and after every change.

    Computing them takes a search of all items among all items: as much as `vicinal evaluate` of the index.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: tuple[str, Reranking, Reranker, dict[Id, int]] | None = None

    def reordered(
        self,
        store: Store | ImprovedStore,
        state: str,
        rows: Float32[np.ndarray, "n d"],
        answer: Answer,
        settings: Reranking,
        item: Id | None,
    ) -> Answer:
        """Return an answer re-ranked by shared neighbours.

        Args:
            store: Store that was searched.
            state: Name of its state, which changes with every write.
            rows: The queries.
            answer: Answer to the queries.
            settings: Settings of the re-ranking.
            item: Id of the query, if it is an item.
        """
        if not answer.ids.size:
            return answer
        reranker, place_of = self._prepared(store, state, settings)
        positions = torch.tensor([[place_of.get(key, -1) for key in row] for row in answer.ids.tolist()])
        if bool((positions < 0).any()) or (item is not None and item not in place_of):
            raise InputError("The index changed while it was searched; search again.")
        values = torch.from_numpy(answer.similarities.copy())
        distance = store.header.distance
        candidates = Neighbours(positions, values if distance == "cosine" else -values)
        if item is None:
            again = reranker.reordered(rows, candidates)
        else:
            again = reranker.reordered_items(torch.tensor([place_of[item]]), candidates)
        ids = np.array(list(place_of), dtype=answer.ids.dtype)[again.indices.numpy()]
        similarities = again.values.numpy() * (1.0 if distance == "cosine" else -1.0)
        return replace(answer, ids=ids, similarities=similarities)

    def _prepared(
        self, store: Store | ImprovedStore, state: str, settings: Reranking
    ) -> tuple[Reranker, dict[Id, int]]:
        with self._lock:
            if self._kept is None or self._kept[:2] != (state, settings):
                items, vectors = store.get()
                reranker = Reranker(vectors, store.header.distance, settings=settings)
                self._kept = state, settings, reranker, {item.id: position for position, item in enumerate(items)}
            return self._kept[2:]


ATTEMPTS = 5  # to search an index that changes during a search


@dataclass(frozen=True)
class SearchCache:
    """Caches shared by searches: improved vectors, and neighbour sets for re-ranking."""

    improved: ImprovedStores = field(default_factory=ImprovedStores)
    reranker: CachedReranker = field(default_factory=CachedReranker)


def find_nearest(
    generation: Generation,
    kept: SearchCache,
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
    """Return the nearest items of each query, with the similarities of the original queries.

    Args:
        generation: Generation to search.
        kept: Caches of earlier searches.
        rows: The queries.
        k: Number of neighbours.
        where: Filter on the items.
        key: Id of the query, if it is a single item; it is left out of the answer.
        fast: Whether to search by codes; see `Index.search`.
        expand: Number of items that queries are averaged with first.
        rerank: Settings of the re-ranking; None for none.
        items: Whether to return the items in addition to their ids.
    """
    store = generation.store
    for _ in range(ATTEMPTS):
        better = kept.improved.of(store, generation.folder)
        if rerank is not None and better is not None and better.improvement.augment:
            raise InputError("Re-ranking cannot be combined with augmented vectors.")
        searched: Store | ImprovedStore = store if better is None else better
        search_rows = rows if better is None else better.improvement.of_queries(rows)
        if expand:
            search_rows = expanded_rows(searched, search_rows, expand, where, key)
        shortlist = k if rerank is None else max(k, rerank.shortlist)
        answer = searched.search(search_rows, shortlist + (key is not None), where, fast=fast, items=items)
        answer = without(answer, key)
        if rerank is not None:
            state = generation.state() if better is None else better.state
            answer = kept.reranker.reordered(searched, state, search_rows, answer, rerank, None if expand else key)
        answer = replace(answer, ids=answer.ids[:, :k], similarities=answer.similarities[:, :k])
        if better is None and not expand:
            return answer
        plain = with_own_similarities(store, rows, answer, items=items)
        if plain is not None and (better is None or better.is_current()):
            return plain if better is None else replace(plain, improved=str(better.improvement))
    raise InputError("The index kept changing during the search; retry when no one is writing.")


def embedded(model: Embedder, query: Any) -> tuple[Float32[np.ndarray, "n d"], bool]:
    """Return the embeddings of queries, and whether there is a single query.

    Args:
        model: The embedder.
        query: A folder of images, or any input of the embedder.
    """
    if isinstance(query, str | os.PathLike) and Path(query).is_dir():
        query = list(images_below(Path(query)))
        if not query:
            raise InputError("The folder contains no images.")
    rows = embed_queries(model, query)
    if isinstance(query, str | os.PathLike) or not hasattr(query, "__len__"):
        single = True
    else:
        single = hasattr(query, "ndim") and len(rows) == 1 and len(query) != 1  # one image or vector as an array
    return checked_rows(rows, "the embeddings of the queries"), single


def vector_of(store: Store, key: Id, path: Path) -> tuple[Id, Float32[np.ndarray, "1 d"]]:
    """Return the id and the vector of an item; the id of a file is its absolute path.

    Args:
        store: Store of the items.
        key: Id of the item, or path of its file.
        path: Folder of the index, for messages.
    """
    names: list[Id] = [key, os.path.abspath(key)] if isinstance(key, str) else [key]
    for name in names:
        rows = store.get(Compare("id", "=", name))[1]
        if len(rows):
            return name, rows
    raise InputError(f"{path} has no item {key!r}; search for it as a query, or add it first.")
