"""Paired tests between methods on per-class scores, corrected for multiple comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal._util.text import counted, fraction, p_text
from vicinal.errors import InputError
from vicinal.stats.intervals import Interval, class_variance, effective_degrees, sign_flip

__all__ = [
    "AlignedPair",
    "PairTest",
    "Spread",
    "basis_in_words",
    "class_arrays",
    "class_scores",
    "compare_aligned",
    "compare_pairs",
    "holm",
    "paired_delta",
    "spreads",
]


# Per-class scores of several methods, from one run or several.


class ClassScores(NamedTuple):
    """Checked per-class scores, with methods sorted by descending mean, then by name.

    Args:
        methods: Names of the methods.
        values: Scores, methods by seeds by classes.
        weights: Weights of the classes, with sum 1.
    """

    methods: tuple[str, ...]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]


def class_arrays(
    runs: Mapping[str, Sequence[Mapping[Any, float]]],
) -> dict[str, NDArray[np.float64]]:
    """Arrange the per-class scores of several runs of several methods in one order of classes.

    Args:
        runs: Method -> one mapping of class -> score for each seed, as `Scores.per_class` returns them.

    Returns:
        Method -> scores, seeds by classes.

    Example:
        >>> class_arrays({"a": [{"wren": 0.4, "crow": 0.9}], "b": [{"crow": 0.8, "wren": 0.5}]})
        {'a': array([[0.9, 0.4]]), 'b': array([[0.8, 0.5]])}
    """
    every = {label for of_method in runs.values() for run in of_method for label in run}
    order = sorted(every, key=lambda label: (isinstance(label, str), label))
    for method, of_method in runs.items():
        for number, run in enumerate(of_method):
            absent = [str(label) for label in order if label not in run]
            if absent:
                shown = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
                raise InputError(
                    f"Run {number} of {method} has no score for {len(absent)} of {len(order)} classes ({shown}); "
                    "score all runs on the same classes."
                )
    return {
        method: np.array([[run[label] for label in order] for run in of_method], dtype=np.float64)
        for method, of_method in runs.items()
    }


def class_scores(per_class: Mapping[str, NDArray[np.float64]], queries: NDArray[np.int64] | None = None) -> ClassScores:
    """Check per-class scores and put them in one array, best method first.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes.
        queries: Number of queries of each class, to weight classes as the mean over queries does; by default all
            classes have the same weight.
    """
    if len(per_class) < 2:
        raise InputError(f"A comparison needs at least 2 methods, got {len(per_class)}.")
    arrays = {method: np.atleast_2d(np.asarray(values, dtype=np.float64)) for method, values in per_class.items()}
    shapes = {method: values.shape for method, values in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 or 0 in shape for shape in shapes.values()):
        listed = ", ".join(f"{method} {shape}" for method, shape in shapes.items())
        raise InputError(f"All methods need scores of the same seeds and classes (seeds, classes); got {listed}.")
    for method, values in arrays.items():
        unknown = np.argwhere(~np.isfinite(values)).tolist()
        if unknown:
            raise InputError(
                f"{method} has no score for {counted(len(unknown), 'class')}, first for number {unknown[0][1]} in run "
                f"{unknown[0][0]}; leave out classes without a scored query, for all methods."
            )
    classes = next(iter(shapes.values()))[1]
    counts = np.ones(classes) if queries is None else np.asarray(queries, dtype=np.float64)
    if counts.shape != (classes,) or not (counts > 0).all():
        raise InputError(
            f"queries must hold a count above 0 for each of {classes} classes; got {counts.tolist()[:10]}."
        )
    weights = counts / counts.sum()
    order = sorted(arrays, key=lambda method: (-float((arrays[method] @ weights).mean()), method))
    return ClassScores(tuple(order), np.stack([arrays[method] for method in order]), weights)


# Holm's correction for multiple tests.


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Correct p-values for multiple tests: the level bounds the probability of any false positive among them.

    Formula:
        p'_(i) = max_{j <= i} min(1, (m - j + 1) p_(j)) over the m p-values in ascending order.

    Reference:
        Holm, "A simple sequentially rejective multiple test procedure", 1979.

    Example:
        >>> holm([0.01, 0.04, 0.03, 0.005]).round(3).tolist()
        [0.03, 0.06, 0.06, 0.02]
    """
    single = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(single, kind="stable")
    factors = np.arange(len(single), 0, -1)
    corrected = np.empty_like(single)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * single[order]))
    return corrected


# Variance of a mean difference, over seeds and over classes.


