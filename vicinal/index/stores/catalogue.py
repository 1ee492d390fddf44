"""items.sqlite: the items, the row of each in the vector file, and the checksums of the file's blocks.

Rows of the vector file are never overwritten: an item that is replaced gets a new row. Rows without an item are listed
as dead until the index is compacted. Transactions are committed and synced one after another (WAL, synchronous=full);
a reader sees one of them, complete.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import DataError
from vicinal.index.filters import BUILT_IN, Condition, Kind, Value, check_condition, to_sql
from vicinal.index.item import Header, Id, Item, widened

__all__ = ["Block", "Catalogue", "State", "in_use", "problems_of", "seal"]


# Connections to an SQLite file, writable or read-only, and their errors.

Stamp: TypeAlias = tuple[tuple[int, ...], bool]

# SQLite quotes unreadable data in its messages, which then may not be valid text.
DAMAGE = (sqlite3.Error, UnicodeDecodeError)
RESTORE = "Restore it from a copy, or build it again; `vicinal index rollback FOLDER` goes back to what was before."


def connect_to_read(path: Path) -> tuple[sqlite3.Connection, Stamp | None]:
    """Return a connection (writable, if permitted), and a stamp if it is valid only while the file has that stamp."""
    if not path.is_file():
        raise DataError(f"{path} is missing.", hint=RESTORE)
    here = os.access(path.parent, os.W_OK)
    if here and os.access(path, os.W_OK):
        return connect(path), None
    stamp = stamp_of(path)
    if here or stamp[1]:  # a writer's log exists, or the shared-memory file for it can be created
        return connect(path, "?mode=ro"), None
    return connect(path, "?mode=ro&immutable=1"), stamp


def stamp_of(path: Path) -> Stamp:
    """Return a stamp that changes when the file changes or is about to: a writer has a log next to it."""
    try:
        status = path.stat()
    except OSError:
        return (), False
    log = path.with_name(f"{path.name}-wal")
    return (status.st_ino, status.st_size, status.st_mtime_ns), log.is_file() and log.stat().st_size > 0


def connect(path: Path, how: str = "") -> sqlite3.Connection:
    """Open a connection that syncs every commit; `how` is the query part of SQLite's file URI."""
    address = f"file:{quote(str(path.absolute()))}{how}"
    try:
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=60)
    except sqlite3.Error as error:
        raise unreadable(path, error) from error
    try:
        connection.execute("PRAGMA synchronous = full")
    except DAMAGE as error:
        connection.close()
        raise unreadable(path, error) from error
    return connection


def in_use(path: Path) -> bool:
    """Return whether this or another process has the file open; meant for files that are about to be deleted.

    SQLite can switch off the write-ahead log only if no other connection has the file open.
    """
    if not path.is_file():
        return False
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            return bool(connection.execute("PRAGMA journal_mode = delete").fetchone()[0] == "wal")
        finally:
            connection.close()
    except sqlite3.Error as error:
        return "locked" in str(error)  # a damaged file cannot be in use


def unreadable(path: Path, error: Exception) -> DataError:
    """Return the DataError for an error of SQLite, with a hint on what to do."""
    if "locked" in str(error):
        return DataError(f"{path} is busy: {error}.", hint="Try again when the other program is done.")
    if "readonly" in str(error):
        return DataError(
            f"{path} cannot be written: you have no permission to, or its disk is read-only.",
            hint="Searching is possible; changes are for who may write to the folder.",
        )
    if "unable to open" in str(error):
        return DataError(
            f"{path} cannot be opened: {error}.",
            hint="A writer may have been killed: who may write to the folder has to search it once.",
        )
    if "full" in str(error):
        return DataError(
            f"{path} cannot be written: {error}.", hint="Free some space; all that was added before is safe."
        )
    return DataError(f"{path} cannot be used: {error}.", hint=RESTORE)


# Items as rows of items.sqlite. Each row has a seal (a checksum) that detects damage.

