"""How often the levels of a similarity threshold are right: over drawn populations, and over splits of real classes.

    python benchmarks/thresholds.py                                  # populations, 300 draws of each
    python benchmarks/thresholds.py --draws 50 --data features.npz --classes 100

Populations: for each, a large set of classes is drawn once, and the threshold is found at which its rate of false
matches is exactly the requested one. A bound is wrong if the upper limit from a draw of classes is below this rate.
Printed are the share of draws in which it is right, and the median of limit / rate.

Real data: an .npz file with X (embeddings) and y (classes). Classes are split at random; thresholds are chosen on some,
and their rates are counted on the others. That rate varies, too, since the others are a sample as well; `possible` is
the share of true matches at the threshold that has the requested rate on all classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.evaluation.threshold import LEVELS, choose_threshold, classes_needed, effective_classes, upper_limit
from vicinal.evaluation.verification import rates_at

POPULATION = 2500  # classes
Floats = NDArray[np.float64]


def populations() -> Iterator[tuple[str, Floats, Floats, Floats]]:
    """Yield names, class centres, spreads of classes and numbers of items."""
    rng = np.random.default_rng(5)
    few, plain = np.full(POPULATION, 6.0), np.full(POPULATION, 0.5)
    sizes = np.clip(np.round(np.exp(rng.normal(2.2, 1, POPULATION))), 2, 120)
    large = np.clip(np.log(sizes) - np.log(sizes).mean(), 0, None)
    yield "independent", rng.normal(size=(POPULATION, 12)), plain, few
    family = rng.normal(size=(POPULATION // 10, 24))[rng.integers(POPULATION // 10, size=POPULATION)]
    yield "families", family + 0.5 * rng.normal(size=(POPULATION, 24)), plain, few
    share = 1 / np.arange(1, 61)
    family = rng.normal(size=(60, 24))[rng.choice(60, size=POPULATION, p=share / share.sum())]
    yield "uneven families", family + 0.7 * rng.normal(size=(POPULATION, 24)), plain, few
    first = rng.normal(size=(POPULATION // 2, 16))
    twin = first + (0.02 + 0.15 * rng.pareto(1.0, size=(len(first), 1))) * rng.normal(size=first.shape)
    yield "heavy-tailed twins", np.concatenate([first, twin]), plain, few
    for name, part, shift in (("3 % alike", 0.03, 4.0), ("10 % alike", 0.1, 2.0)):
        alike = np.where(rng.random((POPULATION, 1)) < part, shift, 0.0)
        yield name, rng.normal(size=(POPULATION, 16)) + alike, plain, few
    yield "2 to 120 items", rng.normal(size=(POPULATION, 12)), plain, sizes
    yield "larger is harder", rng.normal(size=(POPULATION, 12)) + large[:, None], 0.4 + 0.1 * large, sizes
    huge = rng.random(POPULATION) < 0.02
    centres = np.where(huge[:, None], 3 + 0.6 * rng.normal(size=(POPULATION, 12)), rng.normal(size=(POPULATION, 12)))
    yield "few huge ones alike", centres, plain, np.where(huge, 120.0, 2.0)


def shares(centres: Floats, spread: Floats, sizes: Floats, rate: float, per: str) -> tuple[Floats, float]:
    """Return h of all pairs of classes at the threshold with about this rate, and the exact rate there."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(len(sizes)), sizes.astype(int))
    points = centres[labels] + spread[labels, None] * rng.normal(size=(len(labels), centres.shape[1]))
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    starts = np.searchsorted(labels, np.arange(len(sizes)))
    chosen = rng.choice(len(labels), (2, 2_000_000), p=None if per == "items" else (1 / sizes / len(sizes))[labels])
    chosen = chosen[:, labels[chosen[0]] != labels[chosen[1]]]
    threshold = np.quantile(np.einsum("nd,nd->n", points[chosen[0]], points[chosen[1]]), 1 - rate)
    table = np.zeros((len(sizes), len(sizes)))
    for first in range(len(sizes)):
        rows = points[labels == first] @ points.T >= threshold
        table[first] = np.add.reduceat(rows.sum(axis=0), starts)
    np.fill_diagonal(table, 0)
    weights = np.outer(sizes, sizes) if per == "items" else np.ones_like(table)
    np.fill_diagonal(weights, 0)
    table /= np.outer(sizes, sizes)
    return table, float((table * weights).sum() / weights.sum())


def print_populations(rate: float, draws: int, confidence: float) -> None:
    """Print how often a bound is right, with the fewest classes that it takes and with six times as many."""
    print(f"{'population':<20} {'per':<8} {'classes':>7} {'right':>6} {'limit / rate':>12}")
    for name, centres, spread, sizes in populations():
        for per in ("classes", "items") if np.ptp(sizes) else ("classes",):
            table, truth = shares(centres, spread, sizes, rate, per)
            ratio = POPULATION / effective_classes(sizes, per)
            for classes in (int(f * ratio * classes_needed("bound", rate)) for f in (1, 6)):
                if classes > POPULATION // 2:
                    continue
                limits = []
                for seed in range(draws):
                    drawn = np.random.default_rng(seed).choice(POPULATION, classes, replace=False)
                    size = sizes[drawn] if per == "items" else np.ones(classes)
                    matches = size * (table[np.ix_(drawn, drawn)] @ size)
                    limits.append(float(upper_limit(matches, size * (size.sum() - size), confidence)))
                right, wide = np.mean(np.array(limits) >= truth), np.median(limits) / truth
                print(f"{name:<20} {per:<8} {classes:>7} {right:>6.3f} {wide:>12.2f}", flush=True)


def print_splits(file: Path, classes: int, rate: float, draws: int, confidence: float) -> None:
    """Print the rates of each level on the classes that a threshold was not chosen on."""
    with np.load(file) as arrays:
        points, labels = arrays["X"], np.unique(arrays["y"], return_inverse=True)[1]
    possible = choose_threshold(points, labels, false_matches=rate, level="estimate").true_matches
    print(f"{file.name}: {labels.max() + 1} classes, true matches possible {possible:.3f}")
    print(f"{'level':<10} {'above the rate':>14} {'mean rate':>10} {'true matches':>12}")
    for level in LEVELS:
        results = []
        try:
            for seed in range(draws):
                chosen = np.isin(labels, np.random.default_rng(seed).permutation(labels.max() + 1)[:classes])
                rule = choose_threshold(
                    points[chosen], labels[chosen], false_matches=rate, level=level, confidence=confidence
                )
                results.append(rates_at(rule.threshold, points[~chosen], labels[~chosen]))
        except InputError as error:
            print(f"{level:<10} {error}")
            continue
        false, true = np.array(results).T
        print(f"{level:<10} {(false > rate).mean():>14.3f} {false.mean():>10.4f} {true.mean():>12.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--classes", type=int, default=100, help="classes that thresholds are chosen on")
    flags = parser.parse_args()
    if flags.data is None:
        print_populations(flags.rate, flags.draws, flags.confidence)
    else:
        print_splits(flags.data, flags.classes, flags.rate, flags.draws, flags.confidence)


if __name__ == "__main__":
    main()
