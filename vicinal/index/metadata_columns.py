"""What is known about items, as columns: from a dict, a list of dicts, or a table of pandas, pyarrow or polars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    if isinstance(metadata, Mapping):
        return {name: _listed(name, column) for name, column in metadata.items()}
    if hasattr(metadata, "to_pydict"):  # a table of pyarrow
        _check_names(list(metadata.column_names))
        return dict(metadata.to_pydict())
    if hasattr(metadata, "columns") and hasattr(metadata, "to_dict"):  # one of pandas or polars
        _check_names(list(metadata.columns))
        return {name: list(metadata[name]) for name in metadata.columns}
    if isinstance(metadata, Sequence) and all(isinstance(row, Mapping) for row in metadata):
        names = dict.fromkeys(name for row in metadata for name in row)
        return {name: [row.get(name) for row in metadata] for name in names}
    raise InputError(
        "metadata must be a dict of columns, a list of dicts (one per item), or a table of pandas or pyarrow; got "
        f"{type(metadata).__name__}."
    )


def _listed(name: object, column: Any) -> list[Any]:
    if isinstance(column, str | bytes) or not hasattr(column, "__iter__"):
        raise InputError(f"metadata {name!r} must be a list with one entry per item; got {column!r}.")
    return list(column)


def _check_names(names: list[Any]) -> None:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"Columns of metadata must have different names; {', '.join(twice)} is there twice.")
