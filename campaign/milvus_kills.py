"""A real Milvus server that is killed while a store writes to it: what it acknowledged is there when it is up again.

    PYTHONPATH=.:campaign python campaign/milvus_kills.py --trials 8
    PYTHONPATH=.:campaign python campaign/milvus_kills.py --environment milvus-env    # where PyPI's server is installed

The server is the standalone one that PyPI carries, 2.3.5. All its processes get KILL at a random moment, and so does
the writer; then it is started again in the same folder. Items that were acknowledged must be there with their vectors,
bit for bit, those whose removal was acknowledged must not, and what was under way must be whole or not at all.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from common import Tally, finish, timed
from index_kills import DIM, vector_of

from vicinal.errors import DataError
from vicinal.index.filters import In
from vicinal.index.item import Header, Item
from vicinal.index.stores.milvus import MilvusStore

PACKAGES = ["milvus==2.3.5", "marshmallow<4", "environs<10", "setuptools<81"]
START = """
import sys, time
from milvus import default_server
default_server.set_base_dir(sys.argv[1])
default_server.start()
print("up", default_server.listen_port, flush=True)
time.sleep(1e6)
"""
NAME = "kills"
MANY = 20  # items of a call
SECONDS_TO_ANSWER = 120
spawns = multiprocessing.get_context("spawn")  # forks and gRPC do not go together


class NotThere(Exception):
    """Why there is no server to kill here."""


def opened(url: str) -> MilvusStore:
    """Open the store as soon as the server answers: it calls itself healthy before it does."""
    until = time.monotonic() + SECONDS_TO_ANSWER
    while True:
        try:
            return MilvusStore(url, NAME)
        except DataError:
            if time.monotonic() > until:
                raise
            time.sleep(1)


def write_until_killed(url: str, first: int, pipe: Connection) -> None:
    """Add and remove, and tell before and after each; the work of a process of its own."""
    store, rng, key = opened(url), random.Random(first), first
    for step in count():
        if step % 4 == 3:
            gone = rng.randrange(first, key)
            pipe.send(("removing", [gone]))
            store.delete(In("id", (gone,)))
            pipe.send(("removed", [gone]))
        else:
            keys = list(range(key, key + MANY))
            pipe.send(("adding", keys))
            store.add([Item(each) for each in keys], np.stack([vector_of(each) for each in keys]))
            pipe.send(("added", keys))
            key += MANY


@contextlib.contextmanager
def server(python: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server in a group of processes of its own, which is killed at the end; yield it and its address.

    It takes the next port where the former one is not free yet, which it is not for a minute after a kill.
    """
    command = [str(python), "-c", START, str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said.startswith("up"):
                raise NotThere(f"the server does not start: {said}{process.stdout.read()[-500:]}".strip())
            yield process, f"milvus://127.0.0.1:{said.split()[1]}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def kill_once(python: Path, folder: Path, first: int, rng: random.Random) -> list[tuple[str, list[int]]]:
    """Kill a server, and who writes to it, after some acknowledged calls; return what the writer had told."""
    with server(python, folder) as (process, url):
        reading, writing = spawns.Pipe(duplex=False)
        writer = spawns.Process(target=write_until_killed, args=(url, first, writing), daemon=True)
        writer.start()
        writing.close()
        told = [reading.recv() for _ in range(2 * rng.randrange(2, 9))]
        time.sleep(rng.uniform(0, 0.5))
        os.killpg(process.pid, signal.SIGKILL)
        writer.kill()
        writer.join()
        with contextlib.suppress(EOFError, OSError):
            while True:
                told.append(reading.recv())
    return told


def content(url: str) -> dict[int, np.ndarray]:
    """Read everything."""
    store = opened(url)
    try:
        assert store.verify() == []
        items, vectors = store.get()
        assert len(items) == store.count()
        return {int(item.id): vector for item, vector in zip(items, vectors, strict=True)}
    finally:
        store.close()


def after_kill(python: Path, folder: Path, known: set[int], trial: int) -> set[int]:
    """Kill the server; return the items that are there when it is up again, or find that something is lost or wrong."""
    told = kill_once(python, folder, (1 + trial) * 1_000_000, random.Random(trial))
    must, open_call = set(known), set[int]()
    for what, keys in told:
        open_call = set(keys) if what in ("adding", "removing") else set()
        if what == "added":
            must |= set(keys)
        elif what == "removed":
            must -= set(keys)
    with server(python, folder) as (_, url):
        vectors = content(url)
    here = set(vectors)
    assert must - open_call <= here, f"lost {sorted(must - open_call - here)[:5]} of {len(must):,}"
    assert not here - must - open_call, f"{sorted(here - must - open_call)[:5]} should not be there"
    assert here & open_call in (set(), open_call), f"{len(here & open_call)} of {len(open_call)} items of a call"
    for key, vector in vectors.items():
        assert np.array_equal(vector, vector_of(key)), f"another vector of {key}"
    acknowledged = sum(len(keys) for what, keys in told if what in ("added", "removed"))
    print(f"kill {trial}: {acknowledged} changes acknowledged, {len(here):,} items", file=sys.stderr, flush=True)
    return here


def python_with_server(given: Path | None, folder: Path) -> Path:
    """Return the Python of the given environment, or of a new one that the server is installed into."""
    if importlib.util.find_spec("pymilvus") is None:
        raise NotThere("pymilvus is not installed")
    if given is not None:
        return given / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [folder / "bin" / "python", "-m", "pip", "install", "-q", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotThere(f"the server cannot be installed: {done.stderr.strip()[-500:]}")
    return folder / "bin" / "python"


def every(trials: int, seed: int, environment: Path | None = None) -> list[Tally]:
    """Kill the server of one store again and again; say so where there is none."""
    tally = Tally("kills of a Milvus server")
    with timed(tally), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place) / "data"
        try:
            python = python_with_server(environment, Path(place) / "env")
            with server(python, folder) as (_, url):
                MilvusStore.create(url, Header(DIM), NAME).close()
        except NotThere as error:
            print(f"kills of a Milvus server are left out: {error}", file=sys.stderr)
            return [tally]
        known: set[int] = set()

        def again(trial: int) -> None:
            nonlocal known
            known = after_kill(python, folder, known, trial)

        for trial in range(seed, seed + trials):
            if not tally.check("add, remove", trial, lambda trial=trial: again(trial)):  # type: ignore[misc]
                break  # what is wrong now would be wrong after every further kill
    return [tally]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environment", type=Path, help="of Python, with the server; made anew by default")
    flags = parser.parse_args()
    finish(every(flags.trials, flags.seed, flags.environment))