class Spread(NamedTuple):
    """Variance of a mean difference due to the choice of seeds and of classes, with degrees of freedom.

    With n times as many seeds, the variance of seeds falls to 1/n of its value; with n times as many classes, that of
    classes does.

    Attributes:
        of_seeds: Variance due to seeds; 0 for one seed, which does not show it.
        seed_degrees: Degrees of freedom of that estimate.
        of_classes: Variance due to classes.
        class_degrees: Degrees of freedom of that estimate.
    """

    of_seeds: float
    seed_degrees: float
    of_classes: float
    class_degrees: float

    def reach(self, confidence: float) -> float:
        """Return half the length of the interval of the difference.

        Formula:
            t sqrt(v), with v the sum of both variances and t the mean of their Student quantiles, each weighted by its
            variance (Cochran and Cox, 1950). Satterthwaite's degrees of freedom would be those of the classes whenever
            two or three seeds happen to agree, which makes the interval too short.

        Example:
            >>> round(Spread(0.0, 1, 1.0, 9).reach(0.95), 2), round(Spread(1.0, 1, 1.0, 9).reach(0.95), 2)
            (2.26, 10.58)
        """
        return self._reach((1 - confidence) / 2)

    def p_value(self, difference: float) -> float:
        """Return the two-sided p-value of a difference: 1 - confidence of the interval that ends at 0.

        Example:
            >>> spread = Spread(1.0, 2, 1.0, 9)
            >>> round(spread.p_value(spread.reach(0.95)), 6)
            0.05
        """
        from scipy import optimize  # slow to import

        size = abs(difference)
        if size == 0 or not self.of_seeds + self.of_classes:
            return float(size == 0)  # without any variation, a difference is certain
        if self._reach(SMALLEST_P / 2) <= size:
            return SMALLEST_P
        ends = math.log(SMALLEST_P / 2), math.log(0.5)
        return 2 * math.exp(float(optimize.brentq(lambda tail: self._reach(math.exp(tail)) - size, *ends)))

    def _reach(self, tail: float) -> float:
        from scipy import special  # slow to import

        variance = self.of_seeds + self.of_classes
        if not variance:
            return 0.0
        share = self.of_seeds / variance
        quantile = share * special.stdtrit(self.seed_degrees, tail) if share else 0.0
        quantile += (1 - share) * special.stdtrit(self.class_degrees, tail) if share < 1 else 0.0
        return -math.sqrt(variance) * float(quantile)


SMALLEST_P = 1e-12


def spreads(differences: NDArray[np.float64], weights: NDArray[np.float64], methods: int = 2) -> list[Spread]:
    """Estimate the variances of mean differences due to the choice of seeds and of classes.

    Two or three seeds of one pair say little about the variance over seeds. It is pooled over all pairs, as if all
    methods varied alike, unless that of the pair itself is larger.

    Formula:
        v_seeds = max(u, mean of u over pairs) with u = 1/(S(S-1)) sum_s (d_s - d)^2 and (S-1) min(pairs, methods - 1)
        degrees of freedom. v_classes = v(d_c) - v(d_sc - d_c - d_s + d) / (S-1), at least 0, with v the variance of
        `class_interval`: what classes and seeds vary together is in v_seeds already.

    Args:
        differences: Score differences, seeds by classes by pairs.
        weights: Weights of the classes, with sum 1.
        methods: Number of methods that form the pairs.

    Returns:
        One spread for each pair. A single class shows no variance over classes: it is 0 for several seeds, and infinite
        for one seed.
    """
    seeds, classes, pairs = differences.shape
    class_means = differences.mean(axis=0)
    of_classes = class_variance(class_means, weights) if classes > 1 or seeds > 1 else np.full(pairs, np.inf)
    of_seeds, seed_degrees = np.zeros(pairs), 1
    if seeds > 1:
        seed_means = np.einsum("c,scp->sp", weights, differences)
        own = seed_means.var(axis=0, ddof=1) / seeds
        of_seeds, seed_degrees = np.maximum(own, own.mean()), (seeds - 1) * min(pairs, methods - 1)
        cells = np.moveaxis(differences - class_means, 1, 0)  # classes, seeds, pairs
        of_classes = np.maximum(0, of_classes - class_variance(cells, weights).sum(axis=0) / (seeds * (seeds - 1)))
    class_degrees = effective_degrees(weights) if classes > 1 else 1.0
    return [
        Spread(float(first), seed_degrees, float(second), class_degrees)
        for first, second in zip(of_seeds, of_classes, strict=True)
    ]


Unit = Literal["class", "experiment"]


