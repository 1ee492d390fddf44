"""Items and vectors as rows of a PostgreSQL table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from vicinal.index.columns import BUILT_IN, Kind
from vicinal.index.item import Item
from vicinal.index.where import Value

__all__ = ["column_of", "item_of", "member", "rows_of", "text_of", "unit"]


def column_of(place: int) -> str:
    """The name in the table of the column that items have at a place: people's names for it stay out of the SQL."""
    return BUILT_IN[place] if place < len(BUILT_IN) else f"c{place}"


def unit(query: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, " d"]:
    """A query of length 1, whose products float32 has; its cosines are the same."""
    length = float(np.sqrt(np.square(query, dtype=np.float64).sum()))
    return (query / length).astype(np.float32) if length else query


def member(column: str, values: tuple[Value, ...]) -> tuple[str, list[Any]]:
    """SQL for "has one of these values", and what is bound to it."""
    if not values:
        return "FALSE", []
    numbers = any(isinstance(value, float) for value in values)
    return f"{column} = ANY(%s)", [[float(value) for value in values] if numbers else list(values)]


def text_of(vector: Float32[np.ndarray, " d"]) -> str:
    """A vector as pgvector reads it, to the last bit."""
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def rows_of(texts: list[str], dim: int) -> Float32[np.ndarray, "n d"]:
    """Vectors as pgvector writes them."""
    if not texts:
        return np.empty((0, dim), np.float32)
    return np.array([json.loads(text) for text in texts], dtype=np.float32)


def item_of(row: Sequence[Any], columns: Mapping[str, Kind | None]) -> Item:
    """The item of a row."""
    values = dict(zip(columns, row, strict=False))
    metadata = {name: value for name, value in values.items() if name not in BUILT_IN and value is not None}
    own = {name: values[name] for name in BUILT_IN}
    return Item(**own, metadata=metadata)
