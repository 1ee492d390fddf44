"""How often intervals cover, tests claim and P(best) holds, on simulated classes and seeds.

    python benchmarks/coverage.py                          # all tables, 1000 simulations a cell
    python benchmarks/coverage.py --only scores --simulations 500

Four populations of classes, each class with a quality and queries that are right or wrong:

- independent: all classes have 20 queries;
- families: the same, but classes come in families of five that have 70 % of the variance of the quality in common;
- sizes: classes have 2 to 120 queries (log-uniform), whatever their quality;
- harder: the same sizes, and larger classes are harder: the mean over queries is far below the mean over classes.

Methods differ from class to class, seeds move all classes of a method together, and every class of every run has noise
of its own. What is estimated is the mean over all queries of all classes that might be drawn (and over all seeds, where
there are several). The columns of each table say what was measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from vicinal.stats import compare_pairs, probability_of_best
from vicinal.stats.intervals import class_interval

Population = Literal["independent", "families", "sizes", "harder"]
FAMILY, IN_COMMON = 5, 0.7  # classes of a family, and the share of the variance that they have in common
FEWEST, MOST = 2, 120  # queries of a class


class Scores(NamedTuple):
    """Simulated scores.

    Attributes:
        queries: Number of queries of each class.
        values: Share of right queries, methods by seeds by classes.
        effects: True advantage of each method.
    """

    queries: NDArray[np.int64]
    values: NDArray[np.float64]
    effects: NDArray[np.float64]


def simulate(
    generator: np.random.Generator,
    population: Population,
    classes: int,
    *,
    methods: int = 1,
    seeds: int = 1,
    level: float = 0.5,
    loudness: float = 0.0,
    advantage: float = 0.0,
) -> Scores:
    """Draw classes, and the scores of methods on them; all effects are added to the logit of a query's success.

    Args:
        generator: Source of randomness.
        population: How classes are drawn.
        classes: Number of classes.
        methods: Number of methods.
        seeds: Number of seeds of each method.
        level: Mean logit of the classes.
        loudness: Standard deviation of the effect of a seed on all classes of a method.
        advantage: Standard deviation of the true effects of methods.
    """
    queries = np.full(classes, 20)
    if population in ("sizes", "harder"):
        queries = np.exp(generator.uniform(np.log(FEWEST), np.log(MOST + 1), classes)).astype(np.int64)
    families = -(-classes // FAMILY)

    def of_classes(*shape: int) -> NDArray[np.float64]:
        alone = generator.standard_normal((*shape, classes))
        if population != "families":
            return alone
        shared = np.repeat(generator.standard_normal((*shape, families)), FAMILY, axis=-1)[..., :classes]
        return IN_COMMON**0.5 * shared + (1 - IN_COMMON) ** 0.5 * alone

    quality = level + of_classes()
    if population == "harder":
        size = np.log(queries / FEWEST) / np.log(MOST / FEWEST) - 0.5
        quality = level - 3 * size + 0.6 * of_classes()
    effects = advantage * generator.standard_normal(methods)
    logits = quality + effects[:, None, None]
    if methods > 1:
        logits = logits + 0.3 * of_classes(methods, 1) + loudness * generator.standard_normal((methods, seeds, 1))
        logits = logits + 0.15 * generator.standard_normal((methods, seeds, classes))
    values = generator.binomial(queries, expit(logits)) / queries
    return Scores(queries, values, effects)


@cache
def true_mean(population: Population, level: float) -> float:
    """Return the mean over queries of very many classes."""
    drawn = simulate(np.random.default_rng(0), population, 400_000, level=level)
    return float(np.average(drawn.values[0, 0], weights=drawn.queries))


def score_coverage(population: Population, classes: int, level: float, simulations: int, *, together: int = 1) -> float:
    """Return the share of 95 % intervals of one score that cover the true mean.

    Args:
        population: How classes are drawn.
        classes: Number of classes.
        level: Mean logit of the classes.
        simulations: Number of intervals.
        together: Number of neighbouring classes that are counted as one, such as those of a family.
    """
    truth, generator, covered = true_mean(population, level), np.random.default_rng(classes), 0
    for _ in range(simulations):
        queries, values, _ = simulate(generator, population, classes, level=level)
        starts = np.arange(0, classes, together)
        sums, counts = (np.add.reduceat(numbers, starts) for numbers in (values[0, 0] * queries, queries))
        (interval,) = class_interval(sums[:, None], counts)
        covered += interval.low <= truth <= interval.high
    return covered / simulations


class Claims(NamedTuple):
    """Outcome of comparisons of equal methods.

    Attributes:
        covered: Share of the 95 % intervals of pairs that cover 0.
        significant: Share of single pairs with p < 0.05.
        any_significant: Share of comparisons that declare any pair significant, after Holm's correction.
    """

    covered: float
    significant: float
    any_significant: float


def pair_claims(
    population: Population, classes: int, *, methods: int, seeds: int, loudness: float, simulations: int
) -> Claims:
    """Compare methods that are equal over all classes and seeds."""
    generator = np.random.default_rng(classes * seeds)
    outcomes = []
    for _ in range(simulations):
        drawn = simulate(generator, population, classes, methods=methods, seeds=seeds, loudness=loudness)
        named = {str(number): values for number, values in enumerate(drawn.values)}
        tests = compare_pairs(named, queries=drawn.queries, draws=1000)
        outcomes.append(
            (
                np.mean([test.interval.low <= 0 <= test.interval.high for test in tests]),
                np.mean([test.p_single < 0.05 for test in tests]),
                any(test.p_value < 0.05 for test in tests),
            )
        )
    return Claims(*(float(value) for value in np.mean(outcomes, axis=0)))


def best_claims(
    classes: int, *, methods: int, seeds: int, loudness: float, advantages: Sequence[float], simulations: int
) -> NDArray[np.float64]:
    """Return P(best) of the leader, and whether it is truly best, in comparisons of methods that differ.

    Args:
        classes: Number of independent classes.
        methods: Number of methods.
        seeds: Number of seeds.
        loudness: Standard deviation of the effect of a seed.
        advantages: Standard deviations of the true effects, all equally frequent.
        simulations: Number of comparisons.
    """
    generator = np.random.default_rng(classes * seeds)
    outcomes = []
    for number in range(simulations):
        advantage = advantages[number % len(advantages)]
        drawn = simulate(
            generator, "independent", classes, methods=methods, seeds=seeds, loudness=loudness, advantage=advantage
        )
        named = {str(index): values for index, values in enumerate(drawn.values)}
        shares = probability_of_best(named, queries=drawn.queries, draws=1000)
        leader = max(shares, key=lambda name: shares[name])
        outcomes.append((shares[leader], int(leader) == int(drawn.effects.argmax())))
    return np.array(outcomes, dtype=np.float64)


BINS = ((0.95, 1.01), (0.8, 0.95), (0.6, 0.8), (0.4, 0.6))
ADVANTAGES = (0.05, 0.15, 0.4, 1.0)


def _scores(simulations: int) -> None:
    print("\nCoverage of the 95 % interval of one score\n\n| population | mean logit | 10 | 20 | 50 | 100 classes |")
    print("|---|---|---|---|---|---|")
    for population in get_args(Population):
        for level in (-3.0, 0.5, 2.5, 4.5):
            cells = [f"{score_coverage(population, count, level, simulations):.3f}" for count in (10, 20, 50, 100)]
            print(f"| {population} | {level} | {' | '.join(cells)} |", flush=True)
    cells = [f"{score_coverage('families', count, 0.5, simulations, together=FAMILY):.3f}" for count in (20, 50, 100)]
    print(f"| families, an interval over families | 0.5 | (2 families) | {' | '.join(cells)} |", flush=True)


def _pairs(simulations: int) -> None:
    print("\nEqual methods: coverage of a pair's interval / p < 0.05 / any significant pair after Holm\n")
    print("| population | methods | classes | loudness | 1 seed | 2 | 3 | 5 seeds |\n|---|---|---|---|---|---|---|---|")
    for population in get_args(Population):
        for methods in (2, 5):
            for classes in (10, 20, 50, 100):
                for loudness in (0.0, 0.1, 0.4, 1.5):
                    cells = [
                        pair_claims(
                            population,
                            classes,
                            methods=methods,
                            seeds=seeds,
                            loudness=loudness,
                            simulations=simulations,
                        )
                        for seeds in (1, 2, 3, 5)
                    ]
                    shown = " | ".join(" / ".join(f"{value:.3f}" for value in cell) for cell in cells)
                    print(f"| {population} | {methods} | {classes} | {loudness} | {shown} |", flush=True)


def _best(simulations: int) -> None:
    bins = " | ".join(f"{low:.2f} to {min(high, 1):.2f}" for low, high in BINS)
    print("\nP(best) of the leader: how often it is truly best (how many comparisons)\n")
    print(f"| methods | classes | seeds | loudness | {bins} |\n|---|---|---|---|{'---|' * len(BINS)}")
    for methods in (2, 5):
        for classes in (10, 50):
            for seeds in (2, 3, 5):
                for loudness in (0.0, 0.4):
                    outcomes = best_claims(
                        classes,
                        methods=methods,
                        seeds=seeds,
                        loudness=loudness,
                        advantages=ADVANTAGES,
                        simulations=simulations,
                    )
                    cells = []
                    for low, high in BINS:
                        inside = outcomes[(outcomes[:, 0] >= low) & (outcomes[:, 0] < high)]
                        cells.append(f"{inside[:, 1].mean():.2f} ({len(inside)})" if len(inside) else "")
                    print(f"| {methods} | {classes} | {seeds} | {loudness} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("scores", "pairs", "best"))
    parser.add_argument("--simulations", type=int, default=1000)
    flags = parser.parse_args()
    for name, table in (("scores", _scores), ("pairs", _pairs), ("best", _best)):
        if flags.only in (None, name):
            table(flags.simulations)


if __name__ == "__main__":
    main()
