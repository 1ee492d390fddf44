"""Time and peak memory of evaluation against pytorch-metric-learning and faiss, in one run.

    python benchmarks/evaluation.py              # the shape of the Stanford Online Products test set, then growth
    python benchmarks/evaluation.py --quick      # 5,000 items, once
    python benchmarks/evaluation.py --growth "" --repeats 5

Each measurement is a child process of its own, so that its peak memory is its own; the sides take turns, so that a
slow moment of the machine hits all of them. The data are random unit vectors of 512 dimensions; classes have 2 to 12
items, 5.3 on average. Times are of the call alone, peak memory is of the whole process with its imports and data.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DIM, ITEMS, CLASSES = 512, 60_502, 11_316
SMALLEST, LARGEST = 2, 12
SIDES = ("vicinal evaluate", "pytorch-metric-learning", "vicinal neighbours", "faiss flat")
Points, Codes = NDArray[np.float32], NDArray[np.int64]


def items(n: int) -> tuple[Points, Codes]:
    """Random unit vectors, and classes as large as those of Stanford Online Products."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((n, DIM), dtype=np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    classes = round(n * CLASSES / ITEMS)
    sizes = np.full(classes, SMALLEST)
    while sizes.sum() < n:
        open_classes = np.flatnonzero(sizes < LARGEST)
        chosen = rng.choice(open_classes, min(len(open_classes), int(n - sizes.sum())), replace=False)
        sizes[chosen[rng.random(len(chosen)) < 0.5]] += 1
    return points, rng.permutation(np.repeat(np.arange(classes), sizes))


def run_side(side: str, points: Points, codes: Codes) -> tuple[float, dict[str, float], NDArray[np.int64] | None]:
    """Time one call; return also its scores or its neighbours."""
    if side == "vicinal evaluate":
        from vicinal.evaluation import evaluate

        start = time.perf_counter()
        scores = evaluate(points, codes, k=[], also=[])
        return time.perf_counter() - start, dict(scores.overall), None
    if side == "pytorch-metric-learning":
        import torch
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

        names = {"precision_at_1": "P@1", "r_precision": "P@R", "mean_average_precision_at_r": "MAP@R"}
        calculator = AccuracyCalculator(include=tuple(names), k="max_bin_count", device=torch.device("cpu"))
        start = time.perf_counter()
        found = calculator.get_accuracy(torch.from_numpy(points), torch.from_numpy(codes))
        return time.perf_counter() - start, {names[name]: float(value) for name, value in found.items()}, None
    if side == "vicinal neighbours":
        from vicinal.neighbours import find_neighbours

        start = time.perf_counter()
        indices = find_neighbours(points, LARGEST - 1).indices.numpy()
        return time.perf_counter() - start, {}, indices
    import faiss

    start = time.perf_counter()
    index = faiss.IndexFlatIP(DIM)
    index.add(points)
    found_self = index.search(points, LARGEST)[1]
    taken = time.perf_counter() - start
    others = found_self != np.arange(len(points))[:, None]
    others[others.all(axis=1), -1] = False  # an item beaten by its duplicates
    return taken, {}, found_self[others].reshape(len(points), LARGEST - 1)


