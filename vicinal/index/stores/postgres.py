"""Items and vectors in PostgreSQL with pgvector: for an existing database, several writers, or read replicas.

One table per index, `vicinal_NAME`, has a column for each column of the items. `vicinal_NAME_about` lists these, with
a version that increases with every change. pgvector computes in float32, so it proposes candidates and float64 ranks
them: answers are the same as in every other store. Every connection holds a shared lock on the name of the index, so
that it is not dropped while in use.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, final

import numpy as np
from jaxtyping import Float32

from vicinal._util.secrets import masked
from vicinal._util.text import counted
from vicinal.errors import DataError, InputError
from vicinal.index.filters import BUILT_IN, Condition, Kind, check_condition, to_sql
from vicinal.index.item import Header, Item, check_dim, widened
from vicinal.index.stores._postgres_connection import (
    Connections,
    column_of,
    connect,
    item_of,
    member,
    psycopg,
    rows_of,
    text_of,
    unit,
)
from vicinal.index.stores.store import Answer, Store
from vicinal.index.stores.vectors import CHANGED, NEIGHBOURS, TRIED, now
from vicinal.neighbours.similarity import similarities

__all__ = ["PostgresStore"]


# Nearest rows of a PostgreSQL table: pgvector proposes candidates in float32, with spare ones, and float64 ranks them.

# Cosines of vectors whose squares leave the range of float32 come first, so that float64 compares them.
FAR = {
    "cosine": "CASE WHEN vector_norm(vector) BETWEEN 1e-15 AND 1e15 "
    "THEN coalesce(nullif(vector <=> %s::vector, 'NaN'), 1) WHEN vector_norm(vector) = 0 THEN 1 ELSE -1 END",
    "euclidean": "vector <-> %s::vector",
}
LARGEST = 1.8446742e19  # largest distance whose square float32 can represent; beyond that the server returns infinity
SMALLEST = 2.0**-126  # smallest square that float32 represents with full precision
SPARE = 8  # candidates beyond k


@dataclass(frozen=True)
class Scan:
    """Filter and method of one search.

    Attributes:
        passing: SQL of the filter.
        values: Parameters of the filter.
        hnsw: SQL type of the vectors in the HNSW index to use; empty for none.
    """

    passing: str
    values: list[Any]
    hnsw: str = ""


def nearest(
    connection: Any, table: str, header: Header, query: Float32[np.ndarray, " d"], k: int, scan: Scan
) -> list[tuple[Any, float]]:
    """Return ids and similarities of the k nearest: the server's float32 candidates, ranked in float64.

    Args:
        connection: Connection that is in a transaction.
        table: Table of the items.
        header: Properties shared by their vectors.
        query: The query vector.
        k: Number of neighbours; at most the number of items that pass.
        scan: Filter and method of the search.
    """
    query_text = text_of(unit(query) if header.distance == "cosine" else query)
    sign = "<=>" if header.distance == "cosine" else "<->"
    order = f"vector::{scan.hnsw} {sign} %s::{scan.hnsw}" if scan.hnsw else "far"
    wanted = k + SPARE
    while True:
        candidates = connection.execute(
            f"SELECT id, vector::text, {FAR[header.distance]} AS far FROM {table} "
            f"WHERE {scan.passing} ORDER BY {order} LIMIT %s",
            [query_text, *scan.values, *([query_text] if scan.hnsw else []), wanted],
        ).fetchall()
        if scan.hnsw and len(candidates) < k:  # HNSW stopped before enough items passed the filter
            scan, order = Scan(scan.passing, scan.values), "far"
            continue
        rows = rows_of([row[1] for row in candidates], header.dim)
        close = similarities(query[None], rows[None], header.distance)[0]
        ranked = sorted(zip((-close).tolist(), (row[0] for row in candidates), strict=True))[:k]
        if len(candidates) < wanted or scan.hnsw or _clearly_farther(candidates[-1][2], -ranked[-1][0], header):
            return [(key, 0.0 - value) for value, key in ranked]
        wanted *= 4


def _clearly_farther(last: float, kth: float, header: Header) -> bool:
    """Return whether all items that the server did not propose are certainly farther than the k-th nearest."""
    error = (header.dim + 8) * 2.0**-22
    if header.distance == "cosine":
        return last > (1 - kth) + error
    return min(last, LARGEST) ** 2 > kth**2 * (1 + 2 * error) + header.dim * SMALLEST


TYPES: dict[Kind, str] = {
    "integer": "bigint",
    "number": "double precision",
    "text": 'text COLLATE "C"',
    "boolean": "boolean",
}
GOING = 2000  # milliseconds in which a server should notice that a client has disconnected
EF_SEARCH = 200  # candidates that HNSW examines


@final
class PostgresStore(Store):
    """Items and vectors in a PostgreSQL database that has the extension pgvector.

    Every change and every answer is one transaction; committed data is as safe as the server makes it.

    Args:
        url: Address such as "postgresql://user@host/database".
        name: Name of the index in that database: letters, digits and underscores.
    """

    def __init__(self, url: str, name: str = "index") -> None:
        self.url, self.name = url, name
        self._table = _table(name)
        self._connections = Connections(url, partial(_hold, self._table))  # no bound method: it would keep self alive
        self._measuring = threading.Lock()
        self._measured_recall: dict[str, Any] | None = None
        try:
            self.header = self._read_header()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, url: str, header: Header, name: str = "index") -> PostgresStore:
        """Create an empty store; there must be none with that name."""
        table = _table(name)
        with closing(connect(url)) as connection, _refusals(), connection.transaction():
            if _has(connection, table):
                raise InputError(f"The database already has an index {name!r}.")
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(f"CREATE TABLE {table}_about (key text PRIMARY KEY, value jsonb NOT NULL)")
            connection.execute(
                f"INSERT INTO {table}_about VALUES ('header', %s), ('columns', %s), ('version', '0')",
                (
                    json.dumps({"version": 1, **asdict(header)}),
                    json.dumps([[name, None if name in ("id", "label") else "text"] for name in BUILT_IN]),
                ),
            )
            own = ", ".join(f"{column} {TYPES['text']}" for column in BUILT_IN)
            connection.execute(
                f"CREATE TABLE {table} ({own}, vector vector({int(header.dim)}) NOT NULL, PRIMARY KEY (id))"
            )
        return cls(url, name)

    @classmethod
    def exists(cls, url: str, name: str) -> bool:
        """Return whether a database has an index with that name."""
        table = _table(name)
        with closing(connect(url)) as connection, _refusals():
            return _has(connection, table)

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def drop(self) -> bool:
        """Remove the whole index from the database, unless another client has it open; return whether that was done."""
        self._connections.close_idle()
        with self._transaction() as connection:
            connection.execute(f"SET LOCAL lock_timeout = {GOING}")
            try:
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_of(self._table),))
            except psycopg().errors.LockNotAvailable:
                return False
            connection.execute(f"DROP TABLE {self._table}, {self._table}_about")
            return True

    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Add items in one transaction; they replace those with the same ids."""
        if not len(items):
            return
        check_dim(vectors, self.header.dim)
        with self._transaction() as connection:
            columns = self._widened(connection, items)
            names = list(columns)
            sql = ", ".join([*(column_of(position) for position in range(len(names))), "vector"])
            cursor = connection.cursor()
            cursor.execute(f"CREATE TEMP TABLE incoming (LIKE {self._table}) ON COMMIT DROP")
            with cursor.copy(f"COPY incoming ({sql}) FROM STDIN") as copy:
                for item, vector in zip(items, vectors, strict=True):
                    values = item.values()
                    copy.write_row([*(values.get(name) for name in names), text_of(vector)])
            cursor.execute(f"DELETE FROM {self._table} WHERE id IN (SELECT id FROM incoming)")
            cursor.execute(f"INSERT INTO {self._table} ({sql}) SELECT {sql} FROM incoming")
            self._count_changes(connection, len(items))

    def delete(self, where: Condition) -> int:
        """Remove the items that pass a filter, and return their number."""
        with self._transaction() as connection:
            scan = self._scan(connection, where)
            count = int(connection.execute(f"DELETE FROM {self._table} WHERE {scan.passing}", scan.values).rowcount)
            if count:
                self._count_changes(connection, count)
            return count

    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """Return the items that pass a filter, ordered by id, and their vectors if `vectors` is True."""
        with self._transaction(reading=True) as connection:
            scan, columns = self._scan(connection, where), self._columns(connection)
            names = ", ".join(column_of(position) for position in range(len(columns)))
            extra = ", vector::text" if vectors else ""
            rows = connection.execute(
                f"SELECT {names}{extra} FROM {self._table} WHERE {scan.passing} ORDER BY id", scan.values
            ).fetchall()
        items = [item_of(row, columns) for row in rows]
        if not vectors:
            return items, np.empty((0, self.header.dim), np.float32)
        return items, rows_of([row[-1] for row in rows], self.header.dim)

    def search(
        self,
        queries: Float32[np.ndarray, "n d"],
        k: int,
        where: Condition | None = None,
        *,
        fast: bool = False,
        items: bool = True,
    ) -> Answer:
        """Return the k nearest of the items that pass a filter; with `fast`, by an HNSW index if there is one."""
        check_dim(queries, self.header.dim)
        with self._transaction(reading=True) as connection:
            scan = self._scan(connection, where, self._hnsw(connection) if fast else "")
            k = min(k, self._count(connection, scan))
            if not k or not len(queries):
                return Answer(np.empty((len(queries), k), dtype=object), np.empty((len(queries), k)))
            neighbours = [nearest(connection, self._table, self.header, query, k, scan) for query in queries]
            ids = np.array([[key for key, _ in row] for row in neighbours])
            values = np.array([[value for _, value in row] for row in neighbours])
            found_items = {item.id: item for item in self._of_ids(connection, np.unique(ids).tolist())} if items else {}
            if not scan.hnsw:
                return Answer(ids, values, found_items)
            recall = self._recall(connection)
        return Answer(ids, values, found_items, recall["share"], recall["when"])

    def count(self, where: Condition | None = None) -> int:
        """Return the number of items, or of those that pass a filter."""
        with self._transaction(reading=True) as connection:
            return self._count(connection, self._scan(connection, where))

    def columns(self) -> Mapping[str, Kind | None]:
        """Return the kind of value that each column holds."""
        with self._transaction(reading=True) as connection:
            return self._columns(connection)

    def version(self) -> int:
        """Return the version of the content; every change adds the number of items that it affects."""
        with self._transaction(reading=True) as connection:
            return self._version(connection)

    def sample(self, many: int, seed: int = 0) -> Float32[np.ndarray, "n d"]:
        """Return the vectors of some items, drawn by a digest of their ids."""
        with self._transaction(reading=True) as connection:
            return self._drawn(connection, many, seed)

    def space(self) -> tuple[None, None, int]:
        """Return the memory of exact and fast search, which the server does not report, and the bytes on its disk."""
        with self._transaction(reading=True) as connection:
            [disk] = connection.execute("SELECT pg_total_relation_size(%s::regclass)", (self._table,)).fetchone()
            return None, None, int(disk)

    def verify(self) -> list[str]:
        """Return inconsistencies, one sentence each; damaged pages are left to the server's data checksums."""
        problems = []
        with self._transaction(reading=True) as connection:
            if connection.execute("SHOW data_checksums").fetchone()[0] != "on":
                problems.append("the server keeps no checksums of its pages; have it do so with pg_checksums --enable")
            wrong = connection.execute(
                f"SELECT count(*) FROM {self._table} WHERE vector_dims(vector) <> %s", (self.header.dim,)
            ).fetchone()[0]
            if wrong:
                problems.append(f"{counted(wrong, 'vector does', 'vectors do')} not have {self.header.dim} numbers")
        return problems

    def prepare_fast(self, *, half: bool = False) -> float:
        """Build an HNSW index for `fast=True` (with `half`, in half precision at half the size); return its recall."""
        kind = f"halfvec({self.header.dim})" if half else f"vector({self.header.dim})"
        operators = f"{'halfvec' if half else 'vector'}_{'cosine' if self.header.distance == 'cosine' else 'l2'}_ops"
        with self._transaction() as connection:
            connection.execute(f"DROP INDEX IF EXISTS {self._table}_hnsw")
            connection.execute(
                f"CREATE INDEX {self._table}_hnsw ON {self._table} USING hnsw ((vector::{kind}) {operators})"
            )
            connection.execute(f"DELETE FROM {self._table}_about WHERE key = 'recall'")
            self._write_about(connection, "hnsw", kind)
        self._measured_recall = None
        with self._transaction(reading=True) as connection:
            return float(self._recall(connection)["share"])

    def _read_header(self) -> Header:
        with self._transaction(reading=True) as connection:
            if not _has(connection, self._table):
                raise DataError(f"There is no index {self.name!r} at {masked(self.url)}.", hint="Build it first.")
            fields = dict(self._about(connection, "header"))
        if (version := fields.pop("version")) != 1:
            raise DataError(f"The index {self.name!r} has format version {version}; this vicinal reads version 1.")
        return Header(**fields)

    @contextmanager
    def _transaction(self, reading: bool = False) -> Iterator[Any]:
        """Run a transaction on a connection of this thread; a reader sees one consistent state."""
        with _refusals(), self._connections.lent() as connection, connection.transaction():
            if reading:
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection

    def _about(self, connection: Any, key: str) -> Any:
        row = connection.execute(f"SELECT value FROM {self._table}_about WHERE key = %s", (key,)).fetchone()
        return None if row is None else row[0]

    def _write_about(self, connection: Any, key: str, value: Any) -> None:
        connection.execute(
            f"INSERT INTO {self._table}_about VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, json.dumps(value)),
        )

    def _columns(self, connection: Any) -> dict[str, Kind | None]:
        return dict(self._about(connection, "columns"))

    def _version(self, connection: Any) -> int:
        return int(self._about(connection, "version") or 0)

    def _count_changes(self, connection: Any, many: int) -> None:
        connection.execute(
            f"INSERT INTO {self._table}_about AS kept VALUES ('version', to_jsonb(%s::bigint)) "
            "ON CONFLICT (key) DO UPDATE SET value = to_jsonb(kept.value::bigint + %s)",
            (many, many),
        )

    def _scan(self, connection: Any, condition: Condition | None, hnsw: str = "") -> Scan:
        if condition is None:
            return Scan("TRUE", [], hnsw)
        kinds = self._columns(connection)
        check_condition(condition, kinds)
        columns = {name: column_of(position) if kind else "NULL" for position, (name, kind) in enumerate(kinds.items())}
        return Scan(*to_sql(condition, columns, member, mark="%s"), hnsw)

    def _count(self, connection: Any, scan: Scan) -> int:
        query = f"SELECT count(*) FROM {self._table} WHERE {scan.passing}"
        return int(connection.execute(query, scan.values).fetchone()[0])

    def _widened(self, connection: Any, items: Sequence[Item]) -> Mapping[str, Kind | None]:
        """Add the columns and widen the kinds that new items need; one writer at a time can do so."""
        connection.execute(f"LOCK TABLE {self._table}_about IN SHARE ROW EXCLUSIVE MODE")
        before = self._columns(connection)
        after = widened(before, items)
        for position, (name, kind) in enumerate(after.items()):
            column, sql_type = column_of(position), TYPES[kind or "text"]
            if name not in before:
                connection.execute(f"ALTER TABLE {self._table} ADD COLUMN {column} {sql_type}")
            elif kind != before[name]:
                bare = sql_type.removesuffix(' COLLATE "C"')
                connection.execute(
                    f"ALTER TABLE {self._table} ALTER COLUMN {column} TYPE {sql_type} USING {column}::{bare}"
                )
        if after != before:
            self._write_about(connection, "columns", [[name, kind] for name, kind in after.items()])
        return after

    def _hnsw(self, connection: Any) -> str:
        """Configure HNSW for this transaction, and return the SQL type of its vectors; empty if there is no index."""
        if not connection.execute("SELECT to_regclass(%s)", (f"{self._table}_hnsw",)).fetchone()[0]:
            return ""
        connection.execute(f"SET LOCAL hnsw.ef_search = {EF_SEARCH}")
        connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        return str(self._about(connection, "hnsw"))

    def _recall(self, connection: Any) -> dict[str, Any]:
        """Return the recall of HNSW on some items, and when it was measured."""
        with self._measuring:
            cached = self._measured_recall or self._about(connection, "recall")
            version, count = self._version(connection), self._count(connection, Scan("TRUE", []))
            if cached is None or version - cached["version"] > CHANGED * count:
                cached = {"share": self._measure(connection), "when": now(), "version": version}
                # Saved so that other clients need not measure it again; a read-only user cannot save it.
                with suppress(DataError), self._transaction() as writing:
                    self._write_about(writing, "recall", cached)
            self._measured_recall = cached
            return cached

    def _measure(self, connection: Any) -> float:
        scans = Scan("TRUE", []), Scan("TRUE", [], self._hnsw(connection))
        shares = []
        for query in self._drawn(connection, TRIED):
            answers = (nearest(connection, self._table, self.header, query, NEIGHBOURS, scan) for scan in scans)
            exact, fast = ({key for key, _ in pairs} for pairs in answers)
            shares.append(len(exact & fast) / len(exact))
        return float(np.mean(shares)) if shares else 1.0

    def _drawn(self, connection: Any, many: int, seed: int = 0) -> Float32[np.ndarray, "n d"]:
        rows = connection.execute(
            f"SELECT vector::text FROM {self._table} ORDER BY md5(%s || id::text) LIMIT %s", (str(seed), many)
        ).fetchall()
        return rows_of([row[0] for row in rows], self.header.dim)

    def _of_ids(self, connection: Any, ids: list[Any]) -> list[Item]:
        columns = self._columns(connection)
        names = ", ".join(column_of(position) for position in range(len(columns)))
        rows = connection.execute(f"SELECT {names} FROM {self._table} WHERE id = ANY(%s)", (ids,)).fetchall()
        return [item_of(row, columns) for row in rows]


def _table(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        raise InputError(f"The name of an index in PostgreSQL is made of a-z, 0-9 and _; got {name!r}.")
    return f"vicinal_{name}"


def _has(connection: Any, table: str) -> bool:
    return bool(connection.execute("SELECT to_regclass(%s)", (f"{table}_about",)).fetchone()[0])


def _hold(table: str, connection: Any) -> None:
    """Take a lock that prevents other clients from dropping an index while a connection is open."""
    connection.execute("SELECT pg_advisory_lock_shared(%s)", (_lock_of(table),))


def _lock_of(table: str) -> int:
    return int.from_bytes(hashlib.sha256(table.encode()).digest()[:8], signed=True)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except psycopg().Error as error:
        raise DataError(f"PostgreSQL refused: {str(error).strip()}") from error
