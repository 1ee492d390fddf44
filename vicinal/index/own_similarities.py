"""The similarities of queries as they were given to what was found for them, whatever they were searched as."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float32

from vicinal.index.float64_similarity import similarities
from vicinal.index.store import Answer, Store
from vicinal.index.where import In

__all__ = ["with_own_similarities"]

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
