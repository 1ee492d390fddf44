"""Time and peak memory of verification over all pairs, beside retrieval, in one run.

    python benchmarks/verification.py                # 60,502 items of 128 dimensions, three runs of each side in turn
    python benchmarks/verification.py --items 5000 --repeats 1

Each measurement is a child process of its own, so that its peak memory is its own, and the sides take turns. The data
are random unit vectors; classes are as large as those of the Stanford Online Products test set. Seconds are those of
the processors, which a busy machine changes least; the clock is beside them.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
from evaluation import ITEMS, machine
from evaluation import items as items_of_512
from numpy.typing import NDArray

DIM = 128
SIDES = ("evaluate", "verify")


def items(n: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    points, codes = items_of_512(n)
    points = np.ascontiguousarray(points[:, :DIM])
    return points / np.linalg.norm(points, axis=1, keepdims=True), codes


def child(side: str, n: int) -> None:
    from vicinal.evaluation import evaluate, verify

    run = {"evaluate": lambda *data: evaluate(*data), "verify": lambda *data: verify(*data)}[side]
    run(*items(1500))  # imports, thread pools and page tables are not what is measured
    data = items(n)
    cpu, clock = time.process_time(), time.perf_counter()
    found = run(*data)
    taken = {"cpu": time.process_time() - cpu, "clock": time.perf_counter() - clock}
    taken["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kilobytes on Linux
    print(json.dumps(taken | {"scores": dict(found.overall)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.items)
        return
    print(f"{machine()}\n\n{asked.items:,} items, {asked.items * (asked.items - 1) // 2:,} pairs, {DIM} dimensions\n")
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(asked.repeats):
        for side in SIDES:
            command = [sys.executable, __file__, "--child", side, "--items", str(asked.items)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{side} failed:\n{done.stderr}")
            runs[side].append(json.loads(done.stdout.splitlines()[-1]))
    print(
        "| | CPU seconds (median) | fastest | slowest | clock (median) | peak memory, GB |\n|---|---|---|---|---|---|"
    )
    for side in SIDES:
        cpu = [run["cpu"] for run in runs[side]]
        clock = statistics.median(run["clock"] for run in runs[side])
        peak = max(run["peak"] for run in runs[side])
        print(f"| {side} | {statistics.median(cpu):.2f} | {min(cpu):.2f} | {max(cpu):.2f} | {clock:.2f} | {peak:.2f} |")
    ratios = [b["cpu"] / a["cpu"] for a, b in zip(runs["evaluate"], runs["verify"], strict=True)]
    print(f"\nverify / evaluate, CPU, run by run: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    print(f"scores: {runs['verify'][0]['scores']}")


if __name__ == "__main__":
    main()
