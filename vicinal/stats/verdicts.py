"""Verdicts: which method wins, how certain that is, and what cannot be concluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vicinal._util.text import counted, listed, p_text
from vicinal.errors import InputError
from vicinal.stats.intervals import class_variance, effective_degrees
from vicinal.stats.pair_tests import PairTest, class_scores
from vicinal.stats.ranks import Tournament, experiments_needed

__all__ = ["Verdict", "probability_of_best", "too_few", "verdict"]


# Probability that each method is the best.

PRIOR = 0.5  # exponent of the prior of the share of noise in the differences between methods


def probability_of_best(
    per_class: Mapping[str, NDArray[np.float64]],
    *,
    queries: NDArray[np.int64] | None = None,
    draws: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """Return the probability that each method would have the highest mean over all classes and seeds.

    Needs at least two seeds: one run of each method does not show how much training varies.

    Formula:
        A hierarchical model of the means m of M methods, with noise over classes and over seeds as in `spreads` (the
        variance over seeds is that of all methods), both with Student's tails. The true means differ by chance, too:
        noise has the share B of the variance of m, and m - mean(m) is drawn towards 0 by that share. The prior of B is
        proportional to B^(-1/2) on (0, 1), so methods that are level are not declared best by luck.

    Args:
        per_class: Method -> scores, seeds by classes; all methods have the same seeds and classes.
        queries: Number of queries of each class, to weight classes as the mean over queries does; by default all
            classes have the same weight.
        draws: Number of draws from the model.
        seed: Seed of the draws.

    Returns:
        Method -> probability, the method with the highest mean first. The probabilities sum to 1.

    Example:
        >>> poor = np.array([[0.1, 0.2, 0.3], [0.1, 0.3, 0.3], [0.2, 0.2, 0.3]])
        >>> found = probability_of_best({"poor": poor, "good": poor + 0.2})
        >>> list(found), found["good"] > 0.99
        (['good', 'poor'], True)
    """
    if draws < 1:
        raise InputError(f"There must be at least 1 draw, got {draws}.")
    methods, values, weights = class_scores(per_class, queries)
    count, seeds, classes = values.shape
    if seeds < 2:
        raise InputError(
            "The probability of being best needs at least 2 seeds, got 1: one run of each method does not show how "
            "much training varies."
        )
    values = values - values.mean(axis=0)  # only differences between methods matter
    leads = values.mean(axis=1) @ weights
    of_seeds, covariance = _noise(values, weights)
    seed_degrees = (count - 1) * (seeds - 1)
    class_degrees = effective_degrees(weights) if classes > 1 else 1.0
    generator = np.random.default_rng(seed)
    seed_scale = seed_degrees / generator.chisquare(seed_degrees, (draws, 1))
    class_scale = class_degrees / generator.chisquare(class_degrees, (draws, 1))
    kept, share = _shrinkage(leads, of_seeds * seed_scale + class_scale * np.trace(covariance) / (count - 1), generator)
    variances, directions = np.linalg.eigh(covariance)
    by_classes = generator.standard_normal((draws, count)) @ (directions * np.sqrt(np.maximum(0, variances))).T
    by_seeds = generator.standard_normal((draws, count)) * np.sqrt(of_seeds)
    drawn = kept * leads + np.sqrt(class_scale) * by_classes + np.sqrt(seed_scale) * by_seeds
    best = np.isclose(drawn, drawn.max(axis=1, keepdims=True), rtol=1e-12, atol=ROUNDING)
    shares = share @ (best / best.sum(axis=1, keepdims=True))
    return dict(zip(methods, shares.tolist(), strict=True))


def _noise(values: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Return the variance of a mean over seeds, and the covariance of the means of methods over classes.

    Args:
        values: Scores without the mean of all methods, methods by seeds by classes.
        weights: Weights of the classes, with sum 1.
    """
    count, seeds, classes = values.shape
    means = values.mean(axis=1)
    degrees = (count - 1) * (seeds - 1)
    of_seeds = float(((values @ weights - (means @ weights)[:, None]) ** 2).sum()) / (degrees * seeds)
    cells = class_variance(np.moveaxis(values - means[:, None], 2, 0), weights).sum() / (degrees * seeds)
    deviations = weights * (means - (means @ weights)[:, None])
    covariance = deviations @ deviations.T * classes / max(1, classes - 1)
    of_classes = np.trace(covariance) / (count - 1)
    return of_seeds, covariance * (max(0.0, 1 - cells / of_classes) if of_classes else 0.0)


