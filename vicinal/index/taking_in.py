"""Take items in: embed what is new or changed of a source, leave the rest, and say what could not be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vicinal.embedder import Embedder
from vicinal.errors import DataError
from vicinal.index.hits import Changes
from vicinal.index.item import Id, Item
from vicinal.index.item_embedding import embed_items
from vicinal.index.sources import Source
from vicinal.index.store import Store
from vicinal.index.where import In

__all__ = ["embed_into", "take_in"]

COMMIT_AFTER = 256  # items, and
COMMIT_SECONDS = 5.0  # whichever comes first: what a kill may cost


def take_in(store: Store, model: Embedder, source: Source, progress: bool) -> Changes:
    """Embed what is new or changed of a source."""
    known = {item.id: item for item in store.get(In("id", tuple(source.ids)), vectors=False)[0]}
    items: dict[Id, Item] = {}
    skipped: list[tuple[str, str]] = []
    again: list[Item] = []
    other = 0
    places: list[int] = []
    for place, key in enumerate(source.ids):
        try:
            before = known.get(key)
            item = source.with_stamp(place)
            if before is not None and item.stamp is not None and item.stamp == before.stamp:
                item = replace(item, hash=before.hash)
            elif item.hash is None:
                item = source.item(place)
        except (OSError, DataError) as error:
            skipped.append((str(key), str(getattr(error, "strerror", None) or error)))
            continue
        if before is not None:  # what the source does not say stays as it is
            item = _merged(before, item, labelled=bool(source.labels))
        if before is None or before.hash != item.hash:
            items[key] = item
            places.append(place)
        elif before != item:
            again.append(item)
            other += replace(before, stamp=item.stamp) != item
    if again:
        _store_again(store, again)
    failed = embed_into(store, model, source, places, items.__getitem__, progress)
    new = sum(key not in known for key in items)
    lost = sum(key not in known for key in (name for name, _ in failed))
    return Changes(
        added=new - lost,
        updated=len(items) - new - (len(failed) - lost) + other,
        unchanged=len(source) - len(items) - other - len(skipped),
        skipped=(*skipped, *failed),
    )


def embed_into(
    store: Store,
    model: Embedder,
    source: Source,
    places: list[int],
    item: Callable[[Id], Item],
    progress: bool,
) -> tuple[tuple[str, str], ...]:
    """Embed and store some of a source, a few hundred at a time; return what could not be read."""
    ready: list[tuple[Item, NDArray[np.float32]]] = []
    failed: list[tuple[str, str]] = []
    last = time.monotonic()

    def commit() -> None:
        if ready:
            store.add([one for one, _ in ready], np.stack([row for _, row in ready]))
            ready.clear()

    try:
        for place, row in embed_items(model, source.inputs, places, progress=progress):
            key = source.ids[place]
            if isinstance(row, str):
                failed.append((str(key), row))
                continue
            ready.append((item(key), row))
            if len(ready) >= COMMIT_AFTER or time.monotonic() - last > COMMIT_SECONDS:
                commit()
                last = time.monotonic()
    finally:
        commit()
    return tuple(failed)


def _store_again(store: Store, items: list[Item]) -> None:
    """Give items other values, with the vectors that they have."""
    by_id = {item.id: item for item in items}
    found, rows = store.get(In("id", tuple(by_id)))
    store.add([by_id[item.id] for item in found], rows)


def _merged(before: Item, now: Item, labelled: bool) -> Item:
    label = now.label if labelled else before.label
    return replace(now, label=label, metadata={**before.metadata, **now.metadata}, source=now.source or before.source)
