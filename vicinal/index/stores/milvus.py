"""Items and vectors in Milvus: for collections past one machine.

One collection per index, `vicinal_NAME`: a digest of the id, the item as JSON, the vector, and a partition column (a
digest of the label), by which a filter on labels reaches only the partitions concerned. What columns hold, a name of
the present content and the recall of fast search are in `vicinal_NAME_about`.

Nothing of a filter is pasted into Milvus's language: ids and labels go as digests, and everything else is tested on
what the server proposes, by the function that defines filters. Milvus computes in float32, so that it proposes and
float64 decides: the same answers as everywhere else. If there are vectors that it cannot compare (their squares leave
the range of float32, or they are zeros and have no cosine), float64 compares all. Consistency is Strong: what was
acknowledged is found.
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


# How a Milvus server is reached, and what it says when it refuses.

PATIENCE = 10.0  # seconds to wait for a server


def milvus_client(url: str) -> Any:
    """A client of the server at an address.

    Raises:
        DataError: If it cannot be reached, with the address but not its secrets.
    """
    milvus = pymilvus_library()
    try:
        return milvus.MilvusClient(**address_of(url))
    except Exception as error:  # pymilvus has no common kind for what keeps it from connecting
        said = without_secrets(str(error).splitlines()[0] if str(error) else type(error).__name__, url)
        raise DataError(f"Milvus at {masked(url)} cannot be reached: {said}") from None


def address_of(url: str) -> dict[str, Any]:
    """What pymilvus wants to know of an address.

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
    """Say in one kind of error what the server refuses."""
    try:
        yield
    except pymilvus_library().MilvusException as error:
        raise DataError(f"Milvus refused: {str(error).strip()}") from error


def pymilvus_library() -> Any:
    """The library, where it is installed."""
    try:
        import pymilvus
    except ImportError:
        raise MissingExtra("milvus", "an index in Milvus") from None
    return pymilvus


# Items as rows of a Milvus collection, and what of a filter the server may be told: digests, and nothing else.

MESSAGE = 16 << 20  # bytes of rows that are sent at a time; servers take 64 MiB unless told otherwise
RANGE = (1e-15, 1e15)  # lengths of vectors whose squares float32 has


def demanded(where: Condition | None, column: str) -> tuple[Any, ...] | None:
    """Values of which a column must have one for a filter to pass; None if the filter does not say."""
    if isinstance(where, In) and where.column == column:
        return where.values
    if isinstance(where, Compare) and where.column == column and where.operator == "=":
        return (where.value,)
    if isinstance(where, And):
        return next((values for part in where.parts if (values := demanded(part, column)) is not None), None)
    return None


def in_partitions(where: Condition | None) -> str:
    """A filter in Milvus's language for the partitions of the labels that are demanded; empty for all."""
    labels = demanded(where, "label")
    return "" if labels is None else f"part in {json.dumps(sorted({_part(label) for label in labels}))}"


def _part(label: Any) -> str:
    """A digest: letters and digits, whatever the label is. Equal numbers have one, whole or not."""
    plain = float(label) if isinstance(label, int) and not isinstance(label, bool) else label
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def key_of(key: Any) -> str:
    """A digest of an id, by which the server knows the item."""
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()


def _row(item: Item, vector: Float32[np.ndarray, " d"]) -> dict[str, Any]:
    own = {name: getattr(item, name) for name in BUILT_IN}
    body = {"own": own, "metadata": dict(item.metadata)}
    numbers = vector.tolist() if len(vector) > 1 else [*vector.tolist(), 0.0]
    return {"key": key_of(item.id), "part": _part(item.label), "body": {"item": json.dumps(body)}, "vector": numbers}


