"""Which method wins, how sure that is, and what cannot be concluded."""

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


# How probable it is that each method is the best.

DRAWS_AT_ONCE = 2**21  # drawn classes at once


def probability_of_best(
    per_class: Mapping[str, NDArray[np.float64]],
    *,
    queries: NDArray[np.int64] | None = None,
    draws: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """In how many resamples of classes and seeds each method has the highest mean; equals share.

    With one seed only classes are drawn. With two or three, drawing them says too little of what other seeds would
    do: read the result as a picture of the data at hand, and `compare_pairs` for a test.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes.
        queries: How many each class has, to weigh classes as the mean over queries does; without it all are equal.
        draws: Resamples.
        seed: Of the draws.

    Returns:
        Method -> share, the method with the highest mean first; the shares sum to 1.

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
        # Every method of a draw is divided by the same sum of weights, which the order does not see.
        best = np.isclose(totals, totals.max(axis=1, keepdims=True), rtol=1e-12, atol=0)
        shares += (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    return dict(zip(methods, (shares / draws).tolist(), strict=True))


LEVEL = 0.05  # below which a p-value is significant
ROUNDING = 1e-12  # of the mean of differences of equal scores


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Args:
        winner: The method with the best mean rank, or the highest mean over all that it has scored.
        significant: Whether it is better than every other method.
        beaten: The methods it is significantly better than.
        undecided: The methods it cannot be told from on what both have scored, or has nothing in common with.
        sentence: The same in words.
        caveats: What a reader should know before believing it.
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
    """Say which method wins, against whom significantly, and against whom not.

    Args:
        evidence: A tournament over several experiments, decided by mean ranks; or the tests of pairs on the classes of
            one experiment, as `compare_pairs` and `compare_aligned` return them, decided by mean scores.
        level: Below which a p-value is significant; a tournament brings its own.
        methods: All methods, the one with the highest mean first, where not every pair could be tested; by default
            those of the tests.

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


def _of_ranks(found: Tournament) -> Verdict:
    winner, *others = found.methods
    ranks = found.mean_ranks
    beaten = [
        method for method in others if found.significant and ranks[method] - ranks[winner] >= found.critical_difference
    ]
    experiments = counted(len(found.experiments), "experiment")
    needed = experiments_needed(len(found.methods), found.level)
    caveats = []
    if len(found.experiments) < needed:
        caveats.append(
            f"Ranks of {len(found.methods)} methods can tell two of them apart from {needed} experiments on, and not "
            f"with {experiments}."
        )
    elif not found.significant and found.friedman is not None:
        caveats.append(f"Friedman's test finds no difference at all ({p_text(found.friedman.p_value)}).")
    caveats += [f"Of what was given, {note}" for note in found.notes]
    return _outcome(winner, others, beaten, f"by mean rank over {experiments}", caveats)


def _of_pairs(tests: Sequence[PairTest], methods: Sequence[str], level: float) -> Verdict:
    winner, *others = methods
    rivals = {test.second: test for test in tests if test.first == winner}
    beaten = [name for name, test in rivals.items() if test.difference > 0 and test.p_value < level]
    caveats = [too_few(rivals, len(tests), level), _one_seed(rivals)]
    caveats += [
        f"On the {test.basis} that they share, {name} is ahead of {winner}."
        for name, test in rivals.items()
        if test.difference < -ROUNDING
    ]
    apart = [name for name in others if name not in rivals]
    if apart:
        caveats.append(f"{winner} shares no seed, fold or scored class with {listed(apart)}: they were not compared.")
    bases = {test.basis for test in rivals.values()}
    said = {name: f"{name} ({test.basis})" if len(bases) > 1 else name for name, test in rivals.items()}
    over = f"over {next(iter(bases))}" if len(bases) == 1 else ""
    return _outcome(winner, others, beaten, over, [text for text in caveats if text], said)


def too_few(rivals: Mapping[str, PairTest], pairs: int, level: float) -> str:
    """Say where even a method that is better in every class could not be told from another."""
    least = {
        name: pairs * 2.0 ** (1 - test.count)  # all signs equal, in one of the pairs
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
    """Say where models were compared, and not the methods that made them."""
    single = [name for name, test in rivals.items() if test.seeds == 1 and test.unit == "class"]
    if not single:
        return ""
    if len(single) < len(rivals):
        return f"One seed compares models; only several seeds would compare the method with {listed(single)}."
    return "One run of each method compares these models; only several seeds compare the methods."


def _outcome(
    winner: str,
    others: Sequence[str],
    beaten: Sequence[str],
    over: str,
    caveats: list[str],
    said: Mapping[str, str] | None = None,
) -> Verdict:
    """Put in words whom the winner beats, by `said` what a sentence calls each, and whom not."""
    undecided = [method for method in others if method not in beaten]
    names = said or {}
    lost, close = (listed([names.get(method, method) for method in which]) for which in (beaten, undecided))
    where = f"{over} " if over else ""
    if not undecided:
        every = "all of " if len(others) > 1 else ""
        sentence = f"{winner} wins: {where}it is significantly better than {every}{lost}."
    elif beaten:
        sentence = (
            f"{winner} comes first: {where}it is significantly better than {lost}, but cannot be told from {close}."
        )
    else:
        sentence = f"{winner} comes first, but {where}it cannot be told from {close}: there is no winner."
    return Verdict(winner, not undecided, tuple(beaten), tuple(undecided), sentence, tuple(caveats))
