"""An index against what a user would pick instead: time to build and to search, recall, memory and disk.

    python benchmarks/index.py                          # 1,000,000 vectors in clusters
    python benchmarks/index.py --n 100000 --data noise  # uniform noise, the worst case
    python benchmarks/index.py --data embeddings.npz    # trained embeddings
    python benchmarks/index.py --sides vicinal,faiss    # some of them; "pgvector HNSW" names one of several
    python benchmarks/index.py --cpu                    # CPU seconds with one thread each, for a machine that is busy

Vectors have 128 numbers and unit length, around 20,000 centres unless told otherwise; queries are items, moved a
little. Sides that are not installed are left out, with the reason. `benchmarks/index_ways.py` has what each side does.

Each side is built in a process of its own, and opened and searched in a second one, which has never seen the vectors.
Those processes take turns, so that a slow moment of the machine hits all; times are medians. A side that has taken
`--patience` seconds over its searches with so many queries is not asked again with as many; how often it was is in the
table. Recall is against the exact answer of faiss flat, by similarity, so that ties count for nobody.

Memory is what the searching process, and the server where there is one, has grown by from its imports to the end of
its searches: what it holds by itself, and that together with the pages of files that it has mapped, which the system
takes back when it needs them (as Linux counts them in /proc; what a server's processes share counts once). Files that
are read without being mapped count nowhere. A side's disk is its folder, for PostgreSQL its table with its indexes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np
from index_ways import WAYS, K, Points
from numpy.typing import NDArray

DIM, CLUSTERS = 128, 20_000
SPREAD, MOVED = 0.6, 0.2  # lengths of the noise around a centre of length one, and around a query's item
SERVERS = ("pgvector",)  # their CPU time is that of other processes
ADDED = 5


def unit(rows: Points) -> Points:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def clusters(n: int, rng: np.random.Generator, many: int = CLUSTERS) -> tuple[Points, NDArray[np.int64]]:
    """Unit vectors around centres drawn at random, and the centre of each."""
    centres = unit(rng.standard_normal((min(many, n), DIM), dtype=np.float32))
    chosen = rng.integers(0, len(centres), n)
    made = centres[chosen]
    made += SPREAD / DIM**0.5 * rng.standard_normal((n, DIM), dtype=np.float32)
    return unit(made), chosen


def vectors(kind: str, n: int, rng: np.random.Generator) -> Points:
    if kind == "noise":
        return unit(rng.standard_normal((n, DIM), dtype=np.float32))
    if kind == "clusters":
        return clusters(n, rng)[0]
    with np.load(kind, allow_pickle=False) as content:
        return unit(np.asarray(content["embeddings"], dtype=np.float32)[:n])


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


# What happens in a process of a side


class Clock:
    """What times are read from: the clock on the wall, or the CPU time of this process."""

    read: Callable[[], float] = time.perf_counter


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = Clock.read()
    result = call()
    return Clock.read() - start, result


def held(server: int) -> tuple[float, float]:
    """MiB that this process and a server's processes hold by themselves, and with the pages of files."""
    of_files = kilobytes(f"/proc/{os.getpid()}/status").get("RssFile", 0.0)
    own = 0.0
    for process in [os.getpid(), *below(server)]:
        try:
            parts = kilobytes(f"/proc/{process}/smaps_rollup")
        except OSError:  # it has ended
            continue
        own += parts["Pss_Anon"] + parts["Pss_Shmem"]
        of_files += parts["Pss_File"] if process != os.getpid() else 0.0
    return own / 1024, (own + of_files) / 1024


def kilobytes(file: str) -> dict[str, float]:
    """The sizes in a file of /proc."""
    lines = [line.split() for line in Path(file).read_text().splitlines() if line.endswith(" kB")]
    return {words[0].removesuffix(":"): float(words[1]) for words in lines}


def below(process: int) -> Iterator[int]:
    """A process and those that it has started."""
    if not process:
        return
    yield process
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for started in task.read_text().split():
            yield from below(int(started))


def build_side(name: str, folder: Path, rows: Path) -> None:
    for package in WAYS[name].packages:
        importlib.import_module(package)
    print(json.dumps({"seconds": WAYS[name].build(np.load(rows), folder)}))


def search_side(name: str, folder: Path, queries: Path) -> None:
    """Open a side, and answer each line of standard input, "round queries", with the seconds that it took."""
    asked = np.load(queries)
    for package in WAYS[name].packages:
        importlib.import_module(package)
    before = held(0)
    opened = WAYS[name].open(folder)
    opened.search(asked[0, :1])  # reads what it needs

    for line in sys.stdin:
        number, count = map(int, line.split())
        taken, found = seconds(lambda number=number, count=count: opened.search(asked[number, :count]))
        if number == 0:
            np.save(folder.parent / "found.npy", found)
        print(json.dumps({"seconds": taken}), flush=True)
    after = held(opened.server)
    disk = megabytes(folder) if opened.disk is None else opened.disk() / 2**20
    print(json.dumps({"own": after[0] - before[0], "mapped": after[1] - before[1], "disk": disk}), flush=True)