def child(side: str, n: int, out: Path) -> None:
    run_side(side, *items(1500))  # imports, thread pools and page tables are not what is measured
    points, codes = items(n)
    seconds, scores, indices = run_side(side, points, codes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kilobytes on Linux
    if indices is not None:
        np.save(out, indices)
    print(json.dumps({"seconds": seconds, "peak": peak, "scores": scores}))


def measure(side: str, n: int, out: Path) -> dict[str, object]:
    command = [sys.executable, __file__, "--child", side, "--items", str(n), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} with {n} items failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(n: int, repeats: int) -> None:
    print(f"\n{n:,} items, {round(n * CLASSES / ITEMS):,} classes, {DIM} dimensions, {repeats} runs of each side\n")
    taken: dict[str, list[dict[str, object]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        paths = {side: Path(folder) / f"{number}.npy" for number, side in enumerate(SIDES)}
        for _ in range(repeats):
            for side in SIDES:
                taken[side].append(measure(side, n, paths[side]))
        ours, theirs = (np.load(paths[side]) for side in SIDES[2:])
    seconds = {side: [float(run["seconds"]) for run in runs] for side, runs in taken.items()}  # type: ignore[arg-type]
    peaks = {side: max(float(run["peak"]) for run in runs) for side, runs in taken.items()}  # type: ignore[arg-type]
    print("| side | seconds (median) | fastest | slowest | peak memory, GB |")
    print("|---|---|---|---|---|")
    for side in SIDES:
        times = seconds[side]
        print(f"| {side} | {statistics.median(times):.2f} | {min(times):.2f} | {max(times):.2f} | {peaks[side]:.2f} |")
    print()
    for mine, other in (SIDES[:2], SIDES[2:]):
        middle = statistics.median(seconds[mine]) / statistics.median(seconds[other])
        best = min(seconds[mine]) / min(seconds[other])
        memory = peaks[mine] / peaks[other]
        print(f"- {mine} / {other}: {middle:.3f} of the time (fastest runs: {best:.3f}), {memory:.3f} of the memory")
    same_scores(taken[SIDES[0]][0]["scores"], taken[SIDES[1]][0]["scores"])  # type: ignore[arg-type]
    same_neighbours(n, ours, theirs)


def same_scores(ours: dict[str, float], theirs: dict[str, float]) -> None:
    apart = max(abs(ours[name] - value) for name, value in theirs.items())
    print(f"- {', '.join(theirs)}: largest difference {apart:.1e}")


def same_neighbours(n: int, ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> None:
    """Where faiss differs, ask extended precision who is right."""
    rows = np.flatnonzero((ours != theirs).any(axis=1))
    points = items(n)[0]
    ours_right, theirs_right, widest = 0, 0, 0.0
    for row in rows:
        both = np.union1d(ours[row], theirs[row])
        long = points[np.append(both, row)].astype(np.longdouble)
        long /= np.sqrt((long**2).sum(axis=1, keepdims=True))
        near = long[:-1] @ long[-1]
        truth = both[np.lexsort((both, -near))][: ours.shape[1]]
        ours_right += np.array_equal(ours[row], truth)
        theirs_right += np.array_equal(theirs[row], truth)
        value = dict(zip(both.tolist(), near, strict=True))
        differ = ours[row] != theirs[row]
        gaps = [abs(value[a] - value[b]) for a, b in zip(ours[row][differ], theirs[row][differ], strict=True)]
        widest = max(widest, float(max(gaps)))
    print(
        f"- {ours.shape[1]} neighbours: the same in {n - len(rows):,} of {n:,} rows; of the other {len(rows)}, whose "
        f"similarities differ by {widest:.1e} at most, extended precision says vicinal is right in {ours_right}, "
        f"faiss in {theirs_right}"
    )


def growth(sizes: list[int]) -> None:
    print("\n| items | vicinal evaluate, s | peak, GB | faiss flat, s | peak, GB | time / faiss |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for n in sizes:
            mine, other = (measure(side, n, Path(folder) / "x.npy") for side in (SIDES[0], SIDES[3]))
            cells = [f"{run[key]:.2f}" for run in (mine, other) for key in ("seconds", "peak")]
            ratio = float(mine["seconds"]) / float(other["seconds"])  # type: ignore[arg-type]
            print(f"| {n:,} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


def machine() -> str:
    import torch

    cpu = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        names = [line.split(":")[1].strip() for line in facts.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0] if names else cpu
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    packages = ("torch", "numpy", "faiss-cpu", "pytorch-metric-learning")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    commit = git.stdout.strip() if git.returncode == 0 else "unknown"
    return (
        f"{cpu}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}; {platform.system()}, "
        f"Python {platform.python_version()}, {versions}; commit {commit}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5,000 items, once, no growth")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--growth", default="5000,15000,30000,60000,120000", help="sizes, separated by commas")
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.items, asked.out)
        return
    print(machine())
    compare(5000 if asked.quick else asked.items, 1 if asked.quick else asked.repeats)
    if asked.growth and not asked.quick:
        growth([int(size) for size in asked.growth.split(",")])


if __name__ == "__main__":
    main()
