"""Paired tests between methods: per-class differences, corrected for several comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal._util.text import counted, fraction, p_text
from vicinal.errors import InputError
from vicinal.stats.intervals import Interval, class_bootstrap, sign_flip

__all__ = [
    "AlignedPair",
    "PairTest",
    "basis_in_words",
    "class_arrays",
    "class_scores",
    "compare_aligned",
    "compare_pairs",
    "difference_variances",
    "holm",
    "paired_delta",
]


# Scores of methods on the same test classes, over one run or several.


class ClassScores(NamedTuple):
    """Checked scores per class: methods by falling mean, then by name.

    Args:
        methods: Their names.
        values: Methods by seeds by classes.
        weights: Of the classes, with sum 1.
    """

    methods: tuple[str, ...]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]


def class_arrays(
    runs: Mapping[str, Sequence[Mapping[Any, float]]],
) -> dict[str, NDArray[np.float64]]:
    """Put the scores per class of several runs of several methods in one order of classes.

    Args:
        runs: Method -> one mapping of class -> score for each seed, as `Scores.per_class` returns them.

    Returns:
        Method -> seeds by classes.

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
                    f"Run {number} of {method} has no score for {len(absent)} of {len(order)} classes ({shown}): "
                    "score all runs on the same classes."
                )
    return {
        method: np.array([[run[label] for label in order] for run in of_method], dtype=np.float64)
        for method, of_method in runs.items()
    }


def class_scores(per_class: Mapping[str, NDArray[np.float64]], queries: NDArray[np.int64] | None = None) -> ClassScores:
    """Check scores per class and put them in one array, best method first.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes.
        queries: How many each class has, to weigh classes as the mean over queries does; without it all are equal.
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
                f"{unknown[0][0]}: leave classes without a scored query out of all methods."
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


# Holm's correction: many tests, one level.


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Correct p-values so that any false finding among them all is as rare as one test promises.

    Formula:
        p'_(i) = max_{j <= i} min(1, (m - j + 1) p_(j)) over the m p-values in rising order.

    Reference:
        Holm, "A simple sequentially rejective multiple test procedure", 1979.

    Example:
        >>> holm([0.01, 0.04, 0.03, 0.005]).round(3).tolist()
        [0.03, 0.06, 0.06, 0.02]
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    factors = np.arange(len(given), 0, -1)
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * given[order]))
    return corrected


Unit = Literal["class", "experiment"]


@dataclass(frozen=True)
class PairTest:
    """How much better one method is than another on what both have scored.

    Args:
        first: The method with the higher mean over everything it has scored.
        second: The other.
        difference: Of their means on what both have; below 0 where the second is ahead there.
        interval: Of the difference, for this pair alone.
        effect: Cliff's delta of paired scores: the share of classes in which the first is better, less the share in
            which it is worse. From -1 to 1.
        p_single: Of this pair alone.
        p_value: Corrected for the number of pairs (Holm).
        count: How many classes (or experiments) were compared.
        unit: "class" or "experiment".
        seeds: How many of each method were compared.
        folds: How many of all these seeds together; None where there are no folds.
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
    folds: int | None = None

    def __str__(self) -> str:
        return (
            f"{self.first} - {self.second}: {fraction(self.difference, sign=True)} "
            f"({fraction(self.interval.low, sign=True)} to {fraction(self.interval.high, sign=True)}), "
            f"effect {self.effect:+.2f}, {p_text(self.p_value)}, over {self.basis}"
        )

    @property
    def basis(self) -> str:
        """What the two were compared on, in words."""
        return basis_in_words(self.count, self.seeds, self.folds, unit=self.unit)


class AlignedPair(NamedTuple):
    """Two methods' scores of the same seeds (rows) and classes (columns).

    Attributes:
        first: Name of the method with the higher mean over everything it has scored.
        second: Name of the other.
        first_scores: Seeds by classes.
        second_scores: The same shape.
        queries: How many each class has; None to weigh all classes alike.
        folds: How many of all seeds together are in the scores; None where there are no folds.
    """

    first: str
    second: str
    first_scores: NDArray[np.float64]
    second_scores: NDArray[np.float64]
    queries: NDArray[np.int64] | None = None
    folds: int | None = None