def messages(items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> Iterator[list[dict[str, Any]]]:
    """Rows as the server has them, as many at a time as it takes."""
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
    """Whether a server cannot compare some vector: float32 has not the square of its length, or it has no direction.

    Servers of version 2.3 leave vectors of zeros out of what they find by cosine.
    """
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    outside = (lengths < RANGE[0]) | (lengths > RANGE[1])
    return bool((outside if distance == "cosine" else outside & (lengths > 0)).any())


def item_of(body: Mapping[str, str]) -> Item:
    """The item of a row."""
    content = json.loads(body["item"])  # as a text: JSON of Milvus has its own idea of numbers
    return Item(**content["own"], metadata=content["metadata"])


AT_ONCE = 1000  # rows that are read at a time
PARTITIONS = 64
SPARE = 16  # candidates beyond k
MOST = 16_384  # candidates that Milvus returns for a query
LISTS = (16, 65_536)  # of an IVF index: the fewest, and the most that Milvus has
PROBES = ("probe_a", "probe_b", "probe_c", "probe_d")  # keys of rows by which a server is tried
PROBED = 16  # a fast search looks into one of so many lists
METRICS = {"cosine": "COSINE", "euclidean": "L2"}


@final
class MilvusStore(Store):
    """Items and vectors in a Milvus server or cluster.

    A request of up to 16 MiB is kept whole or not at all; larger changes are several requests.

    Args:
        url: Such as "milvus://host:19530" or "milvus+https://host:19530/database"; who may, is said by
            "user:password@" before the host, by "?token=" after it, or by MILVUS_TOKEN in the environment.
            "milvus:///path/to/file.db" is the emulation milvus-lite.
        name: Of the index in that server: letters, digits and underscores.
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
        """Make an empty store, where there is none of that name."""
        table, kinds = _table(name), pymilvus_library().DataType
        with closing(milvus_client(url)) as client, refusals():
            if client.has_collection(f"{table}_about"):
                raise InputError(f"There is an index {name!r} in this server already.")
            if client.has_collection(table):  # of a creation that was killed
                client.drop_collection(table)
            for collection, dim, metric in ((table, header.dim, METRICS[header.distance]), (f"{table}_about", 2, "L2")):
                schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
                schema.add_field("key", kinds.VARCHAR, is_primary=True, max_length=64)
                schema.add_field("part", kinds.VARCHAR, max_length=64, is_partition_key=True)
                schema.add_field("body", kinds.JSON)
                schema.add_field("vector", kinds.FLOAT_VECTOR, dim=max(2, dim))
                index = client.prepare_index_params()
                index.add_index("vector", index_type="FLAT", metric_type=metric)  # the one that is exact
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
        """Whether a server has anything of an index of that name."""
        table = _table(name)
        with closing(milvus_client(url)) as client, refusals():
            return bool(client.has_collection(f"{table}_about"))

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def drop(self) -> bool:
        """Remove the whole index from the server, which cannot tell whether somebody else has it open."""
        with refusals():
            for table in (self._table, f"{self._table}_about"):
                self._client.drop_collection(table)
        return True

    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Keep items, in place of those of the same id, some megabytes at a time."""
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
        """Remove the items that pass a filter, and say how many there were."""
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
        """The items that pass a filter in the order of their ids, and their vectors (or none of them)."""
        self._check(where)
        found = [row for row in self._rows(where, vectors) if where is None or matches(where, row[0].values())]
        found.sort(key=lambda row: row[0].id)
        rows = [row for _, row in found] if vectors else []
        return [item for item, _ in found], np.array(rows, dtype=np.float32).reshape(-1, self._width)[:, : self._dim]

    def search(
        self,
        queries: Float32[np.ndarray, "n d"],
        k: int,
        where: Condition | None = None,
        *,
        fast: bool = False,
        items: bool = True,
    ) -> Answer:
        """The k nearest of the items that pass a filter; with `fast` in some lists of the index, if it has lists."""
        check_dim(queries, self._dim)
        self._check(where)
        many = self.count(where)
        k = min(k, many)
        if not k or not len(queries):
            return Answer(np.empty((len(queries), k), dtype=object), np.empty((len(queries), k)))
        about = self._about()
        fast = fast and "lists" in about
        known: dict[Id, Item] = {}
        ids, values = [], []
        for query in queries:
            ranked = (self._quickly(query, k, where, about) if fast else None) or self._nearest(
                query, k, where, many, about
            )
            known |= {item.id: item for _, _, item in ranked} if items else {}
            ids.append([key for _, key, _ in ranked])
            values.append([0.0 - value for value, _, _ in ranked])
        measured = self._recall(about) if fast else (1.0, "")
        return Answer(np.array(ids), np.array(values), known, *measured)

    def count(self, where: Condition | None = None) -> int:
        """How many items there are, or pass a filter; those that pass one on anything but labels are read."""
        if where is not None:
            return len(self.get(where, vectors=False)[0])
        with refusals():
            return int(self._client.query(self._table, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def columns(self) -> Mapping[str, Kind | None]:
        """What each column holds."""
        return dict(self._about()["columns"])

    def version(self) -> str:
        """A name of what is in it now.

        Milvus has no transactions: it is written after the change, and a writer that is killed in between leaves the
        old name until the next change.
        """
        return str(self._about("version").get("version", ""))

    def sample(self, many: int, seed: int = 0) -> Float32[np.ndarray, "n d"]:
        """The vectors of some items: those whose digests follow the seed's."""
        with refusals():
            first = hashlib.sha256(str(seed).encode()).hexdigest()
            found: list[Any] = []
            for condition in (f'key >= "{first}"', f'key < "{first}"'):
                if len(found) < many:
                    found += self._client.query(
                        self._table, filter=condition, output_fields=["vector"], limit=many - len(found)
                    )
        return np.array([row["vector"] for row in found], np.float32).reshape(-1, self._width)[:, : self._dim]

    def prepare_fast(self, *, half: bool = False) -> float:
        """Sort the vectors into lists (IVF_FLAT), of which `fast=True` searches some, and exact search all.

        Returns:
            The recall of the fast way.
        """
        if half:
            raise InputError("Milvus keeps vectors whole here: half precision is for PostgreSQL.")
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
        """What does not fit together; that bytes are as they were written is the business of the server's storage."""
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
        """Milvus has no vectors of one number; these have a zero after it."""
        return max(2, self.header.dim)

    def _read_about(self) -> tuple[Header, bool]:
        with refusals():
            if not self._client.has_collection(f"{self._table}_about"):
                raise DataError(f"There is no index {self.name!r} at {masked(self.url)}.", hint="Make one with build.")
            for table in (self._table, f"{self._table}_about"):
                self._client.load_collection(table)
        about = self._about()
        if about["version"] != 1:
            raise DataError(f"The index {self.name!r} has format version {about['version']}; this vicinal reads 1.")
        return Header(**about["header"]), about["by_partition"]

    def _about(self, key: str = "about") -> dict[str, Any]:
        with refusals():
            found = self._client.get(f"{self._table}_about", ids=[key], output_fields=["body"])
        return dict(found[0]["body"]) if found else {}

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """Give the content another name once it has changed, if only in part."""
        try:
            yield
        finally:
            _write_about(self._client, self._table, {"version": secrets.token_hex(8)}, "version")

    def _check(self, where: Condition | None) -> None:
        if where is not None:
            check_condition(where, self.columns())

    def _rows(self, where: Condition | None, vectors: bool) -> Iterator[tuple[Item, Any]]:
        """All items that may pass a filter: those of its ids, of its labels, or all."""
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
            if len(rows) < AT_ONCE:  # all of them, by one request where the pages below take several
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
        """Minus similarity, id and item of the k nearest: candidates by the server, the order by float64."""
        told = not about.get("extreme") and not incomparable(query[None], self.header.distance)
        wanted = k + SPARE
        while told and wanted <= MOST:
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
        """The same from some lists; None if these do not have k that pass."""
        wanted = min(4 * (k + SPARE), MOST)
        passing, _ = self._proposed(query, wanted, where, math.ceil(about["lists"] / PROBED))
        return self._ranked(query, passing)[:k] if len(passing) >= k else None

    def _proposed(
        self, query: Float32[np.ndarray, " d"], wanted: int, where: Condition | None, probed: int | None
    ) -> tuple[list[tuple[Item, Any]], float]:
        """Those of the nearest by the server's float32 that pass a filter, and what the last of all is worth."""
        asked = np.zeros(self._width, np.float32)
        asked[: self._dim] = query
        with refusals():
            found = self._client.search(
                self._table,
                data=[asked.tolist()],
                limit=wanted,
                filter=self._partitions(where),
                output_fields=["body", "vector"],
                search_params={"params": {} if probed is None else {"nprobe": probed}},
            )[0]
        pairs = [(item_of(hit["entity"]["body"]), hit["entity"]["vector"]) for hit in found]
        passing = [pair for pair in pairs if where is None or matches(where, pair[0].values())]
        return passing, found[-1]["distance"] if found else 0.0

    def _recall(self, about: Mapping[str, Any]) -> tuple[float, str]:
        """The share of the nearest items of some items that some lists have, and when it was measured."""
        kept, many = self._about("recall"), self.count()
        if not kept or abs(many - kept["rows"]) >= CHANGED * kept["rows"]:
            kept = {"share": self._measured(about, many), "when": now(), "rows": many}
            with refusals():
                _write_about(self._client, self._table, kept, "recall")
        return float(kept["share"]), str(kept["when"])

    def _measured(self, about: Mapping[str, Any], many: int) -> float:
        shares = []
        for query in self.sample(TRIED):
            right = {key for _, key, _ in self._nearest(query, min(NEIGHBOURS, many), None, many, about)}
            found = self._quickly(query, len(right), None, about)
            shares.append(1.0 if found is None else len(right & {key for _, key, _ in found}) / len(right))
        return float(np.mean(shares)) if shares else 1.0

    def _ranked(self, query: Float32[np.ndarray, " d"], pairs: list[tuple[Item, Any]]) -> list[tuple[float, Id, Item]]:
        rows = np.array([row for _, row in pairs], dtype=np.float32)[:, : self._dim]
        close = similarities(query[None], rows[None], self.header.distance)[0]
        found = [(-value, item.id, item) for value, (item, _) in zip(close.tolist(), pairs, strict=True)]
        return sorted(found, key=lambda row: row[:2])

    def _clearly_farther(self, query: Float32[np.ndarray, " d"], last: float, kth: float) -> bool:
        """Whether what the server did not propose is farther than the k-th nearest, in spite of float32."""
        error = (self._dim + 8) * 2.0**-20
        if self.header.distance == "cosine":
            return last < kth - error
        # Milvus's L2 is squared, and may be computed from lengths and products, which are as large as the query's.
        size = float(np.square(query, dtype=np.float64).sum())
        return last > kth**2 + error * 4 * (size + kth**2 + abs(last)) + 1e-30


def _write_about(client: Any, table: str, about: dict[str, Any], key: str = "about") -> None:
    row = {"key": key, "part": "about", "body": about, "vector": [0.0, 0.0]}
    client.upsert(f"{table}_about", [row])


def _finds_by_partition(client: Any, table: str, dim: int) -> bool:
    """Whether the server finds replaced rows by their partition column; version 2.3 puts them where keys belong."""
    rows = [{"key": key, "part": key[::-1], "body": {}, "vector": [1.0] * max(2, dim)} for key in PROBES]
    client.upsert(table, rows)
    found = [client.query(table, filter=f'part in ["{row["part"]}"]', output_fields=["key"]) for row in rows]
    client.delete(table, ids=list(PROBES))
    return all(found)


def _table(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        raise InputError(f"The name of an index in Milvus is made of a-z, 0-9 and _; got {name!r}.")
    return f"vicinal_{name}"