FIXED = len(BUILT_IN) + 2  # columns of `items` before metadata: position, built-in columns, seal


def row_of(position: int, item: Item, metadata: Sequence[str]) -> list[Any]:
    """Return the row of an item, with these metadata columns."""
    own = [item.id, item.path, _stored(item.label), item.source, item.stamp, item.hash]
    extra = [_stored(item.metadata.get(name)) for name in metadata]
    return [position, *own, _item_seal(position, own, extra), *extra]


def item_of(row: Sequence[Any], columns: Mapping[str, Kind | None]) -> Item:
    """Return the item of a row."""
    _, key, path, label, source, stamp, digest, _, *extra = row
    names = list(columns)[len(BUILT_IN) :]
    metadata = {
        name: read_value(value, columns[name]) for name, value in zip(names, extra, strict=False) if value is not None
    }
    return Item(key, path, read_value(label, columns["label"]), metadata, source, stamp, digest)


def is_as_written(row: Sequence[Any]) -> bool:
    """Return whether a row matches its seal."""
    return bool(row[FIXED - 1] == _item_seal(row[0], list(row[1 : FIXED - 1]), list(row[FIXED:])))


def read_value(value: Any, kind: Kind | None) -> Any:
    """Convert a value from SQLite, which has no booleans, to its original type."""
    if value is None:
        return None
    return bool(value) if kind == "boolean" else float(value) if kind == "number" else value


def seal(*values: Any) -> int:
    """Return a checksum of values."""
    return zlib.crc32(repr(values).encode())


def _stored(value: Value | None) -> Value | None:
    return int(value) if isinstance(value, bool) else value


def _item_seal(position: int, own: list[Any], metadata: list[Any]) -> int:
    """Return the seal of an item's values; it does not change when columns are added in which the item has none."""
    present = [(column, value) for column, value in enumerate(metadata) if value is not None]
    return seal(position, own, present)


VERSION = 2
SCHEMA = """
CREATE TABLE header (content TEXT NOT NULL, seal INTEGER NOT NULL);
CREATE TABLE state (version INTEGER NOT NULL, finish INTEGER NOT NULL, seal INTEGER NOT NULL);
CREATE TABLE columns (name TEXT PRIMARY KEY, kind TEXT, place INTEGER NOT NULL, seal INTEGER NOT NULL);
CREATE TABLE blocks (first INTEGER PRIMARY KEY, many INTEGER NOT NULL, longest REAL NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE dead (position INTEGER PRIMARY KEY);
CREATE TABLE items (
    position INTEGER PRIMARY KEY, id NOT NULL UNIQUE, path TEXT, label, source TEXT, stamp TEXT, hash TEXT,
    seal INTEGER NOT NULL
);
"""


@dataclass(frozen=True)
class State:
    """State after a transaction.

    Attributes:
        version: Version of the content; increases with every transaction.
        finish: Number of committed rows of the vector file.
    """

    version: int
    finish: int


@dataclass(frozen=True)
class Block:
    """Consecutive rows that were written together.

    Attributes:
        first: First row of the block.
        many: Number of rows.
        longest: Length of its longest vector.
        sha256: SHA-256 of its bytes.
    """

    first: int
    many: int
    longest: float
    sha256: str