def life_of_an_index(folder: Path, rows: Path) -> None:
    """Times of what happens to an index apart from being searched."""
    from vicinal.index import Index

    place, vectors = folder / "life.index", np.load(rows)
    building, made = seconds(lambda: Index.of_vectors(place, vectors))
    made.close()
    opening, index = seconds(lambda: Index.open(place))
    first, _ = seconds(lambda: index.nearest(vectors[:1], K))
    adding = statistics.median(
        seconds(lambda number=number: index.add(vectors=vectors[:1], ids=[len(vectors) + number]))[0]
        for number in range(ADDED)
    )
    after, _ = seconds(lambda: index.nearest(vectors[:1], K))
    removing, _ = seconds(lambda: index.remove(f"id >= {len(vectors)}"))
    coding, _ = seconds(lambda: index.nearest(vectors[:1], K, fast=True))
    memory = index.measure(K).memory or 0
    told = (
        f"vicinal: built in {building:.1f} s, opened in {opening * 1e3:.0f} ms, first search {first:.2f} s, one item "
        f"added in {adding * 1e3:.1f} ms (search after it {after * 1e3:.0f} ms), removed in {removing * 1e3:.1f} ms; "
        f"codes made in {coding:.1f} s; exact search holds {memory / 2**20:.0f} MiB, {memory / vectors.nbytes:.2f} of "
        "the vectors"
    )
    print(json.dumps({"told": told}))


# What happens in the process that compares


class LeftOut(Exception):
    """Why a side cannot be compared."""


@dataclass
class Side:
    """One way of searching, the process that does it, and what was measured of it."""

    name: str
    place: Path
    process: subprocess.Popen[str]
    build: float
    times: dict[int, list[float]] = field(default_factory=dict)
    recall: float = float("nan")
    own: float = float("nan")
    mapped: float = float("nan")
    disk: float = float("nan")

    def ask(self, number: int, count: int) -> None:
        """Have it search."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number} {count}\n")
        self.process.stdin.flush()
        self.times.setdefault(count, []).append(answer_of(self.process, self.place)["seconds"])

    def finish(self) -> None:
        """Have it say what it takes, and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        took = answer_of(self.process, self.place)
        self.own, self.mapped, self.disk = took["own"], took["mapped"], took["disk"]
        self.process.wait()


def start(place: Path, cpu: bool, *words: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *(["--cpu"] if cpu else []), "--work", *map(str, words)]
    with (place / "said").open("w") as said:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)


