"""Evaluating many items against each other, exactly, and what faiss flat would need to find as many neighbours.

    python benchmarks/evaluating_itself.py                          # 1,000,000 vectors in clusters, which are classes
    python benchmarks/evaluating_itself.py --n 100000 --data noise  # the worst case: classes mean nothing

`vicinal.evaluation.evaluate` scores every item by its nearest among all others: MAP@R, P@1 and R@k. It needs as many
neighbours of an item as its class has other items. faiss flat finds as many as the largest class has, for a sample of
the items against all, once before and once after; **its time for all items is that of the sample, multiplied**, since
it would take hours. Each side is a process of its own: times are of the calls alone, peak memory is of the whole
process, with imports and vectors.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from evaluation import machine
from index import CLUSTERS, clusters, vectors
from numpy.typing import NDArray

AT = [1, 2, 4, 8]  # of R@k


def items(kind: str, n: int, classes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vectors and their classes; in noise these are as large as clusters, and no help."""
    points, codes = clusters(n, np.random.default_rng(0), classes)
    return (points if kind == "clusters" else vectors(kind, n, np.random.default_rng(1))), codes


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> dict[str, float]:
    """Seconds of the clock, and of all cores of this process."""
    clock, cpu = now()
    return {"seconds": clock - start[0], "cpu": cpu - start[1]}


def evaluated(points: NDArray[np.float32], codes: NDArray[np.int64]) -> dict[str, Any]:
    from vicinal.evaluation import evaluate

    evaluate(points[:2000], codes[:2000], k=AT, also=[])  # imports and thread pools are not what is measured
    start = now()
    scores = evaluate(points, codes, k=AT, also=[])
    return {**since(start), "scores": dict(scores.overall)}


def found_by_faiss(points: NDArray[np.float32], codes: NDArray[np.int64], sample: int) -> dict[str, Any]:
    import faiss

    k = int(np.bincount(codes).max())  # with the item itself, which faiss finds first
    index = faiss.IndexFlatIP(points.shape[1])
    index.add(points)
    chosen = points[np.random.default_rng(2).permutation(len(points))[:sample]]
    index.search(chosen[:64], k)
    start = now()
    index.search(chosen, k)
    taken = {name: value * len(points) / len(chosen) for name, value in since(start).items()}
    return {**taken, "sampled": len(chosen), "k": k}


def child(side: str, options: argparse.Namespace) -> None:
    points, codes = items(options.data, options.n, options.classes)
    found = evaluated(points, codes) if side == "vicinal" else found_by_faiss(points, codes, options.sample)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kilobytes on Linux
    print(json.dumps({**found, "peak": peak}))


def measure(side: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, *sys.argv, "--child", side], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--data", choices=["clusters", "noise"], default="clusters")
    parser.add_argument("--classes", type=int, default=CLUSTERS)
    parser.add_argument("--sample", type=int, default=8192, help="items that faiss is timed on")
    parser.add_argument("--child", choices=["vicinal", "faiss"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options)
        return
    print(machine(), flush=True)
    before, mine, after = (measure(side) for side in ("faiss", "vicinal", "faiss"))
    scores = ", ".join(f"{name} {value:.4f}" for name, value in mine["scores"].items())
    print(f"\n{options.n:,} vectors ({options.data}), {options.classes:,} classes, against each other: {scores}\n")
    print("| | seconds | CPU seconds | peak memory, GB |\n|---|---:|---:|---:|")
    print(row("vicinal evaluate", mine))
    for when, run in (("before", before), ("after", after)):
        print(row(f"faiss flat, {run['k']} neighbours, from {run['sampled']:,} items, {when}", run))
    for name, what in (("seconds", "time"), ("cpu", "CPU time")):
        theirs = statistics.mean(float(run[name]) for run in (before, after))
        print(f"\nvicinal / faiss: {float(mine[name]) / theirs:.3f} of the {what}")


def row(name: str, run: dict[str, Any]) -> str:
    return f"| {name} | {run['seconds']:.1f} | {run['cpu']:.1f} | {run['peak']:.2f} |"


if __name__ == "__main__":
    main()
