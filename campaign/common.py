"""What all kinds of trials share: a seeded generator, a tally of outcomes, and the table that is printed at the end."""

from __future__ import annotations

import argparse
import collections
import contextlib
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import psutil

from vicinal.errors import VicinalError

SOUND, REFUSED, RAW, WRONG = OUTCOMES = "sound", "refused in words", "RAW", "WRONG"


@dataclass
class Tally:
    """Outcomes by subject; everything in capitals is a fault, and shown with the seed that repeats it."""

    name: str
    counts: dict[str, collections.Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, subject: str, outcome: str, detail: str = "") -> None:
        """Count an outcome."""
        self.counts.setdefault(subject, collections.Counter())[outcome] += 1
        if outcome.isupper():
            self.faults.append(f"{self.name}, {subject}: {outcome}: {detail}")

    def attempt(self, subject: str, seed: int, work: Callable[[], object]) -> object:
        """Do something with input that may be damaged: it works, or is refused in words; all else is a fault."""
        try:
            value = work()
        except VicinalError as error:
            self.note(subject, REFUSED if str(error).strip() else RAW, f"seed {seed}: an error without words")
            return None
        except Exception as error:  # what the campaign looks for
            self.note(subject, RAW, f"seed {seed}: {told_of(error)}")
            return None
        self.note(subject, SOUND)
        return value

    def check(self, subject: str, seed: int | str, work: Callable[[], object]) -> bool:
        """Do something that has to work, and whose assertions have to hold; return whether that is so."""
        try:
            work()
        except (AssertionError, VicinalError) as error:
            self.note(subject, WRONG, f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
        except Exception as error:  # what the campaign looks for
            self.note(subject, RAW, f"seed {seed}: {told_of(error)}")
        else:
            self.note(subject, SOUND)
            return True
        return False

    def total(self) -> collections.Counter[str]:
        """The counts of all subjects."""
        return sum(self.counts.values(), collections.Counter[str]())

    def table(self) -> str:
        """The counts as a table in Markdown."""
        rows = [_row(subject, counts) for subject, counts in self.counts.items()]
        if len(rows) > 1:
            rows.append(_row("**all**", self.total()))
        return "\n".join([*_head(self.name), *rows])


def summary(tallies: Iterable[Tally]) -> str:
    """One row for each kind of trial, as a table in Markdown."""
    kinds = list(tallies)
    total = sum((tally.total() for tally in kinds), collections.Counter[str]())
    rows = [_row(tally.name, tally.total()) for tally in kinds]
    return "\n".join([*_head("kind"), *rows, _row("**all**", total)])


def _head(name: str) -> list[str]:
    return [f"| {name} | trials | {' | '.join(OUTCOMES)} |", "|---|" + "---:|" * (1 + len(OUTCOMES))]


def _row(subject: str, counts: collections.Counter[str]) -> str:
    return f"| {subject} | {counts.total():,} | {' | '.join(f'{counts[outcome]:,}' for outcome in OUTCOMES)} |"


def told_of(error: Exception) -> str:
    """What an exception is, and where it came from."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:200]} ({place.filename.rpartition('/')[2]}:{place.lineno})"


def options(about: str, usual: int, only: Sequence[str] = ()) -> argparse.Namespace:
    """Read the flags that all kinds have, and the subjects to try where not all of them are."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--trials", type=int, default=usual, help="of each subject")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; the others follow")
    if only:
        parser.add_argument("--only", nargs="+", choices=only, default=list(only), help="subjects")
    return parser.parse_args()


def finish(tallies: Iterable[Tally]) -> None:
    """Print the tables, what they come to, and the faults; end with 1 where there are any."""
    kinds = list(tallies)
    for tally in kinds:
        print(f"{tally.table()}\n\n{tally.name}: {tally.seconds:.0f} s\n")
    if len(kinds) > 1:
        print(f"{summary(kinds)}\n")
    faults = [fault for tally in kinds for fault in tally.faults]
    print("\n".join(faults[:50]))
    sys.exit(1 if faults else 0)


class timed:  # noqa: N801 (used as a statement)
    """Adds the seconds of a block to a tally."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.tally.seconds += time.perf_counter() - self.began


@contextlib.contextmanager
def little_memory(more: int = 2 << 30) -> Iterator[None]:
    """Let damage that asks for a huge allocation fail here, before the system ends processes that do no harm."""
    allowed = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (psutil.Process().memory_info().data + more, allowed[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, allowed)


def peak_memory() -> int:
    """The most bytes of memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def spoilt(content: bytes, rng: np.random.Generator) -> bytes:
    """Return a file's content with some damage: bits flipped, bytes changed, doubled or taken out, or cut short."""
    data = bytearray(content)
    kind = int(rng.integers(6))
    if not data or kind == 5:
        return rng.bytes(int(rng.integers(200)))
    place = int(rng.integers(len(data)))
    if kind == 0:
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        for spot in rng.integers(len(data), size=int(rng.integers(1, 8))):
            data[spot] = int(rng.integers(256))
    elif kind == 2:
        del data[place:]
    elif kind == 3:
        del data[place : place + int(rng.integers(1, 64))]
    else:
        data[place:place] = data[place : place + int(rng.integers(1, 64))] * int(rng.integers(1, 4))
    return bytes(data)