class Catalogue:
    """One connection to items.sqlite; each thread has its own.

    Read-only users can still open it. SQLite's readers and writers coordinate in a shared-memory file next to the
    database. If that file does not exist and cannot be created, the database is opened as immutable, and each read
    checks before and after whether it has changed.

    Args:
        path: The file; created by `create`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection, self._unchanged = connect_to_read(path)
        try:
            self.header = self._read_header()
        except sqlite3.Error as error:
            self.connection.close()
            raise unreadable(path, error) from error
        except BaseException:
            self.connection.close()
            raise
        self._columns: tuple[int, dict[str, tuple[Kind | None, str]]] = (-1, {})

    @classmethod
    def create(cls, path: Path, header: Header) -> Catalogue:
        """Create an empty file."""
        content = json.dumps({"format": "vicinal-index", "version": VERSION, **asdict(header)}, sort_keys=True)
        connection = connect(path)
        try:
            connection.executescript(f"PRAGMA journal_mode = wal; BEGIN; {SCHEMA}")
            connection.execute("INSERT INTO header VALUES (?, ?)", (content, seal(content)))
            connection.execute("INSERT INTO state VALUES (0, 0, ?)", (seal(0, 0),))
            for position, name in enumerate(BUILT_IN):
                kind = None if name in ("id", "label") else "text"
                connection.execute("INSERT INTO columns VALUES (?, ?, ?, ?)", (name, kind, position, seal(name, kind)))
            connection.execute("COMMIT")
        except DAMAGE as error:
            raise unreadable(path, error) from error
        finally:
            connection.close()
        return cls(path)

    def close(self) -> None:
        """Close the connection; the last one of all processes moves the log into the database file."""
        self.connection.close()

    @contextmanager
    def reading(self) -> Iterator[State]:
        """Read one consistent state for the duration of the context."""
        self._look_again()
        try:
            self.connection.execute("BEGIN")
            try:
                yield self._state()
            finally:
                self.connection.execute("ROLLBACK")
            failed = None
        except DAMAGE as error:
            failed = error
        if self._unchanged is not None and self._unchanged != stamp_of(self.path):
            raise DataError(f"{self.path} was changed while it was read.", hint="Try again.") from failed
        if failed is not None:
            raise unreadable(self.path, failed) from failed

    @contextmanager
    def writing(self) -> Iterator[State]:
        """Write atomically; the changes are on disk when the context ends."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._state()
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                self._columns = (-1, {})
                raise
        except DAMAGE as error:
            raise unreadable(self.path, error) from error

    def insert(self, state: State, items: Sequence[Item], blocks: Sequence[Block]) -> None:
        """Add items whose vectors are the rows from `state.finish` on; they replace items with the same ids."""
        if state.finish:
            self._mark_dead(*_member("id", tuple(item.id for item in items)))
        columns = self._widened(items)
        metadata = [name for name in columns if name not in BUILT_IN]
        marks = ", ".join("?" * (FIXED + len(metadata)))
        rows = (row_of(position, item, metadata) for position, item in enumerate(items, start=state.finish))
        self.connection.executemany(f"INSERT INTO items VALUES ({marks})", rows)
        self.connection.executemany(
            "INSERT INTO blocks VALUES (?, ?, ?, ?)", [(b.first, b.many, b.longest, b.sha256) for b in blocks]
        )
        self._set_state(state.version + 1, state.finish + sum(block.many for block in blocks))

    def delete(self, state: State, condition: Condition) -> int:
        """Remove the items that pass a filter, and return their number."""
        count = self._mark_dead(*self._sql(condition))
        self._set_state(state.version + 1, state.finish)
        return count

    def declare(self, state: State, columns: Mapping[str, Kind | None]) -> None:
        """Declare columns before any item uses them."""
        before = self.columns()
        self._with_columns(before, {**before, **columns})
        self._set_state(state.version + 1, state.finish)

    def count(self, condition: Condition | None = None) -> int:
        """Return the number of items, or of those that pass a filter."""
        if condition is None:
            finish = self._state().finish
            return finish - int(self.connection.execute("SELECT count(*) FROM dead").fetchone()[0])
        sql, values = self._sql(condition)
        return int(self.connection.execute(f"SELECT count(*) FROM items WHERE {sql}", values).fetchone()[0])

    def positions(self, condition: Condition) -> NDArray[np.int64]:
        """Return the rows of the items that pass a filter, in ascending order."""
        sql, values = self._sql(condition)
        rows = self.connection.execute(f"SELECT position FROM items WHERE {sql} ORDER BY position", values)
        return np.fromiter((position for (position,) in rows), np.int64)

    def dead(self) -> NDArray[np.int64]:
        """Return the rows that no item uses any longer."""
        rows = self.connection.execute("SELECT position FROM dead ORDER BY position")
        return np.fromiter((position for (position,) in rows), np.int64)

    def ids(self, positions: Iterable[int]) -> dict[int, Id]:
        """Return the ids of the items at some rows, by row."""
        wanted = json.dumps(list(map(int, positions)))
        return dict(
            self.connection.execute(
                "SELECT position, id FROM items WHERE position IN (SELECT value FROM json_each(?))", (wanted,)
            )
        )

    def items(self, positions: Iterable[int]) -> dict[int, Item]:
        """Return the items at some rows, by row."""
        wanted = json.dumps(list(map(int, positions)))
        rows = self.connection.execute(
            "SELECT * FROM items WHERE position IN (SELECT value FROM json_each(?))", (wanted,)
        )
        columns = self.columns()
        return {row[0]: item_of(row, columns) for row in rows}

    def ordered(
        self, condition: Condition | None = None, limit: int = -1, offset: int = 0
    ) -> Iterator[tuple[int, Item]]:
        """Yield the items that pass a filter, ordered by id, with their rows; all, or a page of them."""
        sql, values = ("1 = 1", []) if condition is None else self._sql(condition)
        columns = self.columns()
        query = f"SELECT * FROM items WHERE {sql} ORDER BY id LIMIT ? OFFSET ?"
        for row in self.connection.execute(query, [*values, limit, offset]):
            yield row[0], item_of(row, columns)

    def blocks(self) -> list[Block]:
        """Return all blocks of the vector file, in order."""
        return [Block(*row) for row in self.connection.execute("SELECT * FROM blocks ORDER BY first")]

    def longest(self) -> float:
        """Return an upper bound on the length of all vectors."""
        return float(self.connection.execute("SELECT coalesce(max(longest), 0) FROM blocks").fetchone()[0])

    def labels(self, most: int) -> list[Value]:
        """Return the distinct labels, sorted, at most `most` of them."""
        kind = self.columns()["label"]
        query = "SELECT DISTINCT label FROM items WHERE label IS NOT NULL ORDER BY label LIMIT ?"
        return [read_value(label, kind) for (label,) in self.connection.execute(query, (most,))]

    def path_range(self) -> tuple[str, str] | None:
        """Return the first and the last path in string order; None if no item has one."""
        first, last = self.connection.execute("SELECT min(path), max(path) FROM items").fetchone()
        return None if first is None else (first, last)

    def columns(self) -> dict[str, Kind | None]:
        """Return the kind of each column, built-in columns first; None for one that is empty so far."""
        return {name: kind for name, (kind, _) in self._places().items()}

    def _look_again(self) -> None:
        """Reconnect if a database that was opened as immutable has changed."""
        if self._unchanged is not None and self._unchanged != stamp_of(self.path):
            self.connection.close()
            self.connection, self._unchanged = connect_to_read(self.path)
            self._columns = (-1, {})

    def _read_header(self) -> Header:
        content, written = self.connection.execute("SELECT content, seal FROM header").fetchone()
        if written != seal(content):
            raise DataError(f"{self.path} is corrupted: its header has changed.", hint=RESTORE)
        fields = json.loads(content)
        if fields.pop("format") != "vicinal-index" or (version := fields.pop("version")) != VERSION:
            raise DataError(
                f"{self.path} has format version {version}; this vicinal reads version {VERSION}.",
                hint="With the vicinal that wrote it: vicinal index export FOLDER FILE; then import the file here.",
            )
        return Header(**fields)

    def _state(self) -> State:
        version, finish, _ = self.connection.execute("SELECT * FROM state").fetchone()
        return State(version, finish)

    def _set_state(self, version: int, finish: int) -> None:
        self.connection.execute(
            "UPDATE state SET version = ?, finish = ?, seal = ?", (version, finish, seal(version, finish))
        )

    def _mark_dead(self, sql: str, values: list[Any]) -> int:
        self.connection.execute(f"INSERT INTO dead SELECT position FROM items WHERE {sql}", values)
        return self.connection.execute(f"DELETE FROM items WHERE {sql}", values).rowcount

    def _widened(self, items: Sequence[Item]) -> dict[str, Kind | None]:
        """Add the columns and widen the kinds that new items need."""
        before = self.columns()
        return self._with_columns(before, widened(before, items))

    def _with_columns(
        self, before: Mapping[str, Kind | None], after: Mapping[str, Kind | None]
    ) -> dict[str, Kind | None]:
        for position, (name, kind) in enumerate(after.items()):
            if name not in before:
                row = (name, kind, position, seal(name, kind))
                self.connection.execute("INSERT INTO columns VALUES (?, ?, ?, ?)", row)
                self.connection.execute(f"ALTER TABLE items ADD COLUMN c{position}")
            elif kind != before[name]:
                change = (kind, seal(name, kind), name)
                self.connection.execute("UPDATE columns SET kind = ?, seal = ? WHERE name = ?", change)
        self._columns = (-1, {})
        return self.columns()

    def _places(self) -> dict[str, tuple[Kind | None, str]]:
        version = self._state().version
        if self._columns[0] != version:
            rows = self.connection.execute("SELECT name, kind, place FROM columns ORDER BY place")
            own = {name: name for name in BUILT_IN}
            columns = {name: (kind, own.get(name) or f"c{position}") for name, kind, position in rows}
            self._columns = (version, columns)
        return self._columns[1]

    def _sql(self, condition: Condition) -> tuple[str, list[Any]]:
        check_condition(condition, self.columns())
        return to_sql(condition, {name: sql for name, (_, sql) in self._places().items()}, _member)


