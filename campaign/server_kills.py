"""A server that is killed while items are added through it: what it acknowledged is there, the index is unharmed.

PYTHONPATH=.:campaign python campaign/server_kills.py --trials 20
"""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from common import Tally, finish, options, timed
from index_kills import SIGNALS, vector_of

from vicinal.index import Index
from vicinal.index.server import ServerSettings, serve_index

forks = multiprocessing.get_context("fork")
TOKEN = "campaign"
MANY = 5  # items of a request


def start(folder: Path) -> tuple[Any, str]:
    """Serve an index in a process of its own; return it and its address."""
    reading, writing = os.pipe()

    def child() -> None:
        os.close(reading)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        settings = ServerSettings(port=0, token=TOKEN, writable=True)
        # What Ctrl-C ends the server with is told by the command line.
        with contextlib.suppress(KeyboardInterrupt), Index.open(folder) as index:
            serve_index(index, settings, started=lambda address: os.write(writing, f"{address}\n".encode()))

    process = forks.Process(target=child)
    process.start()
    os.close(writing)
    with os.fdopen(reading) as file:
        address = file.readline().strip()
    assert address, "the server did not start"
    return process, address


def add_until_killed(address: str, first: int, stop: float) -> tuple[list[int], list[int]]:
    """Add items until the server is gone; return those that it acknowledged, and those under way then."""
    parts = urlsplit(address)
    done: list[int] = []
    while time.monotonic() < stop:
        keys = list(range(first + len(done), first + len(done) + MANY))
        body = json.dumps({"ids": keys, "vectors": [vector_of(key).tolist() for key in keys]})
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        try:
            connection.request(
                "POST", "/items", body, {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
            )
            reply = connection.getresponse()
            told = reply.read()
        except (OSError, http.client.HTTPException):
            return done, keys
        finally:
            connection.close()
        assert reply.status == 200, f"{reply.status}: {told[:200]!r}"
        done += keys
    return done, []


def one_kill(folder: Path, known: set[int], trial: int) -> set[int]:
    """Kill a server while it writes; return the items that are there then, or find that one is lost or wrong."""
    rng = np.random.default_rng([trial, 16])
    process, address = start(folder)
    chosen = SIGNALS[int(rng.integers(3))]
    killer = forks.Process(target=_kill_later, args=(process.pid, chosen, float(rng.uniform(0, 0.5))))
    killer.start()
    done, under_way = add_until_killed(address, 1000 * (1 + trial), time.monotonic() + 60)
    killer.join()
    process.join(60)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("the server does not end")
    with Index.open(folder) as index:
        assert index.verify() == []
        items, vectors = index.get()
        here = {int(item.id) for item in items}
        assert known | set(done) <= here, f"lost {sorted((known | set(done)) - here)[:5]}"
        fresh = here - known - set(done)
        assert fresh in (set(), set(under_way)), "a request was carried out by half"
        for item, vector in zip(items, vectors, strict=True):
            assert np.array_equal(vector, vector_of(item.id))
    return here


def _kill_later(number: int, chosen: signal.Signals, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(number, chosen)


def every(trials: int, seed: int) -> list[Tally]:
    """Kill the server of one index again and again."""
    tally = Tally("kills of a server")
    with timed(tally), tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "x.index"
        Index.of_vectors(folder, vector_of(0)[None], ids=[0]).close()
        known = {0}

        def again(trial: int) -> None:
            nonlocal known
            known = one_kill(folder, known, trial)

        for trial in range(seed, seed + trials):
            if not tally.check("adding items", trial, lambda trial=trial: again(trial)):  # type: ignore[misc]
                break  # what is wrong now would be wrong after every further kill
    return [tally]


if __name__ == "__main__":
    flags = options(__doc__ or "", usual=20)
    finish(every(flags.trials, flags.seed))
