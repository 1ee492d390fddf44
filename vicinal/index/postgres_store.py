"""Items and vectors in PostgreSQL with pgvector: for those who run it already, several writers, replicas for reading.

One table per index, `vicinal_NAME`, with a column for each that items have; what these are is in `vicinal_NAME_about`.
pgvector computes in float32, so that it proposes and float64 decides: the same answers as everywhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, final

import numpy as np
from jaxtyping import Float32

from vicinal.errors import DataError, InputError, MissingExtra
from vicinal.index.columns import BUILT_IN, Kind, check_condition
from vicinal.index.float64_similarity import similarities
from vicinal.index.item import Header, Item, widened
from vicinal.index.store import Answer
from vicinal.index.where import Condition, Value
from vicinal.index.where_sql import to_sql

__all__ = ["PostgresStore"]

TYPES: dict[Kind, str] = {
    "integer": "bigint",
    "number": "double precision",
    "text": 'text COLLATE "C"',
    "boolean": "boolean",
}
ORDER = {"cosine": "coalesce(nullif(vector <=> %s::vector, 'NaN'), 1)", "euclidean": "vector <-> %s::vector"}
SPARE = 8  # candidates beyond k
EF_SEARCH = 200  # candidates that HNSW looks at
MEASURED = 64  # items whose neighbours are sought, to measure the recall of HNSW


@final
class PostgresStore:
    """Items and vectors in a PostgreSQL database that has the extension pgvector.

    Every change is one transaction; what is committed is as safe as the server makes it.

    Args:
        url: Such as "postgresql://user@host/database".
        name: Of the index in that database: letters, digits and underscores.
    """

    def __init__(self, url: str, name: str = "index") -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
            raise InputError(f"The name of an index in PostgreSQL is made of a-z, 0-9 and _; got {name!r}.")
        self._psycopg = _psycopg()
        self.url, self.name = url, name
        self._table = f"vicinal_{name}"
        try:
            self._connection = self._psycopg.connect(url, autocommit=True)
        except self._psycopg.Error as error:
            raise DataError(f"PostgreSQL at {_without_password(url)} cannot be reached: {error}") from None
        try:
            self.header = self._read_header()
        except BaseException:
            self._connection.close()
            raise
        self._recall: float | None = None

    @classmethod
    def create(cls, url: str, header: Header, name: str = "index") -> PostgresStore:
        """Make an empty store, where there is none of that name."""
        bare = object.__new__(cls)
        bare._psycopg = _psycopg()
        table = f"vicinal_{name}"
        with bare._psycopg.connect(url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            taken = connection.execute("SELECT to_regclass(%s)", (f"{table}_about",)).fetchone()[0]
            if taken:
                raise InputError(f"There is an index {name!r} in this database already.")
            connection.execute(f"CREATE TABLE {table}_about (key text PRIMARY KEY, value jsonb NOT NULL)")
            connection.execute(
                f"INSERT INTO {table}_about VALUES ('header', %s), ('columns', %s)",
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

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def drop(self) -> None:
        """Remove the whole index from the database."""
        self._connection.execute(f"DROP TABLE {self._table}, {self._table}_about")

    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Keep items, in place of those of the same id, in one transaction."""
        if not len(items):
            return
        with self._transaction():
            columns = self._widened(items)
            names = list(columns)
            sql = ", ".join([*(self._column(place) for place in range(len(names))), "vector"])
            cursor = self._connection.cursor()
            cursor.execute(f"CREATE TEMP TABLE incoming (LIKE {self._table}) ON COMMIT DROP")
            with cursor.copy(f"COPY incoming ({sql}) FROM STDIN") as copy:
                for item, vector in zip(items, vectors, strict=True):
                    values = item.values()
                    copy.write_row([*(values.get(name) for name in names), _text(vector)])
            cursor.execute(f"DELETE FROM {self._table} WHERE id IN (SELECT id FROM incoming)")
            cursor.execute(f"INSERT INTO {self._table} ({sql}) SELECT {sql} FROM incoming")

    def delete(self, where: Condition) -> int:
        """Remove the items that pass a filter, and say how many there were."""
        with self._transaction():
            sql, values = self._sql(where)
            return int(self._connection.execute(f"DELETE FROM {self._table} WHERE {sql}", values).rowcount)

    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """The items that pass a filter in the order of their ids, and their vectors (or none of them)."""
        with self._transaction():
            sql, values = self._sql(where)
            columns = self.columns()
            names = ", ".join(self._column(place) for place in range(len(columns)))
            extra = ", vector::text" if vectors else ""
            found = self._connection.execute(
                f"SELECT {names}{extra} FROM {self._table} WHERE {sql} ORDER BY id", values
            ).fetchall()
        items = [_item(row, columns) for row in found]
        if not vectors:
            return items, np.empty((0, self.header.dim), np.float32)
        return items, _rows([row[-1] for row in found], self.header.dim)

    def search(
        self,
        queries: Float32[np.ndarray, "n d"],
        k: int,
        where: Condition | None = None,
        *,
        fast: bool = False,
        items: bool = True,
    ) -> Answer:
        """The k nearest of the items that pass a filter; with `fast` by an HNSW index, if there is one."""
        with self._transaction():
            k = min(k, self.count(where))
            hnsw = fast and self._has_hnsw()
            if not k or not len(queries):
                return Answer(np.empty((len(queries), k), dtype=object), np.empty((len(queries), k)))
            found = [self._nearest(query, k, where, hnsw) for query in queries]
            ids = np.array([[key for key, _ in row] for row in found])
            values = np.array([[value for _, value in row] for row in found])
            known = {item.id: item for item in self._of_ids(np.unique(ids).tolist())} if items else {}
            recall = self._measured(k) if hnsw else 1.0
        return Answer(ids, values, known, recall)

    def count(self, where: Condition | None = None) -> int:
        """How many items there are, or pass a filter."""
        with self._transaction():
            sql, values = self._sql(where)
            return int(
                self._connection.execute(f"SELECT count(*) FROM {self._table} WHERE {sql}", values).fetchone()[0]
            )

    def columns(self) -> Mapping[str, Kind | None]:
        """What each column holds."""
        found = self._connection.execute(f"SELECT value FROM {self._table}_about WHERE key = 'columns'").fetchone()
        return dict(found[0])

    def verify(self) -> list[str]:
        """What does not fit; that pages are as they were written is the server's business (data checksums)."""
        problems = []
        with self._transaction():
            off = self._connection.execute("SHOW data_checksums").fetchone()[0]
            if off != "on":
                problems.append("the server keeps no checksums of its pages; have it do so with pg_checksums --enable")
            wrong = self._connection.execute(
                f"SELECT count(*) FROM {self._table} WHERE vector_dims(vector) <> %s", (self.header.dim,)
            ).fetchone()[0]
            if wrong:
                problems.append(f"{wrong} vectors do not have {self.header.dim} numbers")
        return problems

    def build_hnsw(self, *, half: bool = False) -> None:
        """Make an HNSW index for `fast=True`; with `half` in half precision, at half the size."""
        kind = f"halfvec({self.header.dim})" if half else f"vector({self.header.dim})"
        operators = f"{'halfvec' if half else 'vector'}_{'cosine' if self.header.distance == 'cosine' else 'l2'}_ops"
        with self._transaction():
            self._connection.execute(f"DROP INDEX IF EXISTS {self._table}_hnsw")
            self._connection.execute(
                f"CREATE INDEX {self._table}_hnsw ON {self._table} USING hnsw ((vector::{kind}) {operators})"
            )
            self._connection.execute(
                f"INSERT INTO {self._table}_about VALUES ('hnsw', %s) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (json.dumps(kind),),
            )
        self._recall = None

    def _read_header(self) -> Header:
        taken = self._connection.execute("SELECT to_regclass(%s)", (f"{self._table}_about",)).fetchone()[0]
        if not taken:
            raise DataError(f"There is no index {self.name!r} in this database.", hint="Make one with build.")
        found = self._connection.execute(f"SELECT value FROM {self._table}_about WHERE key = 'header'").fetchone()
        fields = dict(found[0])
        if (version := fields.pop("version")) != 1:
            raise DataError(f"The index {self.name!r} has format version {version}; this vicinal reads version 1.")
        return Header(**fields)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._connection.transaction():
                yield
        except self._psycopg.Error as error:
            raise DataError(f"PostgreSQL refused: {str(error).strip()}") from error

    def _column(self, place: int) -> str:
        return BUILT_IN[place] if place < len(BUILT_IN) else f"c{place}"

    def _sql(self, condition: Condition | None) -> tuple[str, list[Any]]:
        if condition is None:
            return "TRUE", []
        kinds = self.columns()
        check_condition(condition, kinds)
        columns = {name: self._column(place) if kind else "NULL" for place, (name, kind) in enumerate(kinds.items())}
        return to_sql(condition, columns, _member, mark="%s")

    def _widened(self, items: Sequence[Item]) -> Mapping[str, Kind | None]:
        """Make room for columns and kinds that items bring along; one writer at a time may."""
        self._connection.execute(f"LOCK TABLE {self._table}_about IN SHARE ROW EXCLUSIVE MODE")
        before = self.columns()
        after = widened(before, items)
        for place, (name, kind) in enumerate(after.items()):
            column, kept = self._column(place), TYPES[kind or "text"]
            if name not in before:
                self._connection.execute(f"ALTER TABLE {self._table} ADD COLUMN {column} {kept}")
            elif kind != before[name]:
                bare = kept.removesuffix(' COLLATE "C"')
                self._connection.execute(
                    f"ALTER TABLE {self._table} ALTER COLUMN {column} TYPE {kept} USING {column}::{bare}"
                )
        if after != before:
            content = json.dumps([[name, kind] for name, kind in after.items()])
            self._connection.execute(f"UPDATE {self._table}_about SET value = %s WHERE key = 'columns'", (content,))
        return after

    def _nearest(self, query: Float32[np.ndarray, " d"], k: int, where: Condition | None, hnsw: bool) -> list[Any]:
        """Ids and similarities of the k nearest: candidates by the server's float32, the order by float64."""
        sql, values = self._sql(where)
        asked = _text(query)
        order, extra = self._order(hnsw)
        wanted = k + SPARE
        while True:
            found = self._connection.execute(
                f"SELECT id, vector::text, {order} AS far FROM {self._table} "
                f"WHERE {sql} ORDER BY {extra or 'far'} LIMIT %s",
                [asked, *values, *([asked] if extra else []), wanted],
            ).fetchall()
            rows = _rows([row[1] for row in found], self.header.dim)
            close = similarities(query[None], rows[None], self.header.distance)[0]
            ranked = sorted(zip((-close).tolist(), (row[0] for row in found), strict=True))[:k]
            if len(found) < wanted or hnsw or self._clearly_farther(found[-1][2], -ranked[-1][0]):
                return [(key, 0.0 - value) for value, key in ranked]
            wanted *= 4

    def _order(self, hnsw: bool) -> tuple[str, str]:
        """How far an item is, and what to sort by where that must be an expression of the index."""
        far = ORDER[self.header.distance]
        if not hnsw:
            return far, ""
        kind = self._connection.execute(f"SELECT value FROM {self._table}_about WHERE key = 'hnsw'").fetchone()[0]
        self._connection.execute(f"SET LOCAL hnsw.ef_search = {EF_SEARCH}")
        self._connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        sign = "<=>" if self.header.distance == "cosine" else "<->"
        return far, f"vector::{kind} {sign} %s::{kind}"

    def _clearly_farther(self, last: float, kth: float) -> bool:
        """Whether what the server did not propose is farther than the k-th nearest, in spite of float32."""
        error = (self.header.dim + 8) * 2.0**-22
        return last > (1 - kth) + error if self.header.distance == "cosine" else last > -kth * (1 + error) + 1e-30

    def _has_hnsw(self) -> bool:
        return bool(self._connection.execute("SELECT to_regclass(%s)", (f"{self._table}_hnsw",)).fetchone()[0])

    def _measured(self, k: int) -> float:
        """The share of the nearest items of some items that HNSW finds; measured once."""
        if self._recall is None:
            found = self._connection.execute(
                f"SELECT vector::text FROM {self._table} ORDER BY md5(id::text) LIMIT {MEASURED}"
            ).fetchall()
            shares = []
            for query in _rows([row[0] for row in found], self.header.dim):
                exact, fast = ({key for key, _ in self._nearest(query, k, None, way)} for way in (False, True))
                shares.append(len(exact & fast) / len(exact))
            self._recall = float(np.mean(shares))
        return self._recall

    def _of_ids(self, ids: list[Any]) -> list[Item]:
        columns = self.columns()
        names = ", ".join(self._column(place) for place in range(len(columns)))
        found = self._connection.execute(f"SELECT {names} FROM {self._table} WHERE id = ANY(%s)", (ids,)).fetchall()
        return [_item(row, columns) for row in found]


def _member(column: str, values: tuple[Value, ...]) -> tuple[str, list[Any]]:
    if not values:
        return "FALSE", []
    numbers = any(isinstance(value, float) for value in values)
    return f"{column} = ANY(%s)", [[float(value) for value in values] if numbers else list(values)]


def _text(vector: Float32[np.ndarray, " d"]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def _rows(texts: list[str], dim: int) -> Float32[np.ndarray, "n d"]:
    if not texts:
        return np.empty((0, dim), np.float32)
    return np.array([json.loads(text) for text in texts], dtype=np.float32)


def _item(row: Sequence[Any], columns: Mapping[str, Kind | None]) -> Item:
    values = dict(zip(columns, row, strict=False))
    metadata = {name: value for name, value in values.items() if name not in BUILT_IN and value is not None}
    own = {name: values[name] for name in BUILT_IN}
    return Item(**own, metadata=metadata)


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra("postgres", "an index in PostgreSQL") from None
    return psycopg


def _without_password(url: str) -> str:
    return re.sub(r"//([^:@/]+):[^@]*@", r"//\1@", url)
