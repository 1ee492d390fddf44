"""Rank correlation of validation and test scores, and a variance decomposition of crossed experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from vicinal._util.text import p_text
from vicinal.errors import InputError
from vicinal.stats.intervals import Interval

__all__ = ["RankCorrelation", "rank_correlation", "split_variance"]


DRAWS = 10_000  # random orders, if there are too many to try them all


@dataclass(frozen=True)
class RankCorrelation:
    """Agreement of the order of methods on validation and on test: 1 is the same order, 0 unrelated, -1 reversed.

    If all methods score the same on one side, there is no order to compare, and the correlation is 0.

    Args:
        spearman: Spearman's rho.
        spearman_interval: Interval of rho; None for fewer than 5 methods, and if one side has no order.
        kendall: Kendall's tau-b: pairs in the same order minus pairs in reversed order, as a share of all pairs.
        kendall_interval: Interval of tau-b; None in the same cases.
        p_value: P-value of a permutation test that rho is 0.
        methods: Number of methods.
        agreed: Whether the best method on validation is also the best on test.
    """

    spearman: float
    spearman_interval: Interval | None
    kendall: float
    kendall_interval: Interval | None
    p_value: float
    methods: int
    agreed: bool

    def __str__(self) -> str:
        shown = [
            f"{name} {value:.2f}" + (f" ({ends.low:.2f} to {ends.high:.2f})" if ends else "")
            for name, value, ends in (
                ("Spearman", self.spearman, self.spearman_interval),
                ("Kendall", self.kendall, self.kendall_interval),
            )
        ]
        same = "is also" if self.agreed else "is not"
        return (
            f"Validation -> test over {self.methods} methods: {', '.join(shown)}, {p_text(self.p_value)}; "
            f"the best on validation {same} the best on test."
        )


def rank_correlation(
    validation: Mapping[str, float], test: Mapping[str, float], *, confidence: float = 0.95, seed: int = 0
) -> RankCorrelation:
    """Correlate the ranks of methods on validation with their ranks on test.

    Intervals use Fisher's z, with the variances of Bonett and Wright (2000) for Spearman and of Fieller et al. (1957)
    for Kendall. A perfect order gives no estimate of its own error; its interval is that of one swapped pair.

    Args:
        validation: Method -> score on validation; higher is better.
        test: Method -> score on test, for the same methods.
        confidence: Confidence level of the intervals.
        seed: Seed of the random orders, used with more than 7 methods.

    Example:
        >>> found = rank_correlation({"a": 0.3, "b": 0.2, "c": 0.1}, {"a": 0.6, "b": 0.4, "c": 0.5})
        >>> found.spearman, round(found.kendall, 2), found.agreed
        (0.5, 0.33, True)
    """
    from scipy import stats  # slow to import

    if set(validation) != set(test):
        odd = ", ".join(sorted(set(validation) ^ set(test)))
        raise InputError(f"Validation and test must score the same methods; only one of them scores {odd}.")
    names = sorted(test)
    count = len(names)
    if count < 3:
        raise InputError(f"A correlation of ranks needs at least 3 methods, got {count}.")
    pair = np.array([[scores[name] for name in names] for scores in (validation, test)], dtype=np.float64)
    for kind, row in zip(("validation", "test"), pair, strict=True):
        if not np.isfinite(row).all():
            absent = [name for name, finite in zip(names, np.isfinite(row), strict=True) if not finite]
            raise InputError(f"There is no {kind} score for {', '.join(absent)}; leave out methods without a score.")
    ordered = bool((np.ptp(pair, axis=1) > 0).all())
    spearman = float(stats.spearmanr(*pair).statistic) if ordered else 0.0
    kendall = float(stats.kendalltau(*pair).statistic) if ordered else 0.0
    z = float(stats.norm.ppf((1 + confidence) / 2))
    spearman_interval = kendall_interval = None
    if ordered and count >= 5:
        swap = 12 / (count * (count**2 - 1))
        spearman_interval = _fisher(spearman, swap, z * math.sqrt((1 + spearman**2 / 2) / (count - 3)))
        kendall_interval = _fisher(kendall, 4 / (count * (count - 1)), z * math.sqrt(0.437 / (count - 4)))
    tops = [{name for name, value in zip(names, row, strict=True) if value == row.max()} for row in pair]
    return RankCorrelation(
        spearman=spearman,
        spearman_interval=spearman_interval,
        kendall=kendall,
        kendall_interval=kendall_interval,
        p_value=_permutation(pair, seed),
        methods=count,
        agreed=tops[0] <= tops[1],
    )


def _fisher(value: float, swap: float, reach: float) -> Interval:
    """Return the interval in Fisher's z; its centre stays one swapped pair away from a perfect order."""
    centre = math.atanh(min(1 - swap, max(swap - 1, value)))
    return Interval(min(value, math.tanh(centre - reach)), max(value, math.tanh(centre + reach)))


