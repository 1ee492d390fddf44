"""items.sqlite: which items there are, which row of the vector file each has, and what its blocks must add up to.

The row of an item never changes its vector: an item that is replaced gets a new row. Rows without an item are listed
as dead until the index is compacted. One transaction after another is committed and synced (WAL, synchronous=full);
a reader that has begun sees one of them, whole.
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


# A connection to a file of SQLite: for those who may write, for those who may not, and what is said if it fails.

Stamp: TypeAlias = tuple[tuple[int, ...], bool]

# SQLite quotes what it cannot read in its message, which then need not be text.
DAMAGE = (sqlite3.Error, UnicodeDecodeError)
RESTORE = "Restore it from a copy, or build it again; `vicinal index rollback FOLDER` goes back to what was before."


def connect_to_read(path: Path) -> tuple[sqlite3.Connection, Stamp | None]:
    """A connection, to write as well where one may; and a stamp, if it is right only while the file has that one."""
    if not path.is_file():
        raise DataError(f"{path} is missing.", hint=RESTORE)
    here = os.access(path.parent, os.W_OK)
    if here and os.access(path, os.W_OK):
        return connect(path), None
    stamp = stamp_of(path)
    if here or stamp[1]:  # the log of a writer is there, or what tells of it can be made
        return connect(path, "?mode=ro"), None
    return connect(path, "?mode=ro&immutable=1"), stamp


def stamp_of(path: Path) -> Stamp:
    """What changes when the file does, or is about to: a writer has a log beside it."""
    try:
        status = path.stat()
    except OSError:
        return (), False
    log = path.with_name(f"{path.name}-wal")
    return (status.st_ino, status.st_size, status.st_mtime_ns), log.is_file() and log.stat().st_size > 0


def connect(path: Path, how: str = "") -> sqlite3.Connection:
    """A connection that syncs what it commits; `how` is what SQLite's address says after the path."""
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
    """Whether anybody has the file open, in this process or another; for one that is about to be removed.

    SQLite leaves the write-ahead log for good only where nobody else has the file open.
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
        return "locked" in str(error)  # a damaged file is of no use to anybody


def unreadable(path: Path, error: Exception) -> DataError:
    """What is said of an error of SQLite, with what to do about it."""
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


# Items as rows of items.sqlite: each has a seal, by which a row that is not what was written is known.

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
    """What one transaction left behind.

    Attributes:
        version: Of the content: rises with every transaction.
        finish: Rows of the vector file that exist.
    """

    version: int
    finish: int


@dataclass(frozen=True)
class Block:
    """Rows that were written at once.

    Attributes:
        first: Its first row.
        many: How many.
        longest: Length of its longest vector.
        sha256: Of its bytes.
    """

    first: int
    many: int
    longest: float
    sha256: str


class Catalogue:
    """One connection to items.sqlite; each thread has its own.

    Who may not write to the folder reads all the same. SQLite's readers tell each other and the writer what they do in
    a file beside the database; where that can neither be made nor found, the database is read as one that does not
    change, and whether it has is looked up before and after.

    Args:
        path: The file; made by `create`.
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
        """Make an empty file."""
        content = json.dumps({"format": "vicinal-index", "version": VERSION, **asdict(header)}, sort_keys=True)
        connection = connect(path)
        try:
            connection.executescript(f"PRAGMA journal_mode = wal; BEGIN; {SCHEMA}")
            connection.execute("INSERT INTO header VALUES (?, ?)", (content, seal(content)))
            connection.execute("INSERT INTO state VALUES (0, 0, ?)", (seal(0, 0),))
            for place, name in enumerate(BUILT_IN):
                kind = None if name in ("id", "label") else "text"
                connection.execute("INSERT INTO columns VALUES (?, ?, ?, ?)", (name, kind, place, seal(name, kind)))
            connection.execute("COMMIT")
        except DAMAGE as error:
            raise unreadable(path, error) from error
        finally:
            connection.close()
        return cls(path)

    def close(self) -> None:
        """End the connection; the last one of all processes moves everything into the one file."""
        self.connection.close()

    @contextmanager
    def reading(self) -> Iterator[State]:
        """See one transaction, whole, for as long as this lasts."""
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
        """Change everything or nothing; what is committed is on the disk when this ends."""
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
        """Add items whose vectors are the rows from `state.finish` on, in place of items of the same id."""
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
        """Remove the items that pass a filter; return how many there were."""
        many = self._mark_dead(*self._sql(condition))
        self._set_state(state.version + 1, state.finish)
        return many

    def declare(self, state: State, columns: Mapping[str, Kind | None]) -> None:
        """Have columns, though no item has a value in them yet."""
        before = self.columns()
        self._with_columns(before, {**before, **columns})
        self._set_state(state.version + 1, state.finish)

    def count(self, condition: Condition | None = None) -> int:
        """How many items there are, or pass a filter."""
        if condition is None:
            finish = self._state().finish
            return finish - int(self.connection.execute("SELECT count(*) FROM dead").fetchone()[0])
        sql, values = self._sql(condition)
        return int(self.connection.execute(f"SELECT count(*) FROM items WHERE {sql}", values).fetchone()[0])

    def positions(self, condition: Condition) -> NDArray[np.int64]:
        """The rows of the items that pass a filter, in rising order."""
        sql, values = self._sql(condition)
        found = self.connection.execute(f"SELECT position FROM items WHERE {sql} ORDER BY position", values)
        return np.fromiter((position for (position,) in found), np.int64)

    def dead(self) -> NDArray[np.int64]:
        """The rows that no item has any longer."""
        found = self.connection.execute("SELECT position FROM dead ORDER BY position")
        return np.fromiter((position for (position,) in found), np.int64)

    def ids(self, positions: Iterable[int]) -> dict[int, Id]:
        """The items that have some rows, by row."""
        wanted = json.dumps(list(map(int, positions)))
        return dict(
            self.connection.execute(
                "SELECT position, id FROM items WHERE position IN (SELECT value FROM json_each(?))", (wanted,)
            )
        )

    def items(self, positions: Iterable[int]) -> dict[int, Item]:
        """The items that have some rows, by row."""
        wanted = json.dumps(list(map(int, positions)))
        found = self.connection.execute(
            "SELECT * FROM items WHERE position IN (SELECT value FROM json_each(?))", (wanted,)
        )
        columns = self.columns()
        return {row[0]: item_of(row, columns) for row in found}

    def ordered(
        self, condition: Condition | None = None, limit: int = -1, offset: int = 0
    ) -> Iterator[tuple[int, Item]]:
        """The items that pass a filter in the order of their ids, with their rows: all, or some of them."""
        sql, values = ("1 = 1", []) if condition is None else self._sql(condition)
        columns = self.columns()
        asked = f"SELECT * FROM items WHERE {sql} ORDER BY id LIMIT ? OFFSET ?"
        for row in self.connection.execute(asked, [*values, limit, offset]):
            yield row[0], item_of(row, columns)

    def blocks(self) -> list[Block]:
        """All blocks of the vector file, in order."""
        return [Block(*row) for row in self.connection.execute("SELECT * FROM blocks ORDER BY first")]

    def longest(self) -> float:
        """At least the length of every vector."""
        return float(self.connection.execute("SELECT coalesce(max(longest), 0) FROM blocks").fetchone()[0])

    def labels(self, most: int) -> list[Value]:
        """The labels that items have, in order, and at most so many."""
        kind = self.columns()["label"]
        asked = "SELECT DISTINCT label FROM items WHERE label IS NOT NULL ORDER BY label LIMIT ?"
        return [read_value(label, kind) for (label,) in self.connection.execute(asked, (most,))]

    def path_range(self) -> tuple[str, str] | None:
        """The first and the last path of items in the order of texts; None if no item has one."""
        first, last = self.connection.execute("SELECT min(path), max(path) FROM items").fetchone()
        return None if first is None else (first, last)

    def columns(self) -> dict[str, Kind | None]:
        """What each column holds, those of every item first; None for one that is empty so far."""
        return {name: kind for name, (kind, _) in self._places().items()}

    def _look_again(self) -> None:
        """Read what is there now, where SQLite was told that nothing changes."""
        if self._unchanged is not None and self._unchanged != stamp_of(self.path):
            self.connection.close()
            self.connection, self._unchanged = connect_to_read(self.path)
            self._columns = (-1, {})

    def _read_header(self) -> Header:
        content, written = self.connection.execute("SELECT content, seal FROM header").fetchone()
        if written != seal(content):
            raise DataError(f"{self.path} is damaged: its header is not what was written.", hint=RESTORE)
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
        """Make room for columns and kinds that items bring along."""
        before = self.columns()
        return self._with_columns(before, widened(before, items))

    def _with_columns(
        self, before: Mapping[str, Kind | None], after: Mapping[str, Kind | None]
    ) -> dict[str, Kind | None]:
        for place, (name, kind) in enumerate(after.items()):
            if name not in before:
                row = (name, kind, place, seal(name, kind))
                self.connection.execute("INSERT INTO columns VALUES (?, ?, ?, ?)", row)
                self.connection.execute(f"ALTER TABLE items ADD COLUMN c{place}")
            elif kind != before[name]:
                change = (kind, seal(name, kind), name)
                self.connection.execute("UPDATE columns SET kind = ?, seal = ? WHERE name = ?", change)
        self._columns = (-1, {})
        return self.columns()

    def _places(self) -> dict[str, tuple[Kind | None, str]]:
        version = self._state().version
        if self._columns[0] != version:
            found = self.connection.execute("SELECT name, kind, place FROM columns ORDER BY place")
            own = {name: name for name in BUILT_IN}
            places = {name: (kind, own.get(name) or f"c{place}") for name, kind, place in found}
            self._columns = (version, places)
        return self._columns[1]

    def _sql(self, condition: Condition) -> tuple[str, list[Any]]:
        check_condition(condition, self.columns())
        return to_sql(condition, {name: sql for name, (_, sql) in self._places().items()}, _member)


