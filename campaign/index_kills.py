"""An index that is killed while it is changed, and one whose bits are flipped.

    PYTHONPATH=.:campaign python campaign/index_kills.py                    # 1,000 kills, 10,000 flipped bits
    PYTHONPATH=.:campaign python campaign/index_kills.py --kills 25 --flips 200 --seed 7

A child adds, replaces, removes and compacts, and tells of everything that has returned; it is ended by KILL, TERM or
INT at a random moment. What was acknowledged must be there, bit for bit, and what was under way must be there whole or
not at all. A flipped bit must be reported by `verify`, or change nothing that can be read. What makes an index anew
(build, refresh, reembed, rollback) is in index_phases.py.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import RAW, REFUSED, SOUND, WRONG, Tally, finish, little_memory, peak_memory, timed, told_of

from vicinal.errors import VicinalError
from vicinal.index import Index
from vicinal.index.item import Header, Item
from vicinal.index.stores.embedded import EmbeddedStore
from vicinal.neighbours.rounding import pack_rows, unpack_rows

DIM = 8
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
AT_ONCE = 50  # kills of one index: everything in it is compared after each
FLIPS_AT_ONCE = 500
KINDS = ("float32", "int8")  # what numbers are kept in, one index after the other
MUCH_MEMORY = 256 << 20  # bytes, for an index of sixty items


def vector_of(key):
    """The vector of an item, which its id determines."""
    return np.random.default_rng(key).normal(size=DIM).astype(np.float32)


def write_until_killed(folder, first, pipe):
    """Add, replace, remove and compact, and tell about everything that has returned; the child of a fork."""
    index = Index.open(folder)
    rng = random.Random(first)
    key = first
    while True:
        step = rng.randrange(10)
        if step < 7:
            many = rng.randrange(1, 30)
            keys = list(range(key, key + many))
            index.add(vectors=np.stack([vector_of(k) for k in keys]), ids=keys, labels=["new"] * many)
            os.write(pipe, f"add {key} {key + many}\n".encode())
            key += many
        elif step < 9 and key > first + 5:
            gone = rng.randrange(first, key)
            os.write(pipe, f"try {gone}\n".encode())
            index.remove(ids=[gone])
            os.write(pipe, f"del {gone}\n".encode())
        elif step == 9:
            index.compact()


def end(child, chosen):
    """Send a signal, and a second one that cannot be missed: Python loses a Ctrl-C that comes while it tidies up."""
    os.kill(child, chosen)
    until = time.monotonic() + 5
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)


def kill_once(folder, first, calls, seconds, chosen=signal.SIGKILL):
    """Return the items that must be there, and those that may be, after a kill some time after so many calls."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # some runners of tests ignore it
            write_until_killed(folder, first, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as file:
        told = [file.readline() for _ in range(calls)]
        time.sleep(seconds)
        end(child, chosen)
        told += file.readlines()
    must, may = set(), set()
    for line in told:
        what, *numbers = line.split()
        if what == "add":
            must |= set(range(*map(int, numbers)))
        elif what == "try":
            may.add(int(numbers[0]))
            must.discard(int(numbers[0]))
        elif what == "del":
            may.discard(int(numbers[0]))
    return must, may


def begin(folder, numbers="float32"):
    """Make the index that is to be killed; return the items that it holds."""
    Index.of_vectors(folder, vector_of(0)[None], ids=[0], labels=["new"], numbers=numbers).close()
    return {0}


def as_kept(key, numbers):
    """The vector of an item, as an index gives it back that keeps its numbers so."""
    return unpack_rows(pack_rows(vector_of(key)[None], numbers), numbers, DIM)[0]


def after_kill(folder, known, kill, rng):
    """Kill what changes an index; return the items that it holds then, or find that something is lost or wrong."""
    first = kill * 1_000_000
    must, may = kill_once(folder, first, rng.randrange(1, 12), rng.uniform(0, 0.05), rng.choice(SIGNALS))
    with Index.open(folder) as index:
        assert index.verify() == []
        items, vectors = index.get()
        here = {item.id for item in items}
        assert known | must <= here, f"kill {kill} lost {sorted((known | must) - here)[:5]}"
        fresh = {key for key in here if key >= first}
        # what was not acknowledged is the one call that was under way, whole
        assert len(fresh - must - may) < 30
        for item, vector in zip(items, vectors, strict=True):
            assert np.array_equal(vector, as_kept(item.id, index.numbers))
        probe = random.Random(kill).choice(items).id
        assert index.nearest(vector_of(probe)[None], k=1)[0].tolist() == [[probe]]
    return here


def survive(folder, kills, seed, numbers="float32"):
    """Kill an index again and again; return how many items it holds in the end."""
    known = begin(folder, numbers)
    rng = random.Random(seed)
    for kill in range(1, kills + 1):
        known = after_kill(folder, known, kill, rng)
    return len(known)


def damage(path, rng):
    """Flip one bit; return what undoes it."""
    content = bytearray(path.read_bytes())
    place, bit = rng.randrange(len(content)), rng.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)

    def mend():
        content[place] ^= 1 << bit
        path.write_bytes(content)

    return mend


