"""Items and vectors in Milvus, for collections that are too large for one machine.

One collection per index, `vicinal_NAME`, holds a digest of the id, the item as JSON, the vector, and a partition column
(a digest of the label), so that a filter on labels reads only the partitions concerned. `vicinal_NAME_about` holds the
kinds of the columns, the version of the content and the recall of fast search.

No text of a filter is inserted into Milvus's filter language. Ids and labels are sent as digests; all other conditions
are tested on the server's candidates by `filters.matches`. Milvus computes in float32, so it proposes candidates and
float64 ranks them: answers are the same as in every other store. If there are vectors that Milvus cannot compare (their
squares leave the range of float32, or they are zero and have no cosine), all items are compared in float64.
Consistency is Strong: acknowledged writes are visible to the next search.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any, final
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from jaxtyping import Float32

from vicinal._util.secrets import masked, without_secrets
from vicinal.errors import DataError, InputError, MissingExtra
from vicinal.index.filters import BUILT_IN, And, Compare, Condition, In, Kind, check_condition, matches
from vicinal.index.item import Header, Id, Item, check_dim, widened
from vicinal.index.stores.store import Answer, Store
from vicinal.index.stores.vectors import CHANGED, NEIGHBOURS, TRIED, now
from vicinal.neighbours.similarity import similarities

__all__ = ["MilvusStore", "address_of"]


# Connection to a Milvus server, and its errors.

PATIENCE = 10.0  # timeout of a connection, in seconds


def milvus_client(url: str) -> Any:
    """Return a client for the server at an address.

    Raises:
        DataError: If it cannot be reached; the message has the address without its secrets.
    """
    milvus = pymilvus_library()
    try:
        return milvus.MilvusClient(**address_of(url))
    except Exception as error:  # pymilvus has no common class for connection errors
        message = without_secrets(str(error).splitlines()[0] if str(error) else type(error).__name__, url)
        raise DataError(f"Milvus at {masked(url)} cannot be reached: {message}") from None


def address_of(url: str) -> dict[str, Any]:
    """Return the arguments of pymilvus for an address.

    Example:
        >>> address_of("milvus+https://me:p%40ss@host:19530/birds")
        {'uri': 'https://host:19530', 'token': 'me:p@ss', 'db_name': 'birds', 'timeout': 10.0}
    """
    parts = urlsplit(url)
    if not parts.netloc:
        return {"uri": url.partition("://")[2]}
    login, _, host = parts.netloc.rpartition("@")
    [token] = parse_qs(parts.query).get("token", [unquote(login) or os.environ.get("MILVUS_TOKEN", "")])
    protocol = "https" if parts.scheme.endswith("+https") else "http"
    return {"uri": f"{protocol}://{host}", "token": token, "db_name": parts.path.strip("/"), "timeout": PATIENCE}


@contextmanager
def refusals() -> Iterator[None]:
    """Convert errors of the server to DataError."""
    try:
        yield
    except pymilvus_library().MilvusException as error:
        raise DataError(f"Milvus refused: {str(error).strip()}") from error


def pymilvus_library() -> Any:
    """Import and return the library."""
    try:
        import pymilvus
    except ImportError:
        raise MissingExtra("milvus", "an index in Milvus") from None
    return pymilvus


# Items as rows of a Milvus collection, and the part of a filter that the server sees: only digests.

MESSAGE = 16 << 20  # bytes of rows per request; servers accept 64 MiB by default
RANGE = (1e-15, 1e15)  # lengths of vectors whose squares are in the range of float32


def demanded(where: Condition | None, column: str) -> tuple[Any, ...] | None:
    """Return the values of a column that a filter requires, one of which an item must have; None if any will do."""
    if isinstance(where, In) and where.column == column:
        return where.values
    if isinstance(where, Compare) and where.column == column and where.operator == "=":
        return (where.value,)
    if isinstance(where, And):
        return next((values for part in where.parts if (values := demanded(part, column)) is not None), None)
    return None


def in_partitions(where: Condition | None) -> str:
    """Return a Milvus filter for the partitions of the labels that a filter requires; empty for all."""
    labels = demanded(where, "label")
    return "" if labels is None else f"part in {json.dumps(sorted({_part(label) for label in labels}))}"


def _part(label: Any) -> str:
    """Return a digest of a label, in hexadecimal. Equal numbers have the same digest, whether int or float."""
    plain = float(label) if isinstance(label, int) and not isinstance(label, bool) else label
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def key_of(key: Any) -> str:
    """Return the digest of an id, which is the primary key in the server."""
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()


def _row(item: Item, vector: Float32[np.ndarray, " d"]) -> dict[str, Any]:
    own = {name: getattr(item, name) for name in BUILT_IN}
    body = {"own": own, "metadata": dict(item.metadata)}
    numbers = vector.tolist() if len(vector) > 1 else [*vector.tolist(), 0.0]
    return {"key": key_of(item.id), "part": _part(item.label), "body": {"item": json.dumps(body)}, "vector": numbers}


def messages(items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of items in batches that fit into one request."""
    rows: list[dict[str, Any]] = []
    size = 0
    for item, vector in zip(items, vectors, strict=True):
        row = _row(item, vector)
        more = 4 * len(vector) + len(row["body"]["item"].encode()) + 200
        if rows and size + more > MESSAGE:
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += more
    if rows:
        yield rows