def _member(column: str, values: tuple[Value, ...]) -> tuple[str, list[Any]]:
    return f"{column} IN (SELECT value FROM json_each(?))", [json.dumps(values)]


# What is wrong with items.sqlite: pages, seals of the rows, rows that two items have or none.


def problems_of(catalogue: Catalogue) -> list[str]:
    """Everything that is not as it was written, one sentence each."""
    try:
        found = [f"items.sqlite: {line}" for (line,) in catalogue.connection.execute("PRAGMA integrity_check")]
        return [line for line in found if line != "items.sqlite: ok"] + list(_broken(catalogue))
    except (sqlite3.DatabaseError, OverflowError, ValueError, TypeError, IndexError, KeyError) as error:
        return [f"items.sqlite cannot be read: {error}"]


def _broken(catalogue: Catalogue) -> Iterator[str]:
    connection = catalogue.connection
    version, finish, written = connection.execute("SELECT * FROM state").fetchone()
    if written != seal(version, finish):
        yield "items.sqlite: the end of the vectors is not what was written"
    for name, kind, _, written in connection.execute("SELECT * FROM columns"):
        if written != seal(name, kind):
            yield f"items.sqlite: the column {name!r} is not what was written"
    many, dead = 0, set(catalogue.dead().tolist())
    for row in connection.execute("SELECT * FROM items"):
        many += 1
        if not is_as_written(row):
            yield f"items.sqlite: item {row[1]!r} is not what was written"
        if row[0] in dead or not 0 <= row[0] < finish:
            yield f"items.sqlite: item {row[1]!r} has the row {row[0]}, which does not exist"
    if many + len(dead) != finish:
        yield f"items.sqlite: {finish} rows exist, but {many} items and {len(dead)} dead rows are listed"
    expected = 0
    for block in catalogue.blocks():
        if block.first != expected or block.many < 1:
            yield f"items.sqlite: the block at row {block.first} does not follow the one before"
        expected = block.first + block.many
    if expected != finish:
        yield f"items.sqlite: blocks end at row {expected}, the vectors at {finish}"
