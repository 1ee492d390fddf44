"""Better neighbours in an index: queries drawn towards what they find, or answers in the order of shared neighbours."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import final

import numpy as np
import torch
from jaxtyping import Float32

from vicinal.errors import InputError
from vicinal.index.improved_store import ImprovedStore
from vicinal.index.item import Id
from vicinal.index.store import Answer, Store
from vicinal.index.where import Condition, In
from vicinal.neighbours import Neighbours, Reranker, Reranking
from vicinal.neighbours.expansion import ALPHA, drawn_towards

__all__ = ["KeptReranker", "expanded_rows", "without"]


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
