"""A server that is asked without pause while its index changes, moves on to new generations, and its writer is killed.

    PYTHONPATH=.:campaign python campaign/server_soak.py                # ten minutes
    PYTHONPATH=.:campaign python campaign/server_soak.py --seconds 30

A writer adds passing items, removes them and compacts the index, and is killed at random moments. Meanwhile clients
search by vectors, pictures and items, filter, ask why, and look at pictures. Every request must be answered; of the
items that stay, each answer must hold those that the library finds, in its order and with its similarities to the last
digit. The server must not grow in memory, open files or threads, and must end when it is told to.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from common import RAW, SOUND, WRONG, Tally, finish, timed, told_of
from served import MIB, PICTURES, Server, Watch, make_index, picture, serving

from vicinal.index import Index

CLIENTS, K, QUERIES = 4, 10, 40
LONG = 120  # seconds, in which a writer gets to its work on a busy machine, too
FAULTS = 20  # after which there is no point in going on

WRITER = """
import sys, numpy as np
from vicinal.index import Index
sys.stdin.readline()  # the former one has been killed
rng = np.random.default_rng(int(sys.argv[2]))
with Index.open(sys.argv[1]) as index:
    index.remove("label = 'passing'")  # of one that was killed
    print("begun", flush=True)
    for turn in range(10**6):
        ids = [f"passing{turn}-{number}" for number in range(20)]
        rows = rng.standard_normal((20, index.dim))
        index.add(vectors=rows, ids=ids, labels=["passing"] * 20, embedder=index.embedder_hash)
        index.remove(ids=ids[rng.integers(0, 20):])
        if turn % 3 == 2:
            index.compact()
"""


@dataclass
class Asked:
    """A request, and the items that its answer must hold, as pairs of id and similarity; None where any will do."""

    subject: str
    method: str
    address: str
    body: bytes | None = None
    kind: str = ""
    expected: list[tuple[str, float]] | None = None


@dataclass
class Outcome:
    """What clients and the writer's end have seen."""

    tally: Tally
    generations: set[str] = field(default_factory=set)
    kills: int = 0
    milliseconds: list[float] = field(default_factory=list)


def requests_of(folder: Path) -> list[Asked]:
    """The requests of a soak, with what the library answers while nothing passes."""
    rng = np.random.default_rng(9)
    made: list[Asked] = []
    with Index.open(folder) as index:

        def pairs(**words: Any) -> list[tuple[str, float]]:
            return [(str(hit.id), hit.similarity) for hit in index.search(k=K, **words)]

        for _ in range(QUERIES):
            row = rng.normal(size=index.dim).astype(np.float32)
            body = json.dumps({"vector": row.tolist()}).encode()
            made.append(Asked("vectors", "POST", f"/search?k={K}", body, "application/json", pairs(vector=row)))
            where = f"label = 'class {rng.integers(10)}'"
            address = f"/search?k={K}&where={quote(where)}"
            made.append(Asked("filters", "POST", address, body, "application/json", pairs(vector=row, where=where)))
        for number in range(8):
            shown = index.path.parent / "photos" / f"{number}.png"
            body = picture(number)
            made.append(Asked("pictures", "POST", f"/search?k={K}", body, "image/png", pairs(query=shown)))
        for number in range(12):
            key = f"v{number}"
            made.append(Asked("items", "GET", f"/neighbours/{key}?k={K}", expected=pairs(item=key)))
        made += [Asked("why", "GET", "/why?item=v1&hit=v2")] * 2
        for number in range(PICTURES):
            key = quote(str(index.path.parent / "photos" / f"{number}.png"), safe="")
            made.append(Asked("thumbnails", "GET", f"/items/{key}/image?size=96"))
        made += [Asked("about itself", "GET", path) for path in ("/api/info", "/metrics", "/ready", "/health", "/")]
    return made


def wrong(asked: Asked, told: dict[str, Any]) -> str:
    """What an answer lacks; empty if nothing."""
    found = [(hit["id"], hit["similarity"]) for hit in told["hits"]]
    staying = [pair for pair in found if not pair[0].startswith("passing")]
    if not told["exact"] or len(found) != K:
        return f"{len(found)} hits, exact: {told['exact']}"
    assert asked.expected is not None
    return "" if staying == asked.expected[: len(staying)] else f"{staying[:3]} instead of {asked.expected[:3]}"


