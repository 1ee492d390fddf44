"""Connections to a PostgreSQL database: each is lent to one thread at a time, and used again afterwards."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np
from jaxtyping import Float32

from vicinal._util.secrets import masked, without_secrets
from vicinal.errors import DataError, MissingExtra
from vicinal.index.filters import BUILT_IN, Kind, Value
from vicinal.index.item import Item

__all__ = ["Connections", "column_of", "connect", "item_of", "member", "psycopg", "rows_of", "text_of", "unit"]


PATIENCE = 10  # seconds to wait for a server, unless the address or the environment says otherwise


@final
class Connections:
    """As many connections as threads use at the same time; those that broke are made anew.

    Args:
        url: Of the database.
        prepare: Is called with every new connection.
    """

    def __init__(self, url: str, prepare: Callable[[Any], None]) -> None:
        self.url, self._prepare = url, prepare
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._closed = False
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def lent(self) -> Iterator[Any]:
        """A connection for this thread alone, for as long as this lasts."""
        with self._lock:
            if self._closed:
                raise DataError(f"The index at {masked(self.url)} was closed.", hint="Open it again.")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = connect(self.url)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        try:
            yield connection
        finally:
            with self._lock:
                if connection.closed:  # the server went away, and so did it from the others
                    _close_all(self._idle)
                elif self._closed:
                    connection.close()
                else:
                    self._idle.append(connection)

    def close_idle(self) -> None:
        """End all connections that nobody uses."""
        with self._lock:
            _close_all(self._idle)

    def close(self) -> None:
        """End all connections, those that are in use as soon as they no longer are."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)


def connect(url: str) -> Any:
    """One connection.

    Raises:
        DataError: If there is none to be had, with the address but not its password.
    """
    waiting = "connect_timeout" in url or "PGCONNECT_TIMEOUT" in os.environ
    options = {} if waiting else {"connect_timeout": PATIENCE}
    try:
        # Prepared statements would outlive the columns that they were prepared for.
        return psycopg().connect(url, autocommit=True, prepare_threshold=None, **options)
    except psycopg().Error as error:
        said = " ".join(without_secrets(error, url).split())
        raise DataError(
            f"PostgreSQL at {masked(url)} cannot be reached: {said}",
            hint="Look at the address; a password with @, : or / in it has %40, %3A or %2F there.",
        ) from None


def psycopg() -> Any:
    """The library, where it is installed."""
    try:
        import psycopg as library
    except ImportError:
        raise MissingExtra("postgres", "an index in PostgreSQL") from None
    return library


def _close_all(connections: list[Any]) -> None:
    while connections:
        connections.pop().close()


# Items and vectors as rows of a PostgreSQL table.


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