def _member(column: str, values: tuple[Value, ...]) -> tuple[str, list[Any]]:
    return f"{column} IN (SELECT value FROM json_each(?))", [json.dumps(values)]


# Verification of items.sqlite: pages, seals, and rows used by two items or by none.


def problems_of(catalogue: Catalogue) -> list[str]:
    """Return all problems of the file, one sentence each."""
    try:
        lines = [f"items.sqlite: {line}" for (line,) in catalogue.connection.execute("PRAGMA integrity_check")]
        return [line for line in lines if line != "items.sqlite: ok"] + list(_broken(catalogue))
    except (sqlite3.DatabaseError, OverflowError, ValueError, TypeError, IndexError, KeyError) as error:
        return [f"items.sqlite cannot be read: {error}"]


def _broken(catalogue: Catalogue) -> Iterator[str]:
    connection = catalogue.connection
    version, finish, written = connection.execute("SELECT * FROM state").fetchone()
    if written != seal(version, finish):
        yield "items.sqlite: the end of the vectors is corrupted"
    for name, kind, _, written in connection.execute("SELECT * FROM columns"):
        if written != seal(name, kind):
            yield f"items.sqlite: the column {name!r} is corrupted"
    count, dead = 0, set(catalogue.dead().tolist())
    for row in connection.execute("SELECT * FROM items"):
        count += 1
        if not is_as_written(row):
            yield f"items.sqlite: item {row[1]!r} is corrupted"
        if row[0] in dead or not 0 <= row[0] < finish:
            yield f"items.sqlite: item {row[1]!r} has the row {row[0]}, which does not exist"
    if count + len(dead) != finish:
        yield f"items.sqlite: {finish} rows exist, but {count} items and {len(dead)} dead rows are listed"
    expected = 0
    for block in catalogue.blocks():
        if block.first != expected or block.many < 1:
            yield f"items.sqlite: the block at row {block.first} does not follow the one before"
        expected = block.first + block.many
    if expected != finish:
        yield f"items.sqlite: blocks end at row {expected}, the vectors at {finish}"