def ask_until(ends: float, server: Server, requests: list[Asked], seed: int, outcome: Outcome) -> None:
    """One client: asks one request after the other."""
    rng = random.Random(seed)
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    while time.monotonic() < ends and len(outcome.tally.faults) < FAULTS:
        asked = rng.choice(requests)
        began = time.perf_counter()
        try:
            connection.request(asked.method, asked.address, asked.body, {"Content-Type": asked.kind or "text/plain"})
            reply = connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException) as error:
            outcome.tally.note(asked.subject, RAW, told_of(error))
            connection.close()
            continue
        outcome.milliseconds.append(1000 * (time.perf_counter() - began))
        if reply.status != 200:
            outcome.tally.note(asked.subject, RAW, f"{reply.status}: {text[:200]!r}")
        elif asked.expected is None:
            outcome.tally.note(asked.subject, SOUND)
        else:
            told = json.loads(text)
            outcome.generations.add(str(told["generation"]).partition(".")[0])
            lacking = wrong(asked, told)
            outcome.tally.note(asked.subject, WRONG if lacking else SOUND, lacking)
    connection.close()


def write_and_kill(folder: Path, stop: threading.Event, seed: int, outcome: Outcome) -> None:
    """Let a writer write and kill it, again and again; the next one is started beforehand, which takes a while."""
    rng = random.Random(seed)

    def start(number: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(folder), str(seed + number)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    following = start(0)
    while not stop.is_set():
        writer, following = following, start(outcome.kills + 1)
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write("write\n")
        writer.stdin.flush()
        writer.stdout.readline()  # it has begun; from here on a kill hits it at its work
        stop.wait(rng.uniform(0.5, 8))
        ended = writer.poll() is not None
        writer.kill()
        _, complaint = writer.communicate()
        if ended:
            outcome.tally.note("the writer", RAW, f"ended by itself: {complaint[-300:]}")
        outcome.kills += 1
    following.kill()
    following.communicate()


def size_of(folder: Path) -> float:
    """MiB of a folder's files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / MIB


def told(outcome: Outcome, seconds: float, disk: tuple[float, float], watch: Watch) -> str:
    """The soak as tables in Markdown."""
    counts = outcome.tally.total()
    answered = counts[SOUND]
    times = np.array(outcome.milliseconds or [0.0])
    names = ("seconds", "requests", "failures", "generations served", "writers killed", "p50, ms", "p99, ms")
    values = (
        f"{seconds:.0f}",
        f"{counts.total():,}",
        f"{counts.total() - answered:,}",
        f"{len(outcome.generations):,}",
        f"{outcome.kills:,}",
        f"{np.quantile(times, 0.5):.0f}",
        f"{np.quantile(times, 0.99):.0f}",
    )
    head = f"| {' | '.join(names)} |\n|{'---:|' * len(names)}\n| {' | '.join(values)} |"
    return (
        f"{head}\n\n{watch.table()}\n\nThe index's folder: {disk[0]:.1f} MiB at the start, {disk[1]:.1f} at the end.\n"
    )


def every(seconds: float, seed: int, items: int = 5000, tell: Callable[[str], object] = print) -> list[Tally]:
    """Ask a server for some seconds while its index changes and its writer is killed."""
    outcome = Outcome(Tally("a soak of the server"))
    tally = outcome.tally
    with timed(tally), tempfile.TemporaryDirectory() as place:
        folder = make_index(Path(place), items)
        requests = requests_of(folder)
        before = size_of(folder)
        with serving(folder) as server:
            watch, stop, ends = Watch(server), threading.Event(), time.monotonic() + seconds
            clients = [
                threading.Thread(target=ask_until, args=(ends, server, requests, seed + number, outcome))
                for number in range(CLIENTS)
            ]
            writing = threading.Thread(target=write_and_kill, args=(folder, stop, seed, outcome))
            for thread in (*clients, writing):
                thread.start()
            while any(client.is_alive() for client in clients):
                watch.look()
                time.sleep(0.2)
            stop.set()
            writing.join()
            tell(told(outcome, seconds, (before, size_of(folder)), watch))
            tally.check("no growth", seed, watch.check)
            if seconds >= LONG:
                tally.check("moves on", seed, lambda: _moves_on(outcome))
    return [tally]


def _moves_on(outcome: Outcome) -> None:
    assert len(outcome.generations) > 1, f"only generation {outcome.generations} was served"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    finish(every(given.seconds, given.seed, given.items))