def flippable(folder, numbers="float32"):
    """Make an index whose bits are to be flipped; return its items and vectors."""
    store = EmbeddedStore.create(folder, Header(DIM, numbers=numbers))
    rows = np.stack([vector_of(key) for key in range(60)])
    store.add([Item(key, path=f"p{key}", label="ab"[key % 2], metadata={"y": key / 2}) for key in range(60)], rows)
    store.close()
    right = EmbeddedStore(folder)
    try:
        return right.get()
    finally:
        right.close()


def flip_reported(folder, rng, right):
    """Flip one bit, and undo it; return whether it is reported: if not, all items are what they were."""
    items, vectors = right
    mend = damage(rng.choice([folder / "items.sqlite", *folder.glob("vectors.*")]), rng)
    try:
        store = EmbeddedStore(folder)
        try:
            if store.verify():
                return True
            again, same = store.get()
            assert again == items
            assert np.array_equal(same, vectors)
            return False
        finally:
            store.close()
    except VicinalError:
        return True  # cannot even be opened, and says so
    finally:
        for extra in folder.glob("items.sqlite-*"):
            extra.unlink()
        mend()


def flip_bits(folder, flips, seed, numbers="float32"):
    """Flip bits; return how many were reported, and how many were harmless."""
    right, rng = flippable(folder, numbers), random.Random(seed)
    reported = sum(flip_reported(folder, rng, right) for _ in range(flips))
    return reported, flips - reported


def killed(kills: int, seed: int) -> Tally:
    """Kill one index after the other; everything in each is compared after each kill."""
    tally = Tally("kills of an index")
    with timed(tally), tempfile.TemporaryDirectory() as place:
        for start in range(seed, seed + kills, AT_ONCE):
            folder, rng = Path(place) / f"{start}.index", random.Random(start)
            known = begin(folder, KINDS[start // AT_ONCE % 2])
            for kill in range(1, 1 + min(AT_ONCE, seed + kills - start)):

                def again(folder=folder, kill=kill, rng=rng):
                    nonlocal known
                    known = after_kill(folder, known, kill, rng)

                if not tally.check("add, replace, remove, compact", f"{start}, kill {kill}", again):
                    break  # what is wrong now would be wrong after every further kill
            print(f"{tally.total()[SOUND]:,} kills sound, {len(tally.faults)} not", file=sys.stderr, flush=True)
    return tally


def flipped(flips: int, seed: int) -> Tally:
    """Flip bits of one index after the other."""
    tally = Tally("flipped bits of an index")
    with timed(tally), little_memory():
        for start in range(seed, seed + flips, FLIPS_AT_ONCE):
            with tempfile.TemporaryDirectory() as place:
                folder, rng = Path(place), random.Random(start)
                right = flippable(folder, KINDS[start // FLIPS_AT_ONCE % 2])
                for flip in range(1, 1 + min(FLIPS_AT_ONCE, seed + flips - start)):
                    before = peak_memory()
                    try:
                        outcome, told = REFUSED if flip_reported(folder, rng, right) else SOUND, ""
                    except Exception as error:
                        outcome, told = WRONG if isinstance(error, AssertionError) else RAW, told_of(error)
                    if peak_memory() - before > MUCH_MEMORY:
                        outcome, told = RAW, f"takes {(peak_memory() - before) >> 20:,} MiB of memory"
                    tally.note("items and vectors", outcome, f"seed {start}, flip {flip}: {told}")
            print(f"{tally.total().total():,} bits flipped, {len(tally.faults)} faults", file=sys.stderr, flush=True)
    return tally


def every(kills: int, flips: int, seed: int) -> list[Tally]:
    """Both."""
    return [killed(kills, seed), flipped(flips, seed)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    finish(every(flags.kills, flags.flips, flags.seed))