def answer_of(process: subprocess.Popen[str], place: Path) -> dict[str, Any]:
    """The next line that a process of a side prints as its answer."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    process.wait()
    said = (place / "said").read_text().strip().splitlines()
    raise LeftOut(said[-1] if said else f"its process ended with {process.returncode}")


def built(name: str, data: Path, place: Path, cpu: bool) -> Side:
    """Build a side, and start the process that searches it."""
    folder = place / "kept"
    folder.mkdir(parents=True)
    building = start(place, cpu, "build", name, folder, data / "rows.npy")
    taken = answer_of(building, place)["seconds"]
    building.wait()
    return Side(name, place, start(place, cpu, "search", name, folder, data / "queries.npy"), taken)


def take_turns(sides: list[Side], counts: list[int], repeats: int, patience: float) -> None:
    for number in range(repeats):
        for count in counts:
            for side in list(sides):
                if sum(side.times.get(count, [])) > patience:
                    continue
                try:
                    side.ask(number, count)
                except LeftOut as why:
                    print(f"{side.name}: left out ({why})")
                    sides.remove(side)


def kth_similarity(rows: Points, queries: Points) -> NDArray[np.float32]:
    import faiss

    flat = faiss.IndexFlatIP(rows.shape[1])
    flat.add(rows)
    return flat.search(queries, K)[0][:, -1]


def recall_of(found: NDArray[Any], rows: Points, queries: Points, kth: NDArray[np.float32]) -> float:
    """The share of the K nearest that were found: ids whose similarity is no less than that of the k-th nearest."""
    similar = np.einsum("nkd,nd->nk", rows[found.astype(np.int64)], queries)
    return float((similar >= kth[:, None] - 1e-5).sum() / (len(queries) * K))


def versions(names: list[str]) -> str:
    """The packages of some sides, with their versions."""
    of_module = packages_distributions()
    modules = {package.split(".")[0] for name in names for package in WAYS[name].packages} - {"vicinal"}
    found = sorted({distribution for module in modules for distribution in of_module.get(module, [])})
    return ", ".join(f"{name} {version(name)}" for name in found)


def table(sides: list[Side], counts: list[int], repeats: int) -> str:
    asked = " | ".join(f"{count} at once, ms" for count in counts)
    lines = [f"| | build, s | {asked} | recall | memory, MiB | with mapped files | disk, MiB |"]
    lines.append("|---" + "|---:" * (len(counts) + 5) + "|")
    for side in sides:
        times = [
            f"{statistics.median(side.times[count]) * 1e3:,.2f}"
            + (f" ({len(side.times[count])} of {repeats})" if len(side.times[count]) < repeats else "")
            for count in counts
        ]
        sizes = [f"{side.recall:.4f}", f"{side.own:,.0f}", f"{side.mapped:,.0f}", f"{side.disk:,.0f}"]
        lines.append(f"| {' | '.join([side.name, f'{side.build:.1f}', *times, *sizes])} |")
    return "\n".join(lines)


def compare(rows: Points, counts: list[int], chosen: list[str], options: argparse.Namespace) -> None:
    rng = np.random.default_rng(1)
    queries = rows[rng.integers(0, len(rows), (options.repeats, max(counts)))]
    queries = unit(queries + MOVED / rows.shape[1] ** 0.5 * rng.standard_normal(queries.shape, dtype=np.float32))
    with tempfile.TemporaryDirectory(prefix="vicinal-index-") as kept:
        data = Path(kept)
        data.chmod(0o755)  # a server may run as another user
        np.save(data / "rows.npy", rows)
        np.save(data / "queries.npy", queries)
        if "vicinal exact" in chosen:
            living = start(data, options.cpu, "life", data, data / "rows.npy")
            print(answer_of(living, data)["told"], flush=True)
            living.wait()
        sides: list[Side] = []
        try:
            for number, name in enumerate(chosen):
                if len(rows) > WAYS[name].most:
                    print(
                        f"{name}: left out (its makers advise it for at most {WAYS[name].most:,} vectors)", flush=True
                    )
                    continue
                try:
                    sides.append(built(name, data, data / str(number), options.cpu))
                except LeftOut as why:
                    print(f"{name}: left out ({why})", flush=True)
            take_turns(sides, counts, options.repeats, options.patience)
            kth = kth_similarity(rows, queries[0])
            for side in sides:
                side.recall = recall_of(np.load(side.place / "found.npy"), rows, queries[0], kth)
                side.finish()
        finally:
            for side in sides:  # by themselves, so that no server is left behind
                if side.process.stdin is not None:
                    side.process.stdin.close()
                side.process.wait()
        print(f"\n{versions([side.name for side in sides])}\n\n{table(sides, counts, options.repeats)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--data", default="clusters", help="clusters, noise, or an .npz file with embeddings")
    parser.add_argument("--queries", default="1,256", help="queries at once, separated by commas")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--patience", type=float, default=30.0, help="seconds of searches with so many queries")
    parser.add_argument("--sides", default=",".join(WAYS), help=f"of {', '.join(WAYS)}; or their first words")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of searches, with one thread on each side")
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cpu:
        use_one_thread()
    if options.work:
        work(*options.work)
        return
    words = [word.strip() for word in options.sides.split(",")]
    if unknown := [word for word in words if not any(word in (name, name.split()[0]) for name in WAYS)]:
        parser.error(f"--sides has {', '.join(unknown)}; there are {', '.join(WAYS)}.")
    chosen = [name for name in WAYS if name in words or name.split()[0] in words]
    rows = vectors(options.data, options.n, np.random.default_rng(0))
    print(
        f"{len(rows):,} vectors of {rows.shape[1]} numbers ({Path(options.data).name}), k = {K}, {os.cpu_count()} cores"
    )
    if options.cpu:
        print("CPU seconds of searches, one thread each; servers, whose seconds are their own, are left out")
        chosen = [name for name in chosen if not name.startswith(SERVERS)]
    compare(rows, [int(count) for count in options.queries.split(",")], chosen, options)


def use_one_thread() -> None:
    """Read CPU seconds from now on; libraries that are imported later have one thread each."""
    Clock.read = time.process_time
    os.environ["OMP_NUM_THREADS"] = "1"


def work(kind: str, *words: str) -> None:
    if kind == "life":
        life_of_an_index(*map(Path, words))
    else:
        name, folder, file = words
        {"build": build_side, "search": search_side}[kind](name, Path(folder), Path(file))


if __name__ == "__main__":
    main()
