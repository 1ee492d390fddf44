"""Connection pool for PostgreSQL, and conversion between items and table rows."""

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


PATIENCE = 10  # timeout of a connection in seconds, unless the address or the environment sets one


@final
class Connections:
    """Pool with as many connections as threads use at the same time; broken ones are replaced.

    Args:
        url: URL of the database.
        prepare: Function that is called with every new connection.
    """

    def __init__(self, url: str, prepare: Callable[[Any], None]) -> None:
        self.url, self._prepare = url, prepare
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._closed = False
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def lent(self) -> Iterator[Any]:
        """Lend a connection to this thread for the duration of the context."""
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
                if connection.closed:  # the server went away, so the idle connections are broken, too
                    _close_all(self._idle)
                elif self._closed:
                    connection.close()
                else:
                    self._idle.append(connection)

    def close_idle(self) -> None:
        """Close all idle connections."""
        with self._lock:
            _close_all(self._idle)

    def close(self) -> None:
        """Close all connections; those in use are closed when they are returned."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)


def connect(url: str) -> Any:
    """Open a connection.

    Raises:
        DataError: If that fails; the message has the address without its password.
    """
    waiting = "connect_timeout" in url or "PGCONNECT_TIMEOUT" in os.environ
    options = {} if waiting else {"connect_timeout": PATIENCE}
    try:
        # Prepared statements would become invalid when columns are added.
        return psycopg().connect(url, autocommit=True, prepare_threshold=None, **options)
    except psycopg().Error as error:
        message = " ".join(without_secrets(error, url).split())
        raise DataError(
            f"PostgreSQL at {masked(url)} cannot be reached: {message}",
            hint="Check the address; in a password write @ as %40, : as %3A and / as %2F.",
        ) from None


def psycopg() -> Any:
    """Import and return the library."""
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
    """Return the SQL name of the column at a position; names chosen by users never appear in SQL."""
    return BUILT_IN[place] if place < len(BUILT_IN) else f"c{place}"


def unit(query: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, " d"]:
    """Scale a query to length 1, so that products stay in the range of float32; cosines do not change."""
    length = float(np.sqrt(np.square(query, dtype=np.float64).sum()))
    return (query / length).astype(np.float32) if length else query


def member(column: str, values: tuple[Value, ...]) -> tuple[str, list[Any]]:
    """Return the SQL for "has one of these values", and its parameters."""
    if not values:
        return "FALSE", []
    numbers = any(isinstance(value, float) for value in values)
    return f"{column} = ANY(%s)", [[float(value) for value in values] if numbers else list(values)]


def text_of(vector: Float32[np.ndarray, " d"]) -> str:
    """Return a vector as text that pgvector reads without loss."""
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def rows_of(texts: list[str], dim: int) -> Float32[np.ndarray, "n d"]:
    """Parse vectors as pgvector writes them."""
    if not texts:
        return np.empty((0, dim), np.float32)
    return np.array([json.loads(text) for text in texts], dtype=np.float32)


def item_of(row: Sequence[Any], columns: Mapping[str, Kind | None]) -> Item:
    """Return the item of a row."""
    values = dict(zip(columns, row, strict=False))
    metadata = {name: value for name, value in values.items() if name not in BUILT_IN and value is not None}
    own = {name: values[name] for name in BUILT_IN}
    return Item(**own, metadata=metadata)
