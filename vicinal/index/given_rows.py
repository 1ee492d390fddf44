"""Vectors that come from outside: checked before anything else sees them, and stored with what is said about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from vicinal.errors import InputError, NotFinite
from vicinal.index.columns import BUILT_IN, plain_value
from vicinal.index.item import Id, Item, check_dim
from vicinal.index.sources import Source, as_source
from vicinal.index.store import Store
from vicinal.neighbours.checked_inputs import as_array
from vicinal.neighbours.rounded_rows import as_int8, unpack_rows

__all__ = ["add_rows", "as_rows", "check_dim", "check_directions", "checked_rows", "source_of_rows"]


def as_rows(values: Any, dim: int) -> tuple[Float32[np.ndarray, "n d"], bool]:
    """Queries as checked rows of `dim` numbers, and whether there is one alone, given as a vector."""
    array = as_array(values, "queries")
    single = array.ndim == 1
    rows = checked_rows(array[None] if single else array, "queries")
    check_dim(rows, dim)
    return rows, single


def checked_rows(values: Any, name: str) -> Float32[np.ndarray, "n d"]:
    """Finite float32 rows."""
    array = as_array(values.detach().cpu() if hasattr(values, "detach") else values, name)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be a matrix of numbers, one row each; got {array.dtype} {list(array.shape)}.")
    if not array.shape[1]:
        raise InputError(f"{name} have no numbers in them: the shape is {list(array.shape)}.")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(array, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise NotFinite(
            f"{len(bad)} of {len(rows)} rows of {name} hold NaN or infinity (or are too large for float32), the first "
            f"of them row {int(bad[0])}; leave them out."
        )
    return rows


def check_directions(queries: NDArray[np.float32], distance: str) -> None:
    """Refuse to seek by the cosine what has no direction: all items are equally near to it."""
    if distance == "cosine" and not queries.any(axis=1).all():
        raise InputError(
            "A vector of zeros has no direction, by which the cosine compares: all items are equally near to it. "
            "Leave it out."
        )


def source_of_rows(
    rows: Float32[np.ndarray, "n d"],
    ids: Sequence[Id] | NDArray[Any] | None,
    labels: Sequence[Any] | None,
    metadata: Any,
) -> Source:
    """Vectors as things to be put into an index; their ids are 0, 1, 2, ... unless they are given."""
    keys = range(len(rows)) if ids is None else ids
    bare = Source(rows, list(range(len(rows))))
    return as_source(bare, ids=list(keys), labels=None if labels is None else list(labels), metadata=metadata)


def add_rows(
    store: Store,
    source: Source,
    rows: Float32[np.ndarray, "n d"],
    files: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Store vectors with the ids, labels and metadata of a source, in one step.

    Args:
        store: Where to.
        source: One entry per row.
        rows: The vectors.
        files: What is known of the items' files (path, source, stamp, hash), by column.
    """
    every = {"label": source.labels, **(files or {}), **source.metadata}
    for name, values in every.items():
        if len(values) not in (0, len(rows)):
            raise InputError(f"{name} must have one entry per item: {len(rows)} items, {len(values)} entries.")
    columns = {name: [plain_value(value, name) for value in values] for name, values in every.items() if len(values)}
    items = []
    for key, *values in zip(source.ids, *columns.values(), strict=True):
        known = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        own: dict[str, Any] = {name: known.pop(name) for name in BUILT_IN if name in known}
        items.append(Item(key, metadata=known, **own))
    if store.header.numbers == "int8":  # whatever the store keeps them in
        rows = unpack_rows(as_int8(rows), "int8", rows.shape[1])
    store.add(items, rows)
