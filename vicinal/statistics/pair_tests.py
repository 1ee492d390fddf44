"""Every pair of methods compared on the same test classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from vicinal.phrasing import p_text
from vicinal.statistics.class_scores import class_scores
from vicinal.statistics.holm_correction import holm
from vicinal.statistics.intervals import Interval, class_bootstrap
from vicinal.statistics.sign_flips import sign_flip

__all__ = ["PairTest", "compare_pairs", "paired_delta"]

Unit = Literal["class", "experiment"]


@dataclass(frozen=True)
class PairTest:
    """How much better one method is than another.

    Args:
        first: The method with the higher mean.
        second: The other.
        difference: Of their means, never negative.
        interval: Of the difference, for this pair alone.
        effect: Cliff's delta of paired scores: the share of classes in which the first is better, less the share in
            which it is worse. From -1 to 1.
        p_single: Of this pair alone.
        p_value: Corrected for the number of pairs (Holm).
        count: How many classes (or experiments) were compared.
        unit: "class" or "experiment".
        seeds: How many runs of each method.
    """

    first: str
    second: str
    difference: float
    interval: Interval
    effect: float
    p_single: float
    p_value: float
    count: int
    unit: Unit
    seeds: int

    def __str__(self) -> str:
        return (
            f"{self.first} - {self.second}: {self.difference:+.4f} ({self.interval.low:+.4f} to "
            f"{self.interval.high:+.4f}), effect {self.effect:+.2f}, {p_text(self.p_value)}"
        )


def compare_pairs(
    per_class: Mapping[str, NDArray[np.float64]],
    *,
    queries: NDArray[np.int64] | None = None,
    unit: Unit = "class",
    draws: int = 20_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[PairTest]:
    """Compare all pairs of methods, class by class.

    With one run of each method, the interval is bootstrapped over classes and p comes from flipping signs class by
    class: it says whether *these models* differ. With several seeds, classes and seeds both vary, and p and interval
    come from a t-test whose variance is the sum of both: it says whether *the methods* differ.

    Formula:
        t = d / sqrt(v_classes + v_seeds), v_classes = C/(C-1) sum_c w_c^2 (d_c - d)^2,
        v_seeds = 1/(S(S-1)) sum_s (d_s - d)^2, with Satterthwaite's degrees of freedom. What varies over classes and
        seeds jointly is counted in both, so the test errs on the careful side.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes (`class_arrays` makes
            them). The seeds of all methods must be the same, since runs are paired by them.
        queries: How many each class has, to weigh classes as the mean over queries does; without it all are equal.
        unit: What is compared: "experiment" if the scores are those of whole experiments.
        draws: Of bootstrap and signs.
        confidence: Of the intervals.
        seed: Of the draws.

    Returns:
        Best methods first: the pairs of the best one, of the second best with those after it, and so on.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> poor = rng.random(40)
        >>> (test,) = compare_pairs({"good": poor + 0.1 * rng.random(40), "poor": poor})
        >>> test.first, test.p_value < 0.001, test.effect
        ('good', True, 1.0)
    """
    methods, values, weights = class_scores(per_class, queries)
    _, seeds, classes = values.shape
    chosen = list(combinations(range(len(methods)), 2))
    differences = np.stack([values[one] - values[other] for one, other in chosen], axis=-1)  # seeds, classes, pairs
    means = weights @ differences.mean(axis=0)
    if seeds == 1:
        sums = weights[:, None] * differences[0]
        p_single = sign_flip(sums, draws=draws, seed=seed)
        counts = np.ones(classes, dtype=np.int64) if queries is None else np.asarray(queries, dtype=np.int64)
        intervals = class_bootstrap(
            differences[0] * counts[:, None], counts, draws=min(draws, 5000), confidence=confidence, seed=seed
        )
    else:
        p_single, intervals = _two_way(differences, weights, means, confidence)
    return [
        PairTest(
            first=methods[one],
            second=methods[other],
            difference=float(means[at]),
            interval=intervals[at],
            effect=paired_delta(values[one].mean(axis=0), values[other].mean(axis=0)),
            p_single=float(p_single[at]),
            p_value=float(corrected),
            count=classes,
            unit=unit,
            seeds=seeds,
        )
        for at, ((one, other), corrected) in enumerate(zip(chosen, holm(p_single.tolist()), strict=True))
    ]


def paired_delta(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Cliff's delta of paired scores: the share of classes in which the first is better, less that in which worse.

    Classes differ far more among themselves than methods do on one class, so an effect size that does not pair them
    would be near zero for every pair; and scores per class are bounded and skewed, which a mean over a standard
    deviation (Cohen's d) takes badly.

    Example:
        >>> paired_delta(np.array([0.9, 0.5, 0.3, 0.3]), np.array([0.8, 0.4, 0.3, 0.2]))
        0.75
    """
    return float(np.sign(first - second).mean())


def _two_way(
    differences: NDArray[np.float64], weights: NDArray[np.float64], means: NDArray[np.float64], confidence: float
) -> tuple[NDArray[np.float64], list[Interval]]:
    """p-values and intervals of mean differences that vary over seeds and classes."""
    seeds, classes, _ = differences.shape
    of_seeds = ((weights @ differences - means) ** 2).sum(axis=0) / (seeds * (seeds - 1))
    of_classes = np.zeros_like(means)
    if classes > 1:
        deviations = weights[:, None] * (differences.mean(axis=0) - means)
        of_classes = (deviations**2).sum(axis=0) * classes / (classes - 1)
    variance = of_seeds + of_classes
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = variance**2 / (of_seeds**2 / (seeds - 1) + of_classes**2 / max(1, classes - 1))
        ratio = means / np.sqrt(variance)
    # Without any variation, a difference is certain and its absence too.
    degrees, ratio = np.nan_to_num(degrees, nan=1.0), np.where(means == 0, 0.0, ratio)
    reach = stats.t.ppf((1 + confidence) / 2, degrees) * np.sqrt(variance)
    ends = zip((means - reach).tolist(), (means + reach).tolist(), strict=True)
    return 2 * stats.t.sf(np.abs(ratio), degrees), [Interval(low, high) for low, high in ends]
