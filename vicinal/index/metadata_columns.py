"""What is known about items, as columns: from a dict, a list of dicts, or a table of pandas, pyarrow or polars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vicinal.errors import InputError

__all__ = ["as_columns"]


def as_columns(metadata: Any) -> dict[str, Sequence[Any]]:
    """Values by column, one per item; None gives no columns.

    Example:
        >>> as_columns([{"year": 1999}, {"year": 2000, "place": "Ulm"}])
        {'year': [1999, 2000], 'place': [None, 'Ulm']}
    """
    if metadata is None:
        return {}
    names, column_of = _names_and_columns(metadata)
    if unnamed := [name for name in names if not isinstance(name, str)]:
        raise InputError(f"Names of columns are texts; got {unnamed[0]!r}.")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"Columns of metadata must have different names; {', '.join(twice)} is there twice.")
    return {name: _listed(name, column_of(name)) for name in names}


def _names_and_columns(metadata: Any) -> tuple[list[Any], Callable[[Any], Any]]:
    """The names of columns, and what gives each of them."""
    if isinstance(metadata, Mapping):
        return list(metadata), metadata.__getitem__
    if hasattr(metadata, "to_pydict"):  # a table of pyarrow, whose cells are not plain values
        return list(metadata.column_names), lambda name: metadata[name].to_pylist()
    if hasattr(metadata, "columns") and hasattr(metadata, "to_dict"):  # one of pandas or polars
        return list(metadata.columns), metadata.__getitem__
    if isinstance(metadata, Sequence) and all(isinstance(row, Mapping) for row in metadata):
        names = dict.fromkeys(name for row in metadata for name in row)
        return list(names), lambda name: [row.get(name) for row in metadata]
    raise InputError(
        "metadata must be a dict of columns, a list of dicts (one per item), or a table of pandas or pyarrow; got "
        f"{type(metadata).__name__}."
    )


def _listed(name: object, column: Any) -> list[Any]:
    if isinstance(column, str | bytes) or not hasattr(column, "__iter__"):
        raise InputError(f"metadata {name!r} must be a list with one entry per item; got {column!r}.")
    return list(column)
