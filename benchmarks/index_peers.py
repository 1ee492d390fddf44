"""What a kill costs the libraries that a user would pick instead of an index: rows acknowledged, rows left.

    python benchmarks/index_peers.py                    # usearch, hnswlib, lancedb and qdrant, where they are installed

A child adds batches of rows and saves as the library's manual says, and tells of each that has returned; it is killed
after a random time. Then the file or folder is opened again, and the rows in it are counted. This file needs no
vicinal, so that the peers can live in an environment of their own.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DIM, BATCH = 32, 200


def rows_of(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).standard_normal((BATCH, DIM)).astype(np.float32)


def add_usearch(folder: Path, told: Callable[[], None]) -> None:
    from usearch.index import Index

    index = Index(ndim=DIM, metric="ip")
    for number in range(10_000):
        index.add(np.arange(number * BATCH, (number + 1) * BATCH), rows_of(number))
        index.save(str(folder / "usearch.bin"))
        told()


def count_usearch(folder: Path) -> int:
    from usearch.index import Index

    return len(Index.restore(str(folder / "usearch.bin")))


def add_hnswlib(folder: Path, told: Callable[[], None]) -> None:
    import hnswlib

    index = hnswlib.Index("ip", DIM)
    index.init_index(1_000_000, M=16, ef_construction=50)
    for number in range(5_000):
        index.add_items(rows_of(number))
        index.save_index(str(folder / "hnswlib.bin"))
        told()


def count_hnswlib(folder: Path) -> int:
    import hnswlib

    index = hnswlib.Index("ip", DIM)
    index.load_index(str(folder / "hnswlib.bin"))
    return int(index.get_current_count())


def add_lancedb(folder: Path, told: Callable[[], None]) -> None:
    import lancedb

    table = None
    for number in range(10_000):
        rows = [{"id": number * BATCH + place, "vector": row} for place, row in enumerate(rows_of(number))]
        if table is None:
            table = lancedb.connect(folder / "lance").create_table("items", rows)
        else:
            table.add(rows)
        told()


def count_lancedb(folder: Path) -> int:
    import lancedb

    return int(lancedb.connect(folder / "lance").open_table("items").count_rows())


def add_qdrant(folder: Path, told: Callable[[], None]) -> None:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder / "qdrant"))
    client.create_collection("items", models.VectorParams(size=DIM, distance=models.Distance.COSINE))
    for number in range(10_000):
        points = [
            models.PointStruct(id=number * BATCH + place, vector=row.tolist())
            for place, row in enumerate(rows_of(number))
        ]
        client.upsert("items", points)
        told()


def count_qdrant(folder: Path) -> int:
    from qdrant_client import QdrantClient

    return int(QdrantClient(path=str(folder / "qdrant")).count("items").count)


PEERS = {
    "usearch": (add_usearch, count_usearch),
    "hnswlib": (add_hnswlib, count_hnswlib),
    "lancedb": (add_lancedb, count_lancedb),
    "qdrant (local)": (add_qdrant, count_qdrant),
}


def child(name: str, folder: str) -> None:
    def told() -> None:
        os.write(1, b".")

    PEERS[name][0](Path(folder), told)


def killed(name: str, seed: int) -> tuple[int, str]:
    """Rows that were acknowledged, and what was there after the kill: a number, or why it cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", name, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            heard = process.stdout.read(1)
            if not heard:
                return 0, "did not start"
            time.sleep(random.Random(seed).uniform(0.2, 1.5))
            process.send_signal(signal.SIGKILL)
            heard += process.stdout.read()
        try:
            return len(heard) * BATCH, str(PEERS[name][1](Path(folder)))
        except Exception as error:  # whatever a damaged file brings about is the answer
            return len(heard) * BATCH, f"unreadable: {str(error).splitlines()[0][:80]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    print("| peer | kills | acknowledged rows lost | unreadable |\n|---|---:|---:|---:|")
    for name in PEERS:
        lost = unreadable = tried = 0
        for seed in range(options.kills):
            acknowledged, left = killed(name, seed)
            if left == "did not start":
                continue
            tried += 1
            if left.isdigit():
                lost += max(0, acknowledged - int(left))
            else:
                unreadable += 1
        print(f"| {name} | {tried} | {lost:,} | {unreadable} |", flush=True)


if __name__ == "__main__":
    main()
