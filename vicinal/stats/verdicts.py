"""Verdicts: which method wins, how certain that is, and what cannot be concluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vicinal._util.text import counted, listed, p_text
from vicinal.errors import InputError
from vicinal.stats.intervals import times_drawn
from vicinal.stats.pair_tests import PairTest, class_scores
from vicinal.stats.ranks import Tournament, experiments_needed

__all__ = ["Verdict", "probability_of_best", "too_few", "verdict"]


# Probability that each method is the best.

DRAWS_AT_ONCE = 2**21  # drawn classes in memory at a time


def probability_of_best(
    per_class: Mapping[str, NDArray[np.float64]],
    *,
    queries: NDArray[np.int64] | None = None,
    draws: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """Return the share of resamples of classes and seeds in which each method has the highest mean; ties share.

    With one seed only classes are drawn. Two or three seeds are too few to represent other seeds: read the result as a
    description of these runs, and use `compare_pairs` for a test.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes.
        queries: Number of queries of each class, to weight classes as the mean over queries does; by default all
            classes have the same weight.
        draws: Number of resamples.
        seed: Seed of the draws.

    Returns:
        Method -> share, the method with the highest mean first. The shares sum to 1.

    Example:
        >>> probability_of_best({"poor": np.array([0.1, 0.2, 0.3]), "good": np.array([0.2, 0.3, 0.4])})
        {'good': 1.0, 'poor': 0.0}
    """
    if draws < 1:
        raise InputError(f"There must be at least 1 draw, got {draws}.")
    methods, values, weights = class_scores(per_class, queries)
    _, seeds, classes = values.shape
    generator = np.random.default_rng(seed)
    shares = np.zeros(len(methods))
    block = max(1, DRAWS_AT_ONCE // classes)
    for start in range(0, draws, block):
        count = min(block, draws - start)
        drawn_classes = times_drawn(generator, count, classes) * weights
        drawn_seeds = times_drawn(generator, count, seeds)
        totals = np.einsum("ds,dsm->dm", drawn_seeds, np.einsum("dc,msc->dsm", drawn_classes, values, optimize=True))
        # Within a draw all methods would be divided by the same sum of weights, which does not change their order.
        best = np.isclose(totals, totals.max(axis=1, keepdims=True), rtol=1e-12, atol=0)
        shares += (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    return dict(zip(methods, (shares / draws).tolist(), strict=True))


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
        every = "all of " if len(others) > 1 else ""
        sentence = f"{winner} wins: {where}it is significantly better than {every}{lost}."
    elif beaten:
        sentence = f"{winner} comes first: {where}it is significantly better than {lost}, but not than {close}."
    else:
        sentence = f"{winner} comes first, but {where}it is not significantly better than {close}: there is no winner."
    return Verdict(winner, not undecided, tuple(beaten), tuple(undecided), sentence, tuple(caveats))
