"""Which method wins, how sure that is, and what cannot be concluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vicinal.errors import InputError
from vicinal.phrasing import counted, listed, p_text
from vicinal.statistics.nemenyi import experiments_needed
from vicinal.statistics.pair_tests import PairTest
from vicinal.statistics.ranking import Tournament

__all__ = ["Verdict", "too_few", "verdict"]

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
        >>> from vicinal.statistics import compare_pairs
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
