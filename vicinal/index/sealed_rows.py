"""Items as rows of items.sqlite: each has a seal, by which a row that is not what was written is known."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from vicinal.index.columns import BUILT_IN, Kind
from vicinal.index.item import Item
from vicinal.index.where import Value

__all__ = ["FIXED", "is_as_written", "item_of", "read_value", "row_of", "seal"]

FIXED = len(BUILT_IN) + 2  # columns of `items` before metadata: position, those of every item, seal


def row_of(position: int, item: Item, metadata: Sequence[str]) -> list[Any]:
    """The row of an item, with these columns of metadata."""
    own = [item.id, item.path, _stored(item.label), item.source, item.stamp, item.hash]
    extra = [_stored(item.metadata.get(name)) for name in metadata]
    return [position, *own, _item_seal(position, own, extra), *extra]


def item_of(row: Sequence[Any], columns: Mapping[str, Kind | None]) -> Item:
    """The item of a row."""
    _, key, path, label, source, stamp, digest, _, *extra = row
    names = list(columns)[len(BUILT_IN) :]
    metadata = {
        name: read_value(value, columns[name]) for name, value in zip(names, extra, strict=False) if value is not None
    }
    return Item(key, path, read_value(label, columns["label"]), metadata, source, stamp, digest)


def is_as_written(row: Sequence[Any]) -> bool:
    """Whether a row fits its seal."""
    return bool(row[FIXED - 1] == _item_seal(row[0], list(row[1 : FIXED - 1]), list(row[FIXED:])))


def read_value(value: Any, kind: Kind | None) -> Any:
    """A value as it was before SQLite kept it, which has no truth values."""
    if value is None:
        return None
    return bool(value) if kind == "boolean" else float(value) if kind == "number" else value


def seal(*values: Any) -> int:
    """A checksum of values."""
    return zlib.crc32(repr(values).encode())


def _stored(value: Value | None) -> Value | None:
    return int(value) if isinstance(value, bool) else value


def _item_seal(position: int, own: list[Any], metadata: list[Any]) -> int:
    """Of an item's values; columns that were added later, of which it has none, leave it as it is."""
    there = [(place, value) for place, value in enumerate(metadata) if value is not None]
    return seal(position, own, there)
