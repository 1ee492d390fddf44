"""An index against what a user would pick instead: time to build, open, add and search, recall, memory and disk.

    python benchmarks/index.py                          # 1,000,000 vectors in clusters
    python benchmarks/index.py --n 100000 --data noise  # uniform noise, the worst case
    python benchmarks/index.py --data embeddings.npz    # trained embeddings
    python benchmarks/index.py --cpu                    # CPU seconds with one thread each, for a machine that is busy

Vectors have 128 numbers and unit length, around 20,000 centres unless told otherwise; queries are items, moved a
little. Sides that are not installed are left out. Searches take turns, so that a slow moment of the machine hits all;
times are medians. Recall is against the exact answer of faiss flat, by similarity, so that ties count for nobody.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from vicinal.index import Index

DIM, CLUSTERS, K = 128, 20_000, 10
SPREAD, MOVED = 0.6, 0.2  # lengths of the noise around a centre of length one, and around a query's item

Points = NDArray[np.float32]
Search = Callable[[Points], NDArray[Any]]


@dataclass
class Side:
    """One way of searching, and what was measured of it."""

    name: str
    search: Search
    build: float = float("nan")
    disk: float = 0.0
    times: dict[int, list[float]] = field(default_factory=dict)
    recall: float = float("nan")


def unit(rows: Points) -> Points:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def vectors(kind: str, n: int, rng: np.random.Generator) -> Points:
    if kind == "noise":
        return unit(rng.standard_normal((n, DIM), dtype=np.float32))
    if kind == "clusters":
        centres = unit(rng.standard_normal((min(CLUSTERS, n), DIM), dtype=np.float32))
        made = centres[rng.integers(0, len(centres), n)]
        made += SPREAD / DIM**0.5 * rng.standard_normal((n, DIM), dtype=np.float32)
        return unit(made)
    with np.load(kind, allow_pickle=False) as content:
        return unit(np.asarray(content["embeddings"], dtype=np.float32)[:n])


class Clock:
    """What times are read from: the clock on the wall, or the CPU time of this process."""

    read: Callable[[], float] = time.perf_counter


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = Clock.read()
    result = call()
    return Clock.read() - start, result


def megabytes(folder: Path) -> float:
    paths = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in paths) / 2**20


def of_vicinal(rows: Points, folder: Path) -> list[Side]:
    place = folder / "vicinal.index"
    building, made = seconds(lambda: Index.of_vectors(place, rows))
    made.close()
    opening, index = seconds(lambda: Index.open(place))
    first, _ = seconds(lambda: index.nearest(rows[:1], K))
    adding = statistics.median(
        seconds(lambda number=number: index.add(vectors=rows[:1], ids=[len(rows) + number]))[0] for number in range(5)
    )
    after, _ = seconds(lambda: index.nearest(rows[:1], K))
    removing, _ = seconds(lambda: index.remove(f"id >= {len(rows)}"))
    index.compact()
    index.nearest(rows[:1], K)
    coding, _ = seconds(lambda: index.nearest(rows[:1], K, fast=True))
    memory = index.measure(K).memory
    print(
        f"vicinal: built in {building:.1f} s, opened in {opening * 1e3:.0f} ms, first search {first:.2f} s, one item "
        f"added in {adding * 1e3:.1f} ms (search after it {after * 1e3:.0f} ms), removed in {removing * 1e3:.1f} ms; "
        f"codes made in {coding:.1f} s; exact search holds {memory / 2**20:.0f} MiB, {memory / rows.nbytes:.2f} of the "
        "vectors"
    )
    disk = megabytes(place)
    return [
        Side("vicinal exact", lambda queries: index.nearest(queries, K)[0], building, disk),
        Side("vicinal fast", lambda queries: index.nearest(queries, K, fast=True)[0], building + coding, disk),
    ]


def of_faiss(rows: Points, folder: Path) -> list[Side]:
    sides = []
    kinds = {
        "faiss flat": lambda: faiss.IndexFlatIP(rows.shape[1]),
        "faiss 8 bit": lambda: faiss.IndexScalarQuantizer(
            rows.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        ),
    }
    for name, make in kinds.items():
        index = make()
        building, _ = seconds(lambda index=index: (index.train(rows), index.add(rows)))
        sides.append(Side(name, lambda queries, index=index: index.search(queries, K)[1], building))
    codes = faiss.IndexRaBitQFastScan(rows.shape[1], faiss.METRIC_L2)
    building, _ = seconds(lambda: (codes.train(rows[: 1 << 16]), codes.add(rows)))
    refined = faiss.IndexRefineFlat(codes, faiss.swig_ptr(rows))
    refined.k_factor = 10
    sides.append(Side("faiss RaBitQ + 100", lambda queries: refined.search(queries, K)[1], building))
    return sides


def of_hnswlib(rows: Points, folder: Path) -> list[Side]:
    import hnswlib

    index = hnswlib.Index("ip", rows.shape[1])
    index.init_index(len(rows), M=16, ef_construction=200)
    building, _ = seconds(lambda: index.add_items(rows))
    index.set_ef(100)
    index.save_index(str(folder / "hnswlib.bin"))
    disk = megabytes(folder / "hnswlib.bin")
    return [Side("hnswlib ef 100", lambda queries: index.knn_query(queries, K)[0].astype(np.int64), building, disk)]


def of_usearch(rows: Points, folder: Path) -> list[Side]:
    from usearch.index import Index as Usearch

    index = Usearch(ndim=rows.shape[1], metric="ip")
    building, _ = seconds(lambda: index.add(np.arange(len(rows)), rows))
    index.save(str(folder / "usearch.bin"))

    def search(queries: Points) -> NDArray[Any]:
        return np.asarray(index.search(queries, K).keys).reshape(len(queries), -1).astype(np.int64)

    return [Side("usearch", search, building, megabytes(folder / "usearch.bin"))]


def of_lancedb(rows: Points, folder: Path) -> list[Side]:
    import lancedb
    import pyarrow

    flat = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), rows.shape[1])
    table = pyarrow.table({"id": np.arange(len(rows)), "vector": flat})
    building, made = seconds(lambda: lancedb.connect(folder / "lance").create_table("items", table))

    def search(queries: Points) -> NDArray[Any]:
        found = [made.search(query).metric("cosine").limit(K).to_arrow()["id"].to_numpy() for query in queries]
        return np.stack(found)

    return [Side("lancedb, no index", search, building, megabytes(folder / "lance"))]


MAKERS = {"vicinal": of_vicinal, "faiss": of_faiss, "hnswlib": of_hnswlib, "usearch": of_usearch, "lancedb": of_lancedb}


def recall_of(found: NDArray[Any], rows: Points, queries: Points, kth: NDArray[np.float32]) -> float:
    """The share of the ids found whose similarity is no less than that of the k-th nearest."""
    similar = np.einsum("nkd,nd->nk", rows[found.astype(np.int64)], queries)
    return float((similar >= kth[:, None] - 1e-5).mean())


def compare(kind: str, n: int, counts: list[int], repeats: int, chosen: list[str]) -> None:
    rng = np.random.default_rng(0)
    rows = vectors(kind, n, rng)
    many = max(counts)
    queries = rows[rng.integers(0, len(rows), (repeats, many))]
    queries += MOVED / rows.shape[1] ** 0.5 * rng.standard_normal(queries.shape, dtype=np.float32)
    queries = queries / np.linalg.norm(queries, axis=2, keepdims=True)
    print(f"\n{len(rows):,} vectors of {rows.shape[1]} numbers ({kind}), k = {K}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        sides: list[Side] = []
        for name in chosen:
            try:
                sides += MAKERS[name](rows, Path(folder))
            except ImportError as error:
                print(f"{name}: left out ({error})")
        flat = faiss.IndexFlatIP(rows.shape[1])
        flat.add(rows)
        kth = flat.search(queries[0], K)[0][:, -1]
        for side in sides:
            side.recall = recall_of(side.search(queries[0]), rows, queries[0], kth)
        for number in range(repeats):
            for count in counts:
                for side in sides:
                    side.times.setdefault(count, []).append(
                        seconds(lambda side=side, count=count, number=number: side.search(queries[number, :count]))[0]
                    )
        asked = "".join(f"{f'{count} at once, ms':>18}" for count in counts)
        print(f"\n{'':22}{'build, s':>10}{'disk, MiB':>11}{'recall':>9}{asked}")
        for side in sides:
            times = "".join(f"{statistics.median(side.times[count]) * 1e3:18.2f}" for count in counts)
            print(f"{side.name:22}{side.build:10.1f}{side.disk:11.0f}{side.recall:9.4f}{times}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--data", default="clusters", help="clusters, noise, or an .npz file with embeddings")
    parser.add_argument("--queries", default="1,256", help="queries at once, separated by commas")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--sides", default=",".join(MAKERS))
    parser.add_argument("--cpu", action="store_true", help="CPU seconds, with one thread on each side")
    options = parser.parse_args()
    if options.cpu:
        Clock.read = time.process_time
        torch.set_num_threads(1)
        faiss.omp_set_num_threads(1)
        print("CPU seconds, one thread each")
    counts = [int(count) for count in options.queries.split(",")]
    compare(options.data, options.n, counts, options.repeats, options.sides.split(","))


if __name__ == "__main__":
    main()
