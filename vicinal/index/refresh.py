"""Adding, replacing and removing items, and bringing an index up to date with its sources."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from vicinal.embedder import Embedder
from vicinal.embedder.encode import BatchOptions, embed_each, embed_in_batches
from vicinal.embedder.inputs import reader
from vicinal.errors import DataError, InputError, VicinalError
from vicinal.index.exchange import ForeignVectors
from vicinal.index.filters import Compare, Condition, In, Where, as_condition, plain_value
from vicinal.index.hits import Changes
from vicinal.index.item import Id, Item
from vicinal.index.sources import Source, add_rows, check_dim, described
from vicinal.index.stores.store import Store

__all__ = [
    "check_file",
    "embed_into",
    "follow_source",
    "plain_values",
    "put_rows",
    "put_values",
    "take_in",
    "to_remove",
]


# Work is committed after this many items or seconds, whichever comes first: the most that an interruption can lose.
COMMIT_AFTER = 256
COMMIT_SECONDS = 5.0


def take_in(store: Store, model: Embedder, source: Source, progress: bool) -> Changes:
    """Embed the new and changed items of a source."""
    existing = {item.id: item for item in store.get(In("id", tuple(source.ids)), vectors=False)[0]}
    items: dict[Id, Item] = {}
    skipped: list[tuple[str, str]] = []
    again: list[Item] = []
    other = 0
    positions: list[int] = []
    for position, key in enumerate(source.ids):
        try:
            before = existing.get(key)
            item = source.with_stamp(position)
            if before is not None and item.stamp is not None and item.stamp == before.stamp:
                item = replace(item, hash=before.hash)
            elif item.hash is None:
                item = source.item(position)
        except (OSError, DataError) as error:
            skipped.append((str(key), str(getattr(error, "strerror", None) or error)))
            continue
        if before is not None:  # values that the source does not have stay as they are
            item = _merged(before, item, labelled=bool(source.labels))
        if before is None or before.hash != item.hash:
            items[key] = item
            positions.append(position)
        elif before != item:
            again.append(item)
            if replace(before, stamp=item.stamp) != item:
                other += 1
    if again:
        _store_again(store, again)
    failed = embed_into(store, model, source, positions, items.__getitem__, progress)
    new = sum(key not in existing for key in items)
    lost = sum(key not in existing for key in (name for name, _ in failed))
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
    """Embed and store the items of a source at some positions, a few hundred at a time; return those that failed."""
    ready: list[tuple[Item, NDArray[np.float32]]] = []
    failed: list[tuple[str, str]] = []
    last = time.monotonic()

    def commit() -> None:
        if ready:
            store.add([entry for entry, _ in ready], np.stack([row for _, row in ready]))
            ready.clear()

    try:
        _, opened = reader(source.inputs, model.backbone.input)
        run = partial(embed_in_batches, options=BatchOptions(progress=progress))
        for position, row in embed_each(model, opened, places, skip=(VicinalError, OSError), run=run):
            key = source.ids[position]
            if isinstance(row, Exception):
                failed.append((str(key), str(row).splitlines()[0]))
                continue
            if not np.isfinite(row).all():
                failed.append((str(key), "the embedder returned NaN or infinity for it"))
                continue
            ready.append((item(key), row))
            if len(ready) >= COMMIT_AFTER or time.monotonic() - last > COMMIT_SECONDS:
                commit()
                last = time.monotonic()
    finally:
        commit()
    return tuple(failed)


def _store_again(store: Store, items: list[Item]) -> None:
    """Store new values of items, with their existing vectors."""
    by_id = {item.id: item for item in items}
    existing, rows = store.get(In("id", tuple(by_id)))
    store.add([by_id[item.id] for item in existing], rows)


def _merged(before: Item, now: Item, labelled: bool) -> Item:
    label = now.label if labelled else before.label
    return replace(now, label=label, metadata={**before.metadata, **now.metadata}, source=now.source or before.source)


# Atomic changes to the items of a store: adding vectors, setting values, removing items.

FIXED = {"id", "path", "source", "stamp", "hash"}  # columns that identify an item and cannot be changed


def put_rows(
    store: Store, source: Source, rows: Float32[np.ndarray, "n d"], files: Mapping[str, Sequence[Any]]
) -> Changes:
    """Add vectors; they replace existing ones with the same ids.

    Args:
        store: Store to add to.
        source: Ids, labels and metadata, one entry per row.
        rows: The vectors.
        files: Columns about the items' files; see `add_rows`.
    """
    check_dim(rows, store.header.dim)
    before = store.count(In("id", tuple(source.ids)))
    add_rows(store, source, rows, files)
    return Changes(added=len(rows) - before, updated=before)


def check_file(file: str | Path, found: ForeignVectors, distance: str, path: Path) -> None:
    """Refuse the vectors of a file that cannot be added to the index at `path` with this distance."""
    if found.distance and found.distance != distance:
        raise InputError(
            f"The vectors of {file} are compared by {found.distance}, those of {path} by {distance}; "
            "one index has one distance."
        )
    if found.ids is None:
        raise InputError(f"{file} has no ids, which vectors that are added need.")


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check new values of items and return them as a store holds them."""
    if fixed := sorted(set(values) & FIXED):
        raise InputError(f"{', '.join(fixed)} cannot be changed; remove the items and add them again.")
    plain = {name: plain_value(value, name) for name, value in values.items()}
    described(Source([], [], metadata={name: [] for name in plain if name != "label"}))
    return plain


def put_values(store: Store, where: Condition, values: Mapping[str, Any]) -> int:
    """Set values of the items that pass a filter, and return the number of items."""
    items, rows = store.get(where)
    store.add([_changed(item, values) for item in items], rows)
    return len(items)


def to_remove(where: Where | None, ids: Iterable[Id] | None) -> Condition:
    """Return the condition for the items to remove, given a filter or ids."""
    if (where is None) == (ids is None):
        raise InputError("Give a filter, or ids.")
    if where is not None:
        return as_condition(where)
    return In("id", tuple(described(Source([], list(dict.fromkeys(ids or ())))).ids))


def follow_source(store: Store, model: Embedder, source: Source, progress: bool) -> Changes:
    """Embed the new and changed items of a source, and remove those that came from it and are no longer in it."""
    changes = take_in(store, model, source, progress)
    if source.name is None:
        return changes
    before, _ = store.get(Compare("source", "=", source.name), vectors=False)
    gone = {item.id for item in before} - set(source.ids)
    removed = store.delete(In("id", tuple(gone))) if gone else 0
    return replace(changes, removed=removed)


def _changed(item: Item, values: Mapping[str, Any]) -> Item:
    metadata = {**item.metadata, **{name: value for name, value in values.items() if name != "label"}}
    present = {name: value for name, value in metadata.items() if value is not None}
    return replace(item, label=values.get("label", item.label), metadata=present)