def basis_in_words(count: int, seeds: int, folds: int | None = None, *, unit: Unit = "class") -> str:
    """Say on how many classes, seeds and folds methods were compared.

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

    With one run of each method, the interval is bootstrapped over classes and p comes from flipping signs class by
    class: it says whether *these models* differ. With several seeds, classes and seeds both vary, and p and interval
    come from a t-test whose variance is the sum of both: it says whether *the methods* differ.

    Formula:
        t = d / sqrt(v_classes + v_seeds), v_classes = C/(C-1) sum_c w_c^2 (d_c - d)^2,
        v_seeds = 1/(S(S-1)) sum_s (d_s - d)^2, with Satterthwaite's degrees of freedom. What varies over classes and
        seeds jointly is counted in both, so the test errs on the careful side.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes (`class_arrays` makes
            them). The seeds of all methods must be the same, since runs are paired by them; `compare_aligned` takes
            pairs that share different seeds or classes.
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
    methods, values, _ = class_scores(per_class, queries)
    pairs = [
        AlignedPair(methods[one], methods[other], values[one], values[other], queries)
        for one, other in combinations(range(len(methods)), 2)
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
    """Compare two methods each on the seeds and classes that those two share, as `compare_pairs` does.

    Args:
        pairs: Each with scores of its own seeds and classes; p-values are corrected for the number of pairs (Holm).
        unit: What is compared: "experiment" if the scores are those of whole experiments.
        draws: Of bootstrap and signs.
        confidence: Of the intervals.
        seed: Of the draws.

    Returns:
        In the order of the pairs.

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
    tested: dict[int, tuple[float, Interval, float]] = {}
    # Pairs of the same classes are drawn for together: most comparisons have all seeds of all methods.
    for numbers in batches.values():
        tested |= dict(zip(numbers, _tested([pairs[n] for n in numbers], draws, confidence, seed), strict=True))
    corrected = holm([tested[number][2] for number in range(len(pairs))]).tolist()
    return [
        PairTest(
            first=pair.first,
            second=pair.second,
            difference=tested[number][0],
            interval=tested[number][1],
            effect=paired_delta(
                np.atleast_2d(pair.first_scores).mean(axis=0), np.atleast_2d(pair.second_scores).mean(axis=0)
            ),
            p_single=tested[number][2],
            p_value=corrected[number],
            count=np.atleast_2d(pair.first_scores).shape[1],
            unit=unit,
            seeds=np.atleast_2d(pair.first_scores).shape[0],
            folds=pair.folds,
        )
        for number, pair in enumerate(pairs)
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


def difference_variances(
    differences: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far mean differences would move with other seeds, and with other classes, as variances.

    Args:
        differences: Two or more seeds by classes by pairs.
        weights: Of the classes; their sum is 1.

    Returns:
        Two numbers for each pair: one over n times as many seeds falls to its nth part, the other with classes.
    """
    seeds, classes, _ = differences.shape
    means = weights @ differences.mean(axis=0)
    of_seeds = ((weights @ differences - means) ** 2).sum(axis=0) / (seeds * (seeds - 1))
    of_classes = np.zeros_like(means)
    if classes > 1:
        deviations = weights[:, None] * (differences.mean(axis=0) - means)
        of_classes = (deviations**2).sum(axis=0) * classes / (classes - 1)
    return of_seeds, of_classes


def _check(pair: AlignedPair) -> None:
    one, other = (np.atleast_2d(scores) for scores in (pair.first_scores, pair.second_scores))
    if one.shape != other.shape or one.ndim != 2 or 0 in one.shape:
        raise InputError(
            f"{pair.first} and {pair.second} need scores of the same seeds and classes (seeds, classes); got "
            f"{one.shape} and {other.shape}."
        )
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise InputError(
            f"Some classes have no score of {pair.first} or {pair.second}: leave classes out that only one has scored."
        )


def _tested(
    pairs: Sequence[AlignedPair], draws: int, confidence: float, seed: int
) -> list[tuple[float, Interval, float]]:
    """The difference, its interval and its p of each of several pairs with the same seeds, classes and queries."""
    differences = np.stack(
        [np.atleast_2d(pair.first_scores) - np.atleast_2d(pair.second_scores) for pair in pairs], axis=-1
    )  # seeds, classes, pairs
    seeds, classes, _ = differences.shape
    given = pairs[0].queries
    counts = np.ones(classes, dtype=np.int64) if given is None else np.asarray(given, dtype=np.int64)
    weights = counts / counts.sum()
    means = weights @ differences.mean(axis=0)
    if seeds == 1:
        p_single = sign_flip(weights[:, None] * differences[0], draws=draws, seed=seed)
        intervals = class_bootstrap(
            differences[0] * counts[:, None], counts, draws=min(draws, 5000), confidence=confidence, seed=seed
        )
    else:
        p_single, intervals = _two_way(differences, weights, means, confidence)
    return list(zip(means.tolist(), intervals, p_single.tolist(), strict=True))


def _two_way(
    differences: NDArray[np.float64], weights: NDArray[np.float64], means: NDArray[np.float64], confidence: float
) -> tuple[NDArray[np.float64], list[Interval]]:
    """p-values and intervals of mean differences that vary over seeds and classes."""
    from scipy import stats  # slow to import

    seeds, classes, _ = differences.shape
    of_seeds, of_classes = difference_variances(differences, weights)
    variance = of_seeds + of_classes
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = variance**2 / (of_seeds**2 / (seeds - 1) + of_classes**2 / max(1, classes - 1))
        ratio = means / np.sqrt(variance)
    # Without any variation, a difference is certain and its absence too.
    degrees, ratio = np.nan_to_num(degrees, nan=1.0), np.where(means == 0, 0.0, ratio)
    reach = stats.t.ppf((1 + confidence) / 2, degrees) * np.sqrt(variance)
    ends = zip((means - reach).tolist(), (means + reach).tolist(), strict=True)
    return 2 * stats.t.sf(np.abs(ratio), degrees), [Interval(low, high) for low, high in ends]
