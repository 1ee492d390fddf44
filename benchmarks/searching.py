"""Time of `Searcher` against faiss flat and against `find_neighbours(gallery=...)`, in one run.

    python benchmarks/searching.py                                 # 100,000 and 1,000,000 references
    python benchmarks/searching.py --n 100000 --queries 1,256 --repeats 9

References and queries are unit vectors of 128 dimensions around 20,000 centres. The sides take turns, so that a slow
moment of the machine hits all of them; times are medians of calls on different queries. Preparation is timed apart:
`Searcher(...)` and `index.add`. `neighbours` prepares at each call, which is why it is run once or twice only.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from vicinal.neighbours import Searcher, find_neighbours

DIM, CLUSTERS, K = 128, 20_000, 10
SPREAD = 0.6  # length of the noise around a centre of length one

Points = NDArray[np.float32]


def points(rng: np.random.Generator, centres: Points, n: int) -> Points:
    made = centres[rng.integers(0, len(centres), n)]
    made += SPREAD / DIM**0.5 * rng.standard_normal((n, DIM), dtype=np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def seconds(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(n: int, counts: list[int], repeats: int, slow_repeats: int) -> None:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLUSTERS, DIM), dtype=np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    references = points(rng, centres, n)
    preparing, searcher = seconds(lambda: Searcher(references))
    assert isinstance(searcher, Searcher)
    index = faiss.IndexFlatIP(DIM)
    adding, _ = seconds(lambda: index.add(references))
    print(f"\n{n:,} references, {DIM} dimensions, {CLUSTERS:,} clusters, k = {K}; {searcher!r}")
    print(
        f"prepared in {preparing:.2f} s (faiss {adding:.2f} s); holds {searcher.nbytes / 2**20:.0f} MiB "
        f"beside the rows (faiss {references.nbytes / 2**20:.0f} MiB)\n"
    )
    print(
        "| queries | Searcher, ms | faiss flat, ms | Searcher / faiss | neighbours, ms | Searcher / neighbours | same |"
    )
    print("|---|---|---|---|---|---|---|")
    for count in counts:
        taken: dict[str, list[float]] = {"searcher": [], "faiss": [], "neighbours": []}
        same = total = 0
        for repeat in range(-1, repeats):  # the first is not counted
            queries = points(rng, centres, count)
            mine, found = seconds(lambda: searcher.search(queries, K))  # noqa: B023
            theirs, other = seconds(lambda: index.search(queries, K))  # noqa: B023
            same += int((found.indices.numpy() == other[1]).sum())  # type: ignore[attr-defined, index]
            total += count * K
            if repeat < 0:
                continue
            taken["searcher"].append(mine)
            taken["faiss"].append(theirs)
            if repeat < slow_repeats:
                anew, again = seconds(lambda: find_neighbours(queries, K, gallery=references))  # noqa: B023
                taken["neighbours"].append(anew)
                if not torch.equal(again.indices, found.indices):  # type: ignore[attr-defined]
                    raise SystemExit("Searcher and neighbours differ.")
        middle = {side: 1e3 * statistics.median(times) for side, times in taken.items() if times}
        anew_ms = middle.get("neighbours", float("nan"))
        mine, theirs = middle["searcher"], middle["faiss"]
        print(
            f"| {count} | {mine:.1f} | {theirs:.1f} | {mine / theirs:.3f} | {anew_ms:.0f} | {mine / anew_ms:.4f} "
            f"| {same / total:.5f} |",
            flush=True,
        )


def machine() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "faiss-cpu"))
    return (
        f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads (torch), "
        f"{faiss.omp_get_max_threads()} (faiss), {torch.backends.cpu.get_cpu_capability()}; "
        f"Python {platform.python_version()}, {packages}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", default="100000,1000000", help="numbers of references, separated by commas")
    parser.add_argument("--queries", default="1,16,256", help="queries of a call, separated by commas")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--slow-repeats", type=int, default=1, help="of find_neighbours(gallery=...)")
    asked = parser.parse_args()
    print(machine())
    for n in asked.n.split(","):
        compare(int(n), [int(count) for count in asked.queries.split(",")], asked.repeats, asked.slow_repeats)


if __name__ == "__main__":
    main()
