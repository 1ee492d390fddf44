"""Items and vectors in Milvus: for collections past one machine.

One collection per index, `vicinal_NAME`: a digest of the id, the item as JSON, the vector, and a partition column (a
digest of the label), by which a filter on labels reaches only the partitions concerned. What columns hold is in
`vicinal_NAME_about`.

Nothing of a filter is pasted into Milvus's language: ids and labels go as digests, and everything else is tested on
what the server proposes, by the function that defines filters. Milvus computes in float32, so that it proposes and
float64 decides: the same answers as everywhere else. Consistency is Strong: what was acknowledged is found.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, final

import numpy as np
from jaxtyping import Float32

from vicinal.errors import DataError, InputError, MissingExtra
from vicinal.index.columns import BUILT_IN, Kind, check_condition, matches
from vicinal.index.float64_similarity import similarities
from vicinal.index.item import Header, Id, Item, widened
from vicinal.index.store import Answer
from vicinal.index.where import And, Compare, Condition, In

__all__ = ["MilvusStore"]

AT_ONCE = 1000  # rows of one request
PARTITIONS = 64
SPARE = 16  # candidates beyond k
MOST = 16_384  # candidates that Milvus returns for a query
METRICS = {"cosine": "COSINE", "euclidean": "L2"}


@final
class MilvusStore:
    """Items and vectors in a Milvus server or cluster.

    A request of up to a thousand rows is kept whole or not at all; larger changes are several requests.

    Args:
        url: Such as "milvus://host:19530"; "milvus:///path/to/file.db" is the emulation milvus-lite.
        name: Of the index in that server: letters, digits and underscores.
    """

    def __init__(self, url: str, name: str = "index") -> None:
        self.url, self.name = url, name
        self._table = _table(name)
        self._client = _client(url)
        try:
            self.header = self._read_header()
        except BaseException:
            self._client.close()
            raise

    @classmethod
    def create(cls, url: str, header: Header, name: str = "index") -> MilvusStore:
        """Make an empty store, where there is none of that name."""
        milvus, client, table = _milvus(), _client(url), _table(name)
        kinds = milvus.DataType
        with _refusals():
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
            _write_about(client, table, {"version": 1, "header": asdict(header), "columns": columns})
        client.close()
        return cls(url, name)

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def drop(self) -> None:
        """Remove the whole index from the server."""
        for table in (f"{self._table}_about", self._table):
            self._client.drop_collection(table)

    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Keep items, in place of those of the same id, a thousand at a time."""
        if not len(items):
            return
        before = self.columns()
        after = widened(before, items)
        with _refusals():
            if after != before:
                _write_about(self._client, self._table, {**self._about(), "columns": [[*one] for one in after.items()]})
            for start in range(0, len(items), AT_ONCE):
                part = slice(start, start + AT_ONCE)
                rows = [_row(item, row) for item, row in zip(items[part], vectors[part], strict=True)]
                self._client.upsert(self._table, rows)

    def delete(self, where: Condition) -> int:
        """Remove the items that pass a filter, and say how many there were."""
        keys = [_key(item.id) for item in self.get(where, vectors=False)[0]]
        with _refusals():
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
        """The k nearest of the items that pass a filter; `fast` changes nothing: the index in the server is exact."""
        self._check(where)
        many = self.count(where)
        k = min(k, many)
        if not k or not len(queries):
            return Answer(np.empty((len(queries), k), dtype=object), np.empty((len(queries), k)))
        known: dict[Id, Item] = {}
        ids, values = [], []
        for query in queries:
            ranked = self._nearest(query, k, where, many)
            known |= {item.id: item for _, _, item in ranked} if items else {}
            ids.append([key for _, key, _ in ranked])
            values.append([0.0 - value for value, _, _ in ranked])
        return Answer(np.array(ids), np.array(values), known)

    def count(self, where: Condition | None = None) -> int:
        """How many items there are, or pass a filter; those that pass one on anything but labels are read."""
        if where is not None:
            return len(self.get(where, vectors=False)[0])
        with _refusals():
            return int(self._client.query(self._table, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def columns(self) -> Mapping[str, Kind | None]:
        """What each column holds."""
        return dict(self._about()["columns"])

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

    def _read_header(self) -> Header:
        with _refusals():
            if not self._client.has_collection(f"{self._table}_about"):
                raise DataError(f"There is no index {self.name!r} at {self.url}.", hint="Make one with build.")
            for table in (self._table, f"{self._table}_about"):
                self._client.load_collection(table)
        about = self._about()
        if about["version"] != 1:
            raise DataError(f"The index {self.name!r} has format version {about['version']}; this vicinal reads 1.")
        return Header(**about["header"])

    def _about(self) -> dict[str, Any]:
        with _refusals():
            found = self._client.get(f"{self._table}_about", ids=["about"], output_fields=["body"])
        return dict(found[0]["body"])

    def _check(self, where: Condition | None) -> None:
        if where is not None:
            check_condition(where, self.columns())

    def _rows(self, where: Condition | None, vectors: bool) -> Iterator[tuple[Item, Any]]:
        """All items that may pass a filter: those of its ids, of its labels, or all."""
        fields = ["body", "vector"] if vectors else ["body"]
        with _refusals():
            if (ids := _demanded(where, "id")) is not None:
                keys = [_key(value) for value in ids if not isinstance(value, float)]
                for start in range(0, len(keys), AT_ONCE):
                    rows = self._client.get(self._table, ids=keys[start : start + AT_ONCE], output_fields=fields)
                    yield from ((_item(row["body"]), row.get("vector")) for row in rows)
                return
            pages = self._client.query_iterator(
                self._table, batch_size=AT_ONCE, filter=_in_partitions(where), output_fields=fields
            )
            try:
                while page := pages.next():
                    yield from ((_item(row["body"]), row.get("vector")) for row in page)
            finally:
                pages.close()

    def _nearest(
        self, query: Float32[np.ndarray, " d"], k: int, where: Condition | None, many: int
    ) -> list[tuple[float, Id, Item]]:
        """Minus similarity, id and item of the k nearest: candidates by the server, the order by float64."""
        wanted = k + SPARE
        asked = np.zeros(self._width, np.float32)
        asked[: self._dim] = query
        while wanted <= MOST:
            with _refusals():
                found = self._client.search(
                    self._table,
                    data=[asked.tolist()],
                    limit=wanted,
                    filter=_in_partitions(where),
                    output_fields=["body", "vector"],
                )[0]
            pairs = [(_item(hit["entity"]["body"]), hit["entity"]["vector"]) for hit in found]
            passing = [pair for pair in pairs if where is None or matches(where, pair[0].values())]
            if len(passing) >= k:
                ranked = self._ranked(query, passing)[:k]
                if len(passing) == many or self._clearly_farther(query, found[-1]["distance"], -ranked[-1][0]):
                    return ranked
            wanted *= 4
        passing = [row for row in self._rows(where, vectors=True) if where is None or matches(where, row[0].values())]
        return self._ranked(query, passing)[:k]

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


def _demanded(where: Condition | None, column: str) -> tuple[Any, ...] | None:
    """Values of which a column must have one for a filter to pass; None if the filter does not say."""
    if isinstance(where, In) and where.column == column:
        return where.values
    if isinstance(where, Compare) and where.column == column and where.operator == "=":
        return (where.value,)
    if isinstance(where, And):
        return next((values for part in where.parts if (values := _demanded(part, column)) is not None), None)
    return None


def _in_partitions(where: Condition | None) -> str:
    labels = _demanded(where, "label")
    return "" if labels is None else f"part in {json.dumps(sorted({_part(label) for label in labels}))}"


def _part(label: Any) -> str:
    """A digest: letters and digits, whatever the label is. Equal numbers have one, whole or not."""
    plain = float(label) if isinstance(label, int) and not isinstance(label, bool) else label
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def _key(key: Any) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()


def _row(item: Item, vector: Float32[np.ndarray, " d"]) -> dict[str, Any]:
    own = {name: getattr(item, name) for name in BUILT_IN}
    body = {"own": own, "metadata": dict(item.metadata)}
    numbers = vector.tolist() if len(vector) > 1 else [*vector.tolist(), 0.0]
    return {"key": _key(item.id), "part": _part(item.label), "body": {"item": json.dumps(body)}, "vector": numbers}


def _item(body: Mapping[str, str]) -> Item:
    content = json.loads(body["item"])  # as a text: JSON of Milvus has its own idea of numbers
    return Item(**content["own"], metadata=content["metadata"])


def _write_about(client: Any, table: str, about: dict[str, Any]) -> None:
    row = {"key": "about", "part": "about", "body": about, "vector": [0.0, 0.0]}
    client.upsert(f"{table}_about", [row])


def _table(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        raise InputError(f"The name of an index in Milvus is made of a-z, 0-9 and _; got {name!r}.")
    return f"vicinal_{name}"


def _client(url: str) -> Any:
    milvus = _milvus()
    place = url.removeprefix("milvus://")
    try:
        return milvus.MilvusClient(place if place.startswith("/") else f"http://{place}")
    except Exception as error:  # pymilvus has no common kind for what keeps it from connecting
        raise DataError(f"Milvus at {url} cannot be reached: {str(error).splitlines()[0]}") from None


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except _milvus().MilvusException as error:
        raise DataError(f"Milvus refused: {str(error).strip()}") from error


def _milvus() -> Any:
    try:
        import pymilvus
    except ImportError:
        raise MissingExtra("milvus", "an index in Milvus") from None
    return pymilvus
