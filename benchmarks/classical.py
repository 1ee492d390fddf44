"""Time, peak memory and cost reached of classical learners against their peers, on scikit-learn's digits, in one run.

    python benchmarks/classical.py             # LMNN against metric-learn 0.7.0, NCA against scikit-learn
    python benchmarks/classical.py --rounds 1

Each measurement is a child process of its own, so that its peak memory is its own. Both sides start at the same map
and take the same number of iterations; the cost that each has reached then is computed by vicinal.objectives. An
iteration of one is not one of the other, so the last column is the time to equal cost: how long the side that has come
farther takes to come as far as the other, with 1, 2, 4, ... iterations.
Pixels go from 0 to 16. Divided by 160, all classes are within LMNN's margin of 1 at the start and every point is an
impostor, as on data that was not scaled with care; divided by 16, few are. metric-learn 0.7.0 does not run with
scikit-learn 1.8 or later, which renamed an argument: it is renamed here, and nothing else is changed. Install it
without its dependencies: pip install --no-deps metric-learn==0.7.0
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

# (learner, points, pixels divided by, iterations)
CASES = [
    ("lmnn", 800, 160, 3),
    ("lmnn", 1797, 160, 3),
    ("lmnn", 800, 16, 3),
    ("lmnn", 1797, 16, 3),
    ("lmnn", 1797, 16, 50),
    ("nca", 800, 16, 20),
    ("nca", 1797, 16, 20),
]
PEERS = {"lmnn": "metric-learn", "nca": "scikit-learn"}


def ours(name: str, iterations: int) -> Any:
    from vicinal import classical

    if name == "lmnn":
        return classical.LMNN(3, init="identity", max_iter=iterations, tol=1e-12)
    return classical.NCA(init="identity", max_iter=iterations, tol=1e-12)


def peer(name: str, iterations: int) -> Any:
    if name == "nca":
        from sklearn.neighbors import NeighborhoodComponentsAnalysis

        return NeighborhoodComponentsAnalysis(init="identity", max_iter=iterations, tol=1e-12)
    return patched_metric_learn().LMNN(n_neighbors=3, init="identity", max_iter=iterations)


@functools.cache
def patched_metric_learn() -> Any:
    import metric_learn
    from metric_learn import _util

    for check in ("check_X_y", "check_array"):
        setattr(_util, check, renamed(getattr(_util, check)))
    return metric_learn


def renamed(check: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, force_all_finite: Any = True, **options: Any) -> Any:
        return check(*arguments, ensure_all_finite=force_all_finite, **options)

    return run


def reached(name: str, points: np.ndarray, labels: np.ndarray, components: np.ndarray) -> float:
    """Return the cost of a map."""
    from vicinal.classical.relations import from_labels, nearest_positives
    from vicinal.classical.solvers import over_masks
    from vicinal.objectives import lmnn, nca

    known, tensor = from_labels(labels), torch.from_numpy(points)
    positive = nearest_positives(tensor, known, 3) if name == "lmnn" else known.positive
    cost = over_masks({"lmnn": lmnn, "nca": nca}[name], positive, known.negative, by_anchor=True)
    moved = tensor @ torch.from_numpy(np.array(components)).T
    return cost(moved, moved)[0]


def measure(side: str, name: str, n: int, divisor: int, iterations: int) -> dict[str, float]:
    points, labels = load_digits(return_X_y=True)
    points, labels = points[:n] / divisor, labels[:n]
    learner = (ours if side == "vicinal" else peer)(name, iterations)
    small = (ours if side == "vicinal" else peer)(name, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small.fit(points[:100], labels[:100])  # imports, first allocations and thread pools are not what is compared
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        learner.fit(points, labels)
        seconds = time.perf_counter() - began
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"seconds": seconds, "mib": peak, "cost": reached(name, points, labels, learner.components_)}


def seconds_to(cost: float, side: str, name: str, n: int, divisor: int, iterations: int) -> float:
    """Return how long a side takes to reach a cost, in the fewest iterations of 1, 2, 4, ... that do."""
    tried = 1
    while True:
        run = child(side, name, n, divisor, min(tried, iterations))
        if run["cost"] <= cost or tried >= iterations:
            return run["seconds"]
        tried *= 2


def child(*arguments: object) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)  # side, learner and its numbers
    arguments = parser.parse_args()
    if arguments.child:
        side, name, *numbers = arguments.child
        print(json.dumps(measure(side, name, *map(int, numbers))))
        return

    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"medians of {arguments.rounds} rounds, in which the sides take turns\n")
    print(
        "| learner | points | pixels divided by | iterations | side | seconds | MiB | cost reached | to equal cost, s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, *numbers in CASES:
        case = " | ".join(map(str, [name, *numbers]))
        if PEERS[name] == "metric-learn" and importlib.util.find_spec("metric_learn") is None:
            print(f"| {case} | metric-learn is not installed | | | | |")
            continue
        found: dict[str, list[dict[str, float]]] = {"vicinal": [], PEERS[name]: []}
        for _ in range(arguments.rounds):
            for side, runs in found.items():
                runs.append(child(side, name, *numbers))
        median = {
            side: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for side, runs in found.items()
        }
        worst = max(value["cost"] for value in median.values())
        for side, value in median.items():
            behind = value["cost"] == worst
            value["equal"] = value["seconds"] if behind else seconds_to(worst, side, name, *numbers)
            print(
                f"| {case} | {side} | {value['seconds']:.2f} | {value['mib']:.0f} | {value['cost']:.4f} | "
                f"{value['equal']:.2f} |"
            )
        mine, other = median.values()
        print(
            f"| {case} | ratio | {other['seconds'] / mine['seconds']:.1f}x faster | "
            f"{other['mib'] / max(mine['mib'], 1):.1f}x leaner | | {other['equal'] / mine['equal']:.1f}x faster |",
            flush=True,
        )


if __name__ == "__main__":
    main()
