"""Changes to the items of a store, each of them whole or not at all: vectors added, values, removals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from vicinal.embedder import Embedder
from vicinal.errors import InputError
from vicinal.index.columns import plain_value
from vicinal.index.exchange import ForeignVectors
from vicinal.index.given_rows import add_rows, check_dim
from vicinal.index.hits import Changes
from vicinal.index.item import Id, Item
from vicinal.index.sources import Source, described
from vicinal.index.store import Store
from vicinal.index.taking_in import take_in
from vicinal.index.where import Compare, Condition, In, Where, as_condition

__all__ = ["check_file", "follow_source", "plain_values", "put_rows", "put_values", "to_remove"]

FIXED = {"id", "path", "source", "stamp", "hash"}  # what an item is


def put_rows(
    store: Store, source: Source, rows: Float32[np.ndarray, "n d"], files: Mapping[str, Sequence[Any]]
) -> Changes:
    """Add vectors, in place of those whose ids are there already.

    Args:
        store: Where to.
        source: One entry per row.
        rows: The vectors.
        files: What is known of the items' files; see `add_rows`.
    """
    check_dim(rows, store.header.dim)
    before = store.count(In("id", tuple(source.ids)))
    add_rows(store, source, rows, files)
    return Changes(added=len(rows) - before, updated=before)


def check_file(file: str | Path, found: ForeignVectors, distance: str, path: Path) -> None:
    """Refuse the vectors of a file that cannot be added to the index at `path`, which has this distance."""
    if found.distance and found.distance != distance:
        raise InputError(
            f"The vectors of {file} are compared by {found.distance}, those of {path} by {distance}; "
            "one index has one distance."
        )
    if found.ids is None:
        raise InputError(f"{file} has no ids, by which vectors that are added can be found and removed again.")


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that items can be given, as a store keeps them."""
    if fixed := sorted(set(values) & FIXED):
        raise InputError(f"{', '.join(fixed)} cannot be changed; remove the items and add them anew.")
    plain = {name: plain_value(value, name) for name, value in values.items()}
    described(Source([], [], metadata={name: [] for name in plain if name != "label"}))
    return plain


def put_values(store: Store, where: Condition, values: Mapping[str, Any]) -> int:
    """Give the items that pass a filter other values, and say how many there were."""
    items, rows = store.get(where)
    store.add([_changed(item, values) for item in items], rows)
    return len(items)


def to_remove(where: Where | None, ids: Iterable[Id] | None) -> Condition:
    """Which items a filter, or a number of ids, is about."""
    if (where is None) == (ids is None):
        raise InputError("Give a filter, or ids.")
    if where is not None:
        return as_condition(where)
    return In("id", tuple(described(Source([], list(dict.fromkeys(ids or ())))).ids))


def follow_source(store: Store, model: Embedder, source: Source, progress: bool) -> Changes:
    """Embed what is new or changed of a source, and remove what came from it and is no longer in it."""
    changes = take_in(store, model, source, progress)
    if source.name is None:
        return changes
    before, _ = store.get(Compare("source", "=", source.name), vectors=False)
    gone = {item.id for item in before} - set(source.ids)
    removed = store.delete(In("id", tuple(gone))) if gone else 0
    return replace(changes, removed=removed)


def _changed(item: Item, values: Mapping[str, Any]) -> Item:
    metadata = {**item.metadata, **{name: value for name, value in values.items() if name != "label"}}
    kept = {name: value for name, value in metadata.items() if value is not None}
    return replace(item, label=values.get("label", item.label), metadata=kept)