@dataclass(frozen=True)
class PairTest:
    """Difference between two methods on the scores that both have.

    Args:
        first: Name of the method with the higher mean over all of its scores.
        second: Name of the other method.
        difference: Difference of their means on the scores that both have; below 0 if the second is ahead there.
        interval: Interval of the difference, for this pair alone.
        spread: Variance of the difference over seeds and over classes.
        effect: Cliff's delta of paired scores: the share of classes in which the first is better, minus the share in
            which it is worse. From -1 to 1.
        p_single: P-value of this pair alone.
        p_value: P-value corrected for the number of pairs (Holm).
        count: Number of classes (or experiments) compared.
        unit: "class" or "experiment".
        seeds: Number of seeds of each method.
        folds: Number of folds of all seeds together; None without folds.
    """

    first: str
    second: str
    difference: float
    interval: Interval
    spread: Spread
    effect: float
    p_single: float
    p_value: float
    count: int
    unit: Unit
    seeds: int
    folds: int | None = None

    def __str__(self) -> str:
        return (
            f"{self.first} - {self.second}: {fraction(self.difference, sign=True)} "
            f"({fraction(self.interval.low, sign=True)} to {fraction(self.interval.high, sign=True)}), "
            f"effect {self.effect:+.2f}, {p_text(self.p_value)}, over {self.basis}"
        )

    @property
    def basis(self) -> str:
        """Classes, seeds and folds of the comparison, in words."""
        return basis_in_words(self.count, self.seeds, self.folds, unit=self.unit)


class AlignedPair(NamedTuple):
    """Scores of two methods for the same seeds (rows) and classes (columns).

    Attributes:
        first: Name of the method with the higher mean over all of its scores.
        second: Name of the other method.
        first_scores: Scores of the first method, seeds by classes.
        second_scores: Scores of the second method, in the same shape.
        queries: Number of queries of each class; None to weight all classes equally.
        folds: Number of folds of all seeds together; None without folds.
    """

    first: str
    second: str
    first_scores: NDArray[np.float64]
    second_scores: NDArray[np.float64]
    queries: NDArray[np.int64] | None = None
    folds: int | None = None