def incomparable(vectors: Float32[np.ndarray, "n d"], distance: str) -> bool:
    """Return whether a server cannot compare some vector.

    That is so if the square of its length is outside the range of float32, or if it has no direction: servers of
    version 2.3 leave zero vectors out of a search by cosine.
    """
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    outside = (lengths < RANGE[0]) | (lengths > RANGE[1])
    return bool((outside if distance == "cosine" else outside & (lengths > 0)).any())


def item_of(body: Mapping[str, str]) -> Item:
    """Return the item of a row."""
    content = json.loads(body["item"])  # stored as text, because JSON in Milvus changes numbers
    return Item(**content["own"], metadata=content["metadata"])


AT_ONCE = 1000  # rows read at a time
PARTITIONS = 64
SPARE = 16  # candidates beyond k
MOST = 16_384  # largest number of candidates that Milvus returns for a query
LISTS = (16, 65_536)  # fewest and most lists of an IVF index; Milvus allows no more
PROBES = ("probe_a", "probe_b", "probe_c", "probe_d")  # keys of rows that test a server
PROBED = 16  # a fast search reads one in this many lists
METRICS = {"cosine": "COSINE", "euclidean": "L2"}


@final
class MilvusStore(Store):
    """Items and vectors in a Milvus server or cluster.

    A request of up to 16 MiB is atomic; larger changes take several requests.

    Args:
        url: Address such as "milvus://host:19530" or "milvus+https://host:19530/database". Credentials go before the
            host ("user:password@"), after it ("?token="), or into the environment variable MILVUS_TOKEN.
            "milvus:///path/to/file.db" is the emulation milvus-lite.
        name: Name of the index in that server: letters, digits and underscores.
    """

    def __init__(self, url: str, name: str = "index") -> None:
        self.url, self.name = url, name
        self._table = _table(name)
        self._client = milvus_client(url)
        try:
            self.header, self._by_partition = self._read_about()
        except BaseException:
            self._client.close()
            raise

    @classmethod
    def create(cls, url: str, header: Header, name: str = "index") -> MilvusStore:
        """Create an empty store; there must be none with that name."""
        table, kinds = _table(name), pymilvus_library().DataType
        with closing(milvus_client(url)) as client, refusals():
            if client.has_collection(f"{table}_about"):
                raise InputError(f"The server already has an index {name!r}.")
            if client.has_collection(table):  # left by an interrupted creation
                client.drop_collection(table)
            for collection, dim, metric in ((table, header.dim, METRICS[header.distance]), (f"{table}_about", 2, "L2")):
                schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
                schema.add_field("key", kinds.VARCHAR, is_primary=True, max_length=64)
                schema.add_field("part", kinds.VARCHAR, max_length=64, is_partition_key=True)
                schema.add_field("body", kinds.JSON)
                schema.add_field("vector", kinds.FLOAT_VECTOR, dim=max(2, dim))
                index = client.prepare_index_params()
                index.add_index("vector", index_type="FLAT", metric_type=metric)  # the exact one
                client.create_collection(
                    collection,
                    schema=schema,
                    index_params=index,
                    consistency_level="Strong",
                    num_partitions=PARTITIONS if collection == table else 1,
                )
            columns = [[column, None if column in ("id", "label") else "text"] for column in BUILT_IN]
            about = {"version": 1, "header": asdict(header), "columns": columns}
            _write_about(client, table, {**about, "by_partition": _finds_by_partition(client, table, header.dim)})
        return cls(url, name)

    @classmethod
    def exists(cls, url: str, name: str) -> bool:
        """Return whether a server has an index with that name."""
        table = _table(name)
        with closing(milvus_client(url)) as client, refusals():
            return bool(client.has_collection(f"{table}_about"))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def drop(self) -> bool:
        """Remove the whole index from the server, which cannot detect whether another client has it open."""
        with refusals():
            for table in (self._table, f"{self._table}_about"):
                self._client.drop_collection(table)
        return True

    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Add items, some megabytes at a time; they replace those with the same ids."""
        if not len(items):
            return
        check_dim(vectors, self._dim)
        about = self._about()
        after = {**about, "columns": [[*column] for column in widened(dict(about["columns"]), items).items()]}
        if incomparable(vectors, self.header.distance):
            after["extreme"] = True
        with refusals(), self._changed():
            if after != about:
                _write_about(self._client, self._table, after)
            for rows in messages(items, vectors):
                self._client.upsert(self._table, rows)

    def delete(self, where: Condition) -> int:
        """Remove the items that pass a filter, and return their number."""
        keys = [key_of(item.id) for item in self.get(where, vectors=False)[0]]
        if not keys:
            return 0
        with refusals(), self._changed():
            for start in range(0, len(keys), AT_ONCE):
                self._client.delete(self._table, ids=keys[start : start + AT_ONCE])
        return len(keys)

    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """Return the items that pass a filter, ordered by id, and their vectors if `vectors` is True."""
        self._check(where)
        passing = [row for row in self._rows(where, vectors) if where is None or matches(where, row[0].values())]
        passing.sort(key=lambda row: row[0].id)
        rows = [row for _, row in passing] if vectors else []
        return [item for item, _ in passing], np.array(rows, dtype=np.float32).reshape(-1, self._width)[:, : self._dim]

    def search(
        self,
        queries: Float32[np.ndarray, "n d"],
        k: int,
        where: Condition | None = None,
        *,
        fast: bool = False,
        items: bool = True,
    ) -> Answer:
        """Return the k nearest of the items that pass a filter; with `fast`, from some lists of an IVF index if any."""
        check_dim(queries, self._dim)
        self._check(where)
        count = self.count(where)
        k = min(k, count)
        if not k or not len(queries):
            return Answer(np.empty((len(queries), k), dtype=object), np.empty((len(queries), k)))
        about = self._about()
        fast = fast and "lists" in about
        found_items: dict[Id, Item] = {}
        ids, values = [], []
        for query in queries:
            ranked = (self._quickly(query, k, where, about) if fast else None) or self._nearest(
                query, k, where, count, about
            )
            found_items |= {item.id: item for _, _, item in ranked} if items else {}
            ids.append([key for _, key, _ in ranked])
            values.append([0.0 - value for value, _, _ in ranked])
        measured = self._recall(about) if fast else (1.0, "")
        return Answer(np.array(ids), np.array(values), found_items, *measured)

    def count(self, where: Condition | None = None) -> int:
        """Return the number of items, or of those that pass a filter; these are read to count them."""
        if where is not None:
            return len(self.get(where, vectors=False)[0])
        with refusals():
            return int(self._client.query(self._table, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def columns(self) -> Mapping[str, Kind | None]:
        """Return the kind of value that each column holds."""
        return dict(self._about()["columns"])

    def version(self) -> str:
        """Return the version of the content.

        Milvus has no transactions: the version is written after the change, and a writer that is killed in between
        leaves the old version until the next change.
        """
        return str(self._about("version").get("version", ""))

    def sample(self, many: int, seed: int = 0) -> Float32[np.ndarray, "n d"]:
        """Return the vectors of some items: those whose digests follow that of the seed."""
        with refusals():
            first = hashlib.sha256(str(seed).encode()).hexdigest()
            rows: list[Any] = []
            for condition in (f'key >= "{first}"', f'key < "{first}"'):
                if len(rows) < many:
                    rows += self._client.query(
                        self._table, filter=condition, output_fields=["vector"], limit=many - len(rows)
                    )
        return np.array([row["vector"] for row in rows], np.float32).reshape(-1, self._width)[:, : self._dim]

    def prepare_fast(self, *, half: bool = False) -> float:
        """Build an IVF_FLAT index, of whose lists `fast=True` searches some, and exact search all.

        Returns:
            Recall of fast search.
        """
        if half:
            raise InputError("Half precision is supported only by PostgreSQL.")
        lists = int(min(max(LISTS[0], 4 * math.sqrt(self.count())), LISTS[1]))
        with refusals():
            index = self._client.prepare_index_params()
            metric = METRICS[self.header.distance]
            index.add_index("vector", index_type="IVF_FLAT", metric_type=metric, params={"nlist": lists})
            self._client.release_collection(self._table)
            self._client.drop_index(self._table, "vector")
            self._client.create_index(self._table, index)
            self._client.load_collection(self._table)
            about = {**self._about(), "lists": lists}
            _write_about(self._client, self._table, {}, "recall")
            _write_about(self._client, self._table, about)
        return self._recall(about)[0]

    def verify(self) -> list[str]:
        """Return inconsistencies, one sentence each; damage to bytes is left to the server's storage to detect."""
        problems = []
        for item, row in self._rows(None, vectors=True):
            if len(row) != self._width or not np.isfinite(row).all():
                problems.append(f"the vector of {item.id!r} is not {self._dim} finite numbers")
        return problems

    @property
    def _dim(self) -> int:
        return self.header.dim

    @property
    def _width(self) -> int:
        """Dimension in the server. Milvus has no vectors of one number; these are padded with a zero."""
        return max(2, self.header.dim)

    def _read_about(self) -> tuple[Header, bool]:
        with refusals():
            if not self._client.has_collection(f"{self._table}_about"):
                raise DataError(f"There is no index {self.name!r} at {masked(self.url)}.", hint="Build it first.")
            for table in (self._table, f"{self._table}_about"):
                self._client.load_collection(table)
        about = self._about()
        if about["version"] != 1:
            raise DataError(f"The index {self.name!r} has format version {about['version']}; this vicinal reads 1.")
        return Header(**about["header"]), about["by_partition"]

    def _about(self, key: str = "about") -> dict[str, Any]:
        with refusals():
            rows = self._client.get(f"{self._table}_about", ids=[key], output_fields=["body"])
        return dict(rows[0]["body"]) if rows else {}

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """Write a new version of the content after a change, even if it was only made in part."""
        try:
            yield
        finally:
            _write_about(self._client, self._table, {"version": secrets.token_hex(8)}, "version")

    def _check(self, where: Condition | None) -> None:
        if where is not None:
            check_condition(where, self.columns())

    def _rows(self, where: Condition | None, vectors: bool) -> Iterator[tuple[Item, Any]]:
        """Yield all items that may pass a filter: those with its ids, with its labels, or all."""
        fields = ["body", "vector"] if vectors else ["body"]
        with refusals():
            if (ids := demanded(where, "id")) is not None:
                keys = [key_of(value) for value in ids if not isinstance(value, float)]
                for start in range(0, len(keys), AT_ONCE):
                    rows = self._client.get(self._table, ids=keys[start : start + AT_ONCE], output_fields=fields)
                    yield from ((item_of(row["body"]), row.get("vector")) for row in rows)
                return
            named = {"filter": self._partitions(where), "output_fields": fields}
            rows = self._client.query(self._table, limit=AT_ONCE, **named)
            if len(rows) < AT_ONCE:  # these are all rows, read with one request; the pages below take several
                yield from ((item_of(row["body"]), row.get("vector")) for row in rows)
                return
            pages = self._client.query_iterator(self._table, batch_size=AT_ONCE, **named)
            try:
                while page := pages.next():
                    yield from ((item_of(row["body"]), row.get("vector")) for row in page)
            finally:
                pages.close()

    def _partitions(self, where: Condition | None) -> str:
        return in_partitions(where) if self._by_partition else ""

    def _nearest(
        self, query: Float32[np.ndarray, " d"], k: int, where: Condition | None, many: int, about: Mapping[str, Any]
    ) -> list[tuple[float, Id, Item]]:
        """Return minus similarity, id and item of the k nearest: the server's candidates, ranked in float64."""
        comparable = not about.get("extreme") and not incomparable(query[None], self.header.distance)
        wanted = k + SPARE
        while comparable and wanted <= MOST:
            passing, last = self._proposed(query, wanted, where, about.get("lists"))
            if len(passing) >= k:
                ranked = self._ranked(query, passing)[:k]
                if len(passing) == many or self._clearly_farther(query, last, -ranked[-1][0]):
                    return ranked
            wanted *= 4
        passing = [row for row in self._rows(where, vectors=True) if where is None or matches(where, row[0].values())]
        return self._ranked(query, passing)[:k]

    def _quickly(
        self, query: Float32[np.ndarray, " d"], k: int, where: Condition | None, about: Mapping[str, Any]
    ) -> list[tuple[float, Id, Item]] | None:
        """Return the same from some lists; None if fewer than k items in these pass the filter."""
        wanted = min(4 * (k + SPARE), MOST)
        passing, _ = self._proposed(query, wanted, where, math.ceil(about["lists"] / PROBED))
        return self._ranked(query, passing)[:k] if len(passing) >= k else None

    def _proposed(
        self, query: Float32[np.ndarray, " d"], wanted: int, where: Condition | None, probed: int | None
    ) -> tuple[list[tuple[Item, Any]], float]:
        """Return the candidates of the server (in float32) that pass a filter, and the score of the last candidate."""
        padded = np.zeros(self._width, np.float32)
        padded[: self._dim] = query
        with refusals():
            candidates = self._client.search(
                self._table,
                data=[padded.tolist()],
                limit=wanted,
                filter=self._partitions(where),
                output_fields=["body", "vector"],
                search_params={"params": {} if probed is None else {"nprobe": probed}},
            )[0]
        pairs = [(item_of(hit["entity"]["body"]), hit["entity"]["vector"]) for hit in candidates]
        passing = [pair for pair in pairs if where is None or matches(where, pair[0].values())]
        return passing, candidates[-1]["distance"] if candidates else 0.0

    def _recall(self, about: Mapping[str, Any]) -> tuple[float, str]:
        """Return the recall of fast search on some items, and when it was measured."""
        cached, count = self._about("recall"), self.count()
        if not cached or abs(count - cached["rows"]) >= CHANGED * cached["rows"]:
            cached = {"share": self._measured(about, count), "when": now(), "rows": count}
            with refusals():
                _write_about(self._client, self._table, cached, "recall")
        return float(cached["share"]), str(cached["when"])

    def _measured(self, about: Mapping[str, Any], many: int) -> float:
        shares = []
        for query in self.sample(TRIED):
            right = {key for _, key, _ in self._nearest(query, min(NEIGHBOURS, many), None, many, about)}
            approximate = self._quickly(query, len(right), None, about)
            shares.append(1.0 if approximate is None else len(right & {key for _, key, _ in approximate}) / len(right))
        return float(np.mean(shares)) if shares else 1.0

    def _ranked(self, query: Float32[np.ndarray, " d"], pairs: list[tuple[Item, Any]]) -> list[tuple[float, Id, Item]]:
        rows = np.array([row for _, row in pairs], dtype=np.float32)[:, : self._dim]
        close = similarities(query[None], rows[None], self.header.distance)[0]
        ranked = [(-value, item.id, item) for value, (item, _) in zip(close.tolist(), pairs, strict=True)]
        return sorted(ranked, key=lambda row: row[:2])

    def _clearly_farther(self, query: Float32[np.ndarray, " d"], last: float, kth: float) -> bool:
        """Return whether all items that the server did not propose are certainly farther than the k-th nearest."""
        error = (self._dim + 8) * 2.0**-20
        if self.header.distance == "cosine":
            return last < kth - error
        # L2 in Milvus is squared, and may be computed from lengths and products, whose size is that of the query's.
        size = float(np.square(query, dtype=np.float64).sum())
        return last > kth**2 + error * 4 * (size + kth**2 + abs(last)) + 1e-30


def _write_about(client: Any, table: str, about: dict[str, Any], key: str = "about") -> None:
    row = {"key": key, "part": "about", "body": about, "vector": [0.0, 0.0]}
    client.upsert(f"{table}_about", [row])


def _finds_by_partition(client: Any, table: str, dim: int) -> bool:
    """Return whether a filter on the partition column finds replaced rows; version 2.3 partitions these by key."""
    rows = [{"key": key, "part": key[::-1], "body": {}, "vector": [1.0] * max(2, dim)} for key in PROBES]
    client.upsert(table, rows)
    replies = [client.query(table, filter=f'part in ["{row["part"]}"]', output_fields=["key"]) for row in rows]
    client.delete(table, ids=list(PROBES))
    return all(replies)


def _table(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        raise InputError(f"The name of an index in Milvus is made of a-z, 0-9 and _; got {name!r}.")
    return f"vicinal_{name}"
