"""What the trials of the server share: an index of pictures and vectors, a server of it, and how that one is.

The server is the command `vicinal serve`, a process of its own, asked through sockets of this machine.
"""

from __future__ import annotations

import contextlib
import io
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil
import torch
from PIL import Image

from vicinal.embedder import Embedder
from vicinal.index import Index

PICTURES = 24
MIB = 2**20


def picture(number: int, kind: str = "PNG", side: int = 48) -> bytes:
    """A picture that looks like no other: a few soft spots of colour."""
    rng = np.random.default_rng([number, 5])
    coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    made = io.BytesIO()
    coarse.resize((side, side), Image.Resampling.BICUBIC).save(made, kind)
    return made.getvalue()


def make_index(place: Path, items: int, dim: int = 16) -> Path:
    """An index of some pictures, made by a small network, and of random vectors beside them; return its folder."""
    torch.manual_seed(0)
    embedder = Embedder("convnet", dim=dim, options={"widths": [8, 16], "size": 32})
    photos = place / "photos"
    photos.mkdir()
    for number in range(PICTURES):
        (photos / f"{number}.png").write_bytes(picture(number))
    rows = np.random.default_rng(3).normal(size=(items, dim)).astype(np.float32)
    with Index.build(place / "served.index", embedder, photos) as index:
        labels = [f"class {number % 10}" for number in range(items)]
        index.add(vectors=rows, ids=[f"v{number}" for number in range(items)], labels=labels, embedder=embedder)
    return place / "served.index"


@dataclass
class Server:
    """A server that runs: its process, and where it listens."""

    process: subprocess.Popen[str]
    host: str
    port: int


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Server]:
    """Serve an index; at the end the server is asked to stop, and must do so without complaint."""
    command = [sys.executable, "-m", "vicinal", "serve", str(folder), "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            address = urlsplit(process.stdout.readline().strip())
            assert address.port, "the server did not start"
            yield Server(process, address.hostname or "", address.port)
            assert process.poll() is None, f"the server ended by itself, with {process.returncode}"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) in (0, -signal.SIGTERM), f"the server ended with {process.returncode}"
        finally:
            if process.poll() is None:
                process.kill()


@dataclass
class Vitals:
    """What a process holds at one moment.

    Attributes:
        memory: Of its own, in MiB: without the files that it has mapped, of which the system keeps as much as it likes.
        files: Open files and sockets.
        mapped: Files that are mapped into its memory and have since been removed: former generations.
        threads: That run.
    """

    memory: float
    files: float
    mapped: float
    threads: float

    @classmethod
    def of(cls, process: subprocess.Popen[str]) -> Vitals:
        """Those of a process now."""
        status = Path(f"/proc/{process.pid}/status").read_text()
        own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
        maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        about = psutil.Process(process.pid)
        removed = {line.split(maxsplit=5)[-1] for line in maps if line.endswith("(deleted)")}
        return cls(own / 1024, about.num_fds(), len(removed), about.num_threads())


class Watch:
    """Looks at a server now and then, and says whether it grows."""

    def __init__(self, server: Server, every: float = 1.0) -> None:
        self.server, self.every = server, every
        self.seen: list[Vitals] = []
        self._next = 0.0

    def look(self) -> None:
        """Note how the server is, unless that was done a moment ago."""
        if time.monotonic() >= self._next:
            self.seen.append(Vitals.of(self.server.process))
            self._next = time.monotonic() + self.every

    def part(self, begin: float, end: float) -> Vitals:
        """The medians of a part of the time."""
        chosen = self.seen[int(begin * len(self.seen)) : max(1, int(end * len(self.seen)))]
        return Vitals(*(statistics.median(column) for column in zip(*map(astuple, chosen), strict=True)))

    def table(self) -> str:
        """First, second quarter, last quarter, last and most, as a table in Markdown."""
        most = Vitals(*(max(column) for column in zip(*map(astuple, self.seen), strict=True)))
        rows = {
            "at the start": self.seen[0],
            "second quarter (median)": self.part(0.25, 0.5),
            "last quarter (median)": self.part(0.75, 1),
            "at the end": self.seen[-1],
            "most": most,
        }
        names = {"memory": "memory, MiB", "files": "open files", "mapped": "removed files mapped", "threads": "threads"}
        head = f"| the server | {' | '.join(names[field.name] for field in fields(Vitals))} |"
        lines = [f"| {name} | {' | '.join(f'{value:,.0f}' for value in astuple(row))} |" for name, row in rows.items()]
        return "\n".join([head, "|---|" + "---:|" * len(fields(Vitals)), *lines])

    def check(self) -> None:
        """Find that the server does not grow: its last quarter is like its second."""
        early, late = self.part(0.25, 0.5), self.part(0.75, 1)
        assert late.memory <= 1.1 * early.memory + 16, f"memory grew from {early.memory:.0f} to {late.memory:.0f} MiB"
        assert late.files <= early.files + 16, f"open files grew from {early.files:.0f} to {late.files:.0f}"
        assert late.mapped <= early.mapped + 4, f"files let go grew from {early.mapped:.0f} to {late.mapped:.0f}"
        assert late.threads <= early.threads + 8, f"threads grew from {early.threads:.0f} to {late.threads:.0f}"
