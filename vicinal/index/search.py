"""From a query to what is nearest: queries as vectors, and the search by whatever an index is told to do."""

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

__all__ = ["KeptForSearch", "embedded", "find_nearest", "vector_of"]


# The similarities of queries as they were given to what was found for them, whatever they were searched as.

NUMBERS = 1 << 22  # of vectors that are held in float64 at a time


def with_own_similarities(
    store: Store, queries: Float32[np.ndarray, "n d"], answer: Answer, *, items: bool
) -> Answer | None:
    """An answer with the similarities of the vectors themselves, which thresholds are about; order and ids stay.

    Args:
        store: Of the items, with their vectors as they are.
        queries: As they were given.
        answer: What was found for them by other vectors: improved ones, or queries that were drawn towards items.
        items: Whether to say more of what was found than the ids.

    Returns:
        The answer; None if something that was found is no longer there.
    """
    distinct = tuple(dict.fromkeys(answer.ids.ravel().tolist()))
    known, rows = store.get(In("id", distinct)) if distinct else ([], queries[:0])
    if len(known) != len(distinct):
        return None
    place_of = {item.id: place for place, item in enumerate(known)}
    values = np.zeros((len(queries), answer.ids.shape[1]))
    step = max(1, NUMBERS // max(1, values.shape[1] * queries.shape[1]))
    for start in range(0, len(queries) if distinct else 0, step):
        part = slice(start, start + step)
        places = [[place_of[key] for key in row] for row in answer.ids[part].tolist()]
        values[part] = similarities(queries[part], rows[np.array(places)], store.header.distance)
    return replace(answer, similarities=values, items={item.id: item for item in known} if items else {})


# Better neighbours in an index: queries drawn towards what they find, or answers in the order of shared neighbours.


def expanded_rows(
    store: Store | ImprovedStore, rows: Float32[np.ndarray, "n d"], count: int, where: Condition | None, but: Id | None
) -> Float32[np.ndarray, "n d"]:
    """Draw each query towards the nearest items that it may find; see `vicinal.neighbours.expand_queries`.

    Args:
        store: Of the items.
        rows: The queries.
        count: Items that a query is drawn towards.
        where: Which may be found.
        but: The item that a query is itself, which it is not drawn towards.
    """
    if store.header.distance != "cosine":
        raise InputError("Queries are drawn towards what they find on the sphere: expand needs cosines.")
    answer = without(store.search(rows, count + (but is not None), where, items=False), but)
    ids, cosines = answer.ids[:, :count], answer.similarities[:, :count]
    if not ids.size:
        return rows
    items, vectors = store.get(In("id", tuple(dict.fromkeys(ids.ravel().tolist()))))
    place_of = {item.id: place for place, item in enumerate(items)}
    if not place_of.keys() >= set(ids.ravel().tolist()):
        raise InputError("The index changed while it was searched; search again.")
    places = np.array([[place_of[key] for key in row] for row in ids.tolist()])
    unit = [torch.nn.functional.normalize(torch.from_numpy(part).double()) for part in (rows, vectors)]
    drawn = drawn_towards(unit[0], unit[1], torch.from_numpy(places), torch.from_numpy(cosines.copy()), ALPHA)
    return drawn.float().numpy()


def without(answer: Answer, key: Id | None) -> Answer:
    """An answer to the search for one item, without that item."""
    if key is None:
        return answer
    others = answer.ids[0] != key
    return replace(answer, ids=answer.ids[:, others], similarities=answer.similarities[:, others])


@final
class KeptReranker:
    """The neighbour sets of all items of an index, prepared when they are first needed and whenever it has changed.

    Preparing costs a search of all items in all: as much as `vicinal evaluate` of the index.
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
        """Return an answer in the order of shared neighbours.

        Args:
            store: That was searched.
            state: Its name, another after every change.
            rows: The queries.
            answer: What was found for them.
            settings: Of the re-ranking.
            item: The item that the query is, if it is one.
        """
        if not answer.ids.size:
            return answer
        reranker, place_of = self._prepared(store, state, settings)
        places = torch.tensor([[place_of.get(key, -1) for key in row] for row in answer.ids.tolist()])
        if bool((places < 0).any()) or (item is not None and item not in place_of):
            raise InputError("The index changed while it was searched; search again.")
        values = torch.from_numpy(answer.similarities.copy())
        distance = store.header.distance
        found = Neighbours(places, values if distance == "cosine" else -values)
        if item is None:
            again = reranker.reordered(rows, found)
        else:
            again = reranker.reordered_items(torch.tensor([place_of[item]]), found)
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
                self._kept = state, settings, reranker, {item.id: place for place, item in enumerate(items)}
            return self._kept[2:]


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