def _permutation(pair: NDArray[np.float64], seed: int) -> float:
    """Return the two-sided p-value of Spearman's rho; exact for up to 7 methods."""
    from scipy import stats  # slow to import

    count = pair.shape[1]
    ranks, test_ranks = stats.rankdata(pair, axis=1) - (count + 1) / 2
    if count <= 7:
        orders = np.array(list(permutations(ranks)))
    else:
        drawn = np.random.default_rng(seed).permuted(np.tile(ranks, (DRAWS, 1)), axis=1)
        orders = np.vstack([ranks, drawn])  # the observed order counts as one of the orders
    return float((np.abs(orders @ test_ranks) >= abs(ranks @ test_ranks) - 1e-9).mean())


# Variance components: how much each factor of a fully crossed table contributes to the variance of a score.

Factors = tuple[str, ...]


def split_variance(values: NDArray[np.float64], factors: Sequence[str]) -> dict[Factors, float]:
    """Split the variance of a fully crossed table into components of its factors and their interactions.

    Every factor is a random effect: its levels (losses, seeds, classes) are a sample of those that might have been
    drawn. Variances are estimated from the mean squares of an analysis of variance. The interaction of all factors
    cannot be separated from noise; the two are reported as one number.

    Formula:
        E[MS_A] = sum over B containing A of variance_B * prod of levels outside B, solved for the variances:
        variance_A = sum over B containing A of (-1)^(|B| - |A|) MS_B / prod of levels outside A, and 0 if below 0.

    Args:
        values: Table with one axis per factor and one score per cell.
        factors: Names of the axes. A factor with a single level is left out.

    Returns:
        Factors -> variance: ("loss",), ("seed",), ("loss", "seed"), ...; the last, of all factors, includes the noise.

    Example:
        >>> found = split_variance(np.array([[1.0, 3.0], [5.0, 7.0]]), ["loss", "class"])
        >>> {" x ".join(names): variance for names, variance in found.items()}
        {'loss': 8.0, 'class': 2.0, 'loss x class': 0.0}
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != len(factors) or not table.size or not np.isfinite(table).all():
        raise InputError(
            f"A split of variance needs a finite value for every combination of {', '.join(factors)}; got an array of "
            f"shape {table.shape}{'' if np.isfinite(table).all() else ' with gaps'}."
        )
    levels = {name: count for name, count in zip(factors, table.shape, strict=True) if count > 1}
    table = table.reshape(list(levels.values()))
    subsets = [names for size in range(1, len(levels) + 1) for names in combinations(levels, size)]
    squares = {names: _mean_square(table, levels, names) for names in subsets}
    variances = {}
    for names in subsets:
        terms = [
            (-1) ** (len(others) - len(names)) * square
            for others, square in squares.items()
            if set(names) <= set(others)
        ]
        variances[names] = max(0.0, sum(terms) / math.prod(levels[name] for name in levels if name not in names))
    return variances


def _mean_square(table: NDArray[np.float64], levels: dict[str, int], names: Factors) -> float:
    effect, repeats, degrees = table, 1, 1
    for axis, (name, count) in enumerate(levels.items()):
        mean = effect.mean(axis=axis, keepdims=True)
        if name in names:
            effect, degrees = effect - mean, degrees * (count - 1)
        else:
            effect, repeats = mean, repeats * count
    return float((effect**2).sum()) * repeats / degrees