def _shrinkage(
    leads: NDArray[np.float64], noise: NDArray[np.float64], generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw how much of the leads is kept, in units of the noise, and return the weight of each draw of the noise.

    The leads kept are (1 - B) m with noise sqrt(1 - B); dividing both by sqrt(1 - B) does not change the order.
    """
    from scipy import special  # slow to import

    squares = float((leads**2).sum())
    if not squares or not noise.max():
        return np.ones_like(noise), np.full(len(noise), 1 / len(noise))
    shape = (len(leads) - 1) / 2 + PRIOR
    limit = np.maximum(1e-6, squares / (2 * np.maximum(noise, squares * 1e-12)))
    mass = special.gammainc(shape, limit)
    share_of_noise = special.gammaincinv(shape, generator.random(noise.shape) * mass) / limit
    weights = (mass * noise**PRIOR)[:, 0]  # the likelihood of the leads for this noise, integrated over B
    return np.sqrt(np.maximum(0, 1 - share_of_noise)), weights / weights.sum()


LEVEL = 0.05  # a smaller p-value is significant
ROUNDING = 1e-12  # rounding error of the mean difference of equal scores


@dataclass(frozen=True)
class Verdict:
    """Outcome of a comparison.

    Args:
        winner: Method with the best mean rank, or the highest mean over all of its scores.
        significant: Whether it is significantly better than every other method.
        beaten: Methods that it is significantly better than.
        undecided: Methods that it does not differ from significantly, or shares no scores with.
        sentence: The outcome in words.
        caveats: Limitations that the reader should know about, one sentence each.
    """

    winner: str
    significant: bool
    beaten: tuple[str, ...]
    undecided: tuple[str, ...]
    sentence: str
    caveats: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.sentence, *self.caveats])


def verdict(
    evidence: Tournament | Sequence[PairTest], *, level: float = LEVEL, methods: Sequence[str] | None = None
) -> Verdict:
    """State which method wins, and which others it is significantly better than.

    Args:
        evidence: Tournament over several experiments, decided by mean ranks; or tests of pairs on the classes of one
            experiment, as `compare_pairs` and `compare_aligned` return them, decided by mean scores.
        level: Significance level; a tournament has its own.
        methods: All methods, the one with the highest mean first, if not every pair could be tested; by default those
            of the tests.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> poor = rng.random(40)
        >>> from vicinal.stats import compare_pairs
        >>> verdict(compare_pairs({"good": poor + 0.1 * rng.random(40), "poor": poor})).sentence
        'good wins: over 40 classes and 1 seed it is significantly better than poor.'
    """
    if isinstance(evidence, Tournament):
        return _of_ranks(evidence)
    if methods is None:
        methods = list(dict.fromkeys(name for test in evidence for name in (test.first, test.second)))
    if len(methods) < 2:
        raise InputError(f"A verdict needs at least one tested pair, got {len(evidence)}.")
    return _of_pairs(evidence, methods, level)


def _of_ranks(ranked: Tournament) -> Verdict:
    winner, *others = ranked.methods
    ranks = ranked.mean_ranks
    beaten = [
        method
        for method in others
        if ranked.significant and ranks[method] - ranks[winner] >= ranked.critical_difference
    ]
    experiments = counted(len(ranked.experiments), "experiment")
    needed = experiments_needed(len(ranked.methods), ranked.level)
    caveats = []
    if len(ranked.experiments) < needed:
        caveats.append(
            f"Ranks of {len(ranked.methods)} methods cannot show a significant difference with {experiments}; at least "
            f"{needed} are needed."
        )
    elif not ranked.significant and ranked.friedman is not None:
        caveats.append(f"Friedman's test finds no significant difference ({p_text(ranked.friedman.p_value)}).")
    caveats += [f"Note: {note}" for note in ranked.notes]
    return _outcome(winner, others, beaten, f"by mean rank over {experiments}", caveats)


def _of_pairs(tests: Sequence[PairTest], methods: Sequence[str], level: float) -> Verdict:
    winner, *others = methods
    rivals = {test.second: test for test in tests if test.first == winner}
    beaten = [name for name, test in rivals.items() if test.difference > 0 and test.p_value < level]
    caveats = [too_few(rivals, len(tests), level), _one_seed(rivals)]
    caveats += [
        f"On the {test.basis} that both have, {name} is ahead of {winner}."
        for name, test in rivals.items()
        if test.difference < -ROUNDING
    ]
    apart = [name for name in others if name not in rivals]
    if apart:
        caveats.append(f"{winner} was not compared with {listed(apart)}: they share no seed, fold or scored class.")
    bases = {test.basis for test in rivals.values()}
    labels = {name: f"{name} ({test.basis})" if len(bases) > 1 else name for name, test in rivals.items()}
    over = f"over {next(iter(bases))}" if len(bases) == 1 else ""
    return _outcome(winner, others, beaten, over, [text for text in caveats if text], labels)


def too_few(rivals: Mapping[str, PairTest], pairs: int, level: float) -> str:
    """Return a caveat if there are so few classes that no difference could be significant, else an empty string."""
    least = {
        name: pairs * 2.0 ** (1 - test.count)  # the smallest p: all signs equal, corrected for the number of pairs
        for name, test in rivals.items()
        if test.seeds == 1
    }
    timid = [name for name, p_value in least.items() if p_value >= level]
    if not timid:
        return ""
    about = "" if len(timid) == len(rivals) else f" of {listed(timid)}"
    fewest = rivals[timid[0]]
    return (
        f"With {counted(fewest.count, fewest.unit)} and {counted(pairs, 'pair')} to test, p cannot fall below "
        f"{min(1.0, least[timid[0]]):.2g}: nothing can be concluded{about}."
    )


def _one_seed(rivals: Mapping[str, PairTest]) -> str:
    """Return a caveat if single models were compared rather than methods, else an empty string."""
    single = [name for name, test in rivals.items() if test.seeds == 1 and test.unit == "class"]
    if not single:
        return ""
    if len(single) < len(rivals):
        return f"One seed compares models, not methods; the comparison with {listed(single)} needs several seeds."
    return "One run of each method compares these models, not the methods; that needs several seeds."


def _outcome(
    winner: str,
    others: Sequence[str],
    beaten: Sequence[str],
    over: str,
    caveats: list[str],
    labels: Mapping[str, str] | None = None,
) -> Verdict:
    """Put the outcome in words; `labels` maps methods to what the sentence calls them."""
    undecided = [method for method in others if method not in beaten]
    names = labels or {}
    lost, close = (listed([names.get(method, method) for method in which]) for which in (beaten, undecided))
    where = f"{over} " if over else ""
    if not undecided:
        sentence = f"{winner} wins: {where}it is significantly better than {lost}."
    elif beaten:
        sentence = f"{winner} comes first: {where}it is significantly better than {lost}, but not than {close}."
    else:
        sentence = f"{winner} comes first, but {where}it is not significantly better than {close}: there is no winner."
    return Verdict(winner, not undecided, tuple(beaten), tuple(undecided), sentence, tuple(caveats))