def basis_in_words(count: int, seeds: int, folds: int | None = None, *, unit: Unit = "class") -> str:
    """Describe how many classes, seeds and folds a comparison is based on.

    Example:
        >>> basis_in_words(40, 3), basis_in_words(40, 2, 7), basis_in_words(12, 1, unit="experiment")
        ('40 classes and 3 seeds', '40 classes and 2 seeds (7 folds in all)', '12 experiments')
    """
    compared = counted(count, unit)
    if unit == "experiment" and seeds == 1:
        return compared
    in_all = "" if folds is None else f" ({counted(folds, 'fold')} in all)"
    return f"{compared} and {counted(seeds, 'seed')}{in_all}"


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

    With one run of each method, the interval is Student's over classes and p comes from a sign-flip test over classes:
    it says whether *these models* differ. With several seeds, classes and seeds both vary, and p and interval come from
    a t-test whose variance is the sum of both (see `Spread`): it says whether *the methods* differ.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes (see `class_arrays`).
            The seeds of all methods must be the same, since runs are paired by them; `compare_aligned` takes pairs
            that share different seeds or classes.
        queries: Number of queries of each class, to weight classes as the mean over queries does; by default all
            classes have the same weight.
        unit: Unit of comparison: "class", or "experiment" if each score is that of a whole experiment.
        draws: Number of sign patterns, for one seed.
        confidence: Confidence level of the intervals.
        seed: Seed of the draws.

    Returns:
        Tests of all pairs, best methods first: the best with all others, the second best with those after it, etc.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> poor = rng.random(40)
        >>> (test,) = compare_pairs({"good": poor + 0.1 * rng.random(40), "poor": poor})
        >>> test.first, test.p_value < 0.001, test.effect
        ('good', True, 1.0)
    """
    methods, values, _ = class_scores(per_class, queries)
    pairs = [
        AlignedPair(methods[better], methods[other], values[better], values[other], queries)
        for better, other in combinations(range(len(methods)), 2)
    ]
    return compare_aligned(pairs, unit=unit, draws=draws, confidence=confidence, seed=seed)


def compare_aligned(
    pairs: Sequence[AlignedPair],
    *,
    unit: Unit = "class",
    draws: int = 20_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[PairTest]:
    """Compare each pair of methods on the seeds and classes that the two share, as `compare_pairs` does.

    Args:
        pairs: Pairs of methods, each with scores for the seeds and classes that both have; p-values are corrected for
            the number of pairs (Holm).
        unit: Unit of comparison: "class", or "experiment" if each score is that of a whole experiment.
        draws: Number of sign patterns, for one seed.
        confidence: Confidence level of the intervals.
        seed: Seed of the draws.

    Returns:
        Tests in the order of the pairs.

    Example:
        >>> three, one = np.array([[0.5, 0.6], [0.5, 0.7], [0.6, 0.7]]), np.array([[0.1, 0.3]])
        >>> pairs = [AlignedPair("a", "b", three, three - 0.2), AlignedPair("a", "c", three[:1], one)]
        >>> [(test.second, round(test.difference, 2), test.basis) for test in compare_aligned(pairs)]
        [('b', 0.2, '2 classes and 3 seeds'), ('c', 0.35, '2 classes and 1 seed')]
    """
    batches: dict[tuple[object, ...], list[int]] = {}
    for number, pair in enumerate(pairs):
        _check(pair)
        queries = None if pair.queries is None else np.asarray(pair.queries, dtype=np.int64).tobytes()
        batches.setdefault((np.atleast_2d(pair.first_scores).shape, queries), []).append(number)
    tested: dict[int, _Tested] = {}
    # Pairs with the same shape and queries share their draws: in most comparisons all methods have all seeds.
    for numbers in batches.values():
        tested |= dict(zip(numbers, _tested([pairs[n] for n in numbers], draws, confidence, seed), strict=True))
    corrected = holm([tested[number].p_value for number in range(len(pairs))]).tolist()
    return [
        PairTest(
            first=pair.first,
            second=pair.second,
            difference=tested[number].difference,
            interval=tested[number].interval,
            spread=tested[number].spread,
            effect=paired_delta(
                np.atleast_2d(pair.first_scores).mean(axis=0), np.atleast_2d(pair.second_scores).mean(axis=0)
            ),
            p_single=tested[number].p_value,
            p_value=corrected[number],
            count=np.atleast_2d(pair.first_scores).shape[1],
            unit=unit,
            seeds=np.atleast_2d(pair.first_scores).shape[0],
            folds=pair.folds,
        )
        for number, pair in enumerate(pairs)
    ]


def paired_delta(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return Cliff's delta of paired scores: share of classes in which the first is better, minus share where worse.

    Classes differ far more from each other than methods do on one class, so an unpaired effect size would be near zero
    for every pair. Per-class scores are also bounded and skewed, which makes a mean over a standard deviation
    (Cohen's d) unsuitable.

    Example:
        >>> paired_delta(np.array([0.9, 0.5, 0.3, 0.3]), np.array([0.8, 0.4, 0.3, 0.2]))
        0.75
    """
    return float(np.sign(first - second).mean())


def _check(pair: AlignedPair) -> None:
    first, second = (np.atleast_2d(scores) for scores in (pair.first_scores, pair.second_scores))
    if first.shape != second.shape or first.ndim != 2 or 0 in first.shape:
        raise InputError(
            f"{pair.first} and {pair.second} need scores of the same seeds and classes (seeds, classes); got "
            f"{first.shape} and {second.shape}."
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError(
            f"Some classes have no score for {pair.first} or {pair.second}; leave out classes that only one of them "
            "has scored."
        )


class _Tested(NamedTuple):
    difference: float
    interval: Interval
    spread: Spread
    p_value: float


def _tested(pairs: Sequence[AlignedPair], draws: int, confidence: float, seed: int) -> list[_Tested]:
    """Test several pairs with the same seeds, classes and queries."""
    differences = np.stack(
        [np.atleast_2d(pair.first_scores) - np.atleast_2d(pair.second_scores) for pair in pairs], axis=-1
    )  # seeds, classes, pairs
    seeds, classes, _ = differences.shape
    queries = pairs[0].queries
    counts = np.ones(classes, dtype=np.int64) if queries is None else np.asarray(queries, dtype=np.int64)
    weights = counts / counts.sum()
    means = (weights @ differences.mean(axis=0)).tolist()
    methods = len({name for pair in pairs for name in (pair.first, pair.second)})
    estimates = spreads(differences, weights, methods)
    if seeds == 1:
        p_values = sign_flip(weights[:, None] * differences[0], draws=draws, seed=seed).tolist()
    else:
        p_values = [spread.p_value(mean) for spread, mean in zip(estimates, means, strict=True)]
    reaches = [spread.reach(confidence) for spread in estimates]
    return [
        _Tested(mean, Interval(mean - reach, mean + reach), spread, p_value)
        for mean, reach, spread, p_value in zip(means, reaches, estimates, p_values, strict=True)
    ]
