"""Which method wins, how sure that is, and what cannot be concluded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.errors import InputError
from vicinal.phrasing import counted, listed, p_text
from vicinal.statistics.nemenyi import experiments_needed
from vicinal.statistics.pair_tests import PairTest
from vicinal.statistics.ranking import Tournament

__all__ = ["Verdict", "verdict"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Args:
        winner: The method with the best mean rank, or the highest mean score.
        significant: Whether it is better than every other method.
        beaten: The methods it is significantly better than.
        undecided: The methods it cannot be told from.
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


def verdict(evidence: Tournament | Sequence[PairTest], *, level: float = 0.05) -> Verdict:
    """Say which method wins, against whom significantly, and against whom not.

    Args:
        evidence: A tournament over several experiments, decided by mean ranks; or the tests of all pairs on the classes
            of one experiment, as `compare_pairs` returns them, decided by mean scores.
        level: Below which a p-value is significant; a tournament brings its own.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> poor = rng.random(40)
        >>> from vicinal.statistics import compare_pairs
        >>> verdict(compare_pairs({"good": poor + 0.1 * rng.random(40), "poor": poor})).sentence
        'good wins: over 40 classes it is significantly better than poor.'
    """
    if isinstance(evidence, Tournament):
        return _of_ranks(evidence)
    return _of_pairs(evidence, level)


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


def _of_pairs(tests: Sequence[PairTest], level: float) -> Verdict:
    if not tests:
        raise InputError("A verdict needs at least one tested pair, got none.")
    winner, seeds = tests[0].first, tests[0].seeds
    rivals = [test for test in tests if test.first == winner]
    beaten = [test.second for test in rivals if test.p_value < level]
    over = f"over {counted(tests[0].count, tests[0].unit)}"
    least = len(tests) * 2.0 ** (1 - tests[0].count)  # all signs equal, in one of the pairs
    caveats = []
    if seeds > 1:
        over += f" and {seeds} seeds"
    elif least >= level:
        caveats.append(
            f"With {counted(tests[0].count, tests[0].unit)} and {counted(len(tests), 'pair')} to test, p cannot fall "
            f"below {min(1.0, least):.2g}: nothing can be concluded."
        )
    if seeds == 1 and tests[0].unit == "class":
        caveats.append("One run of each method compares these models; only several seeds compare the methods.")
    return _outcome(winner, [test.second for test in rivals], beaten, over, caveats)


def _outcome(winner: str, others: list[str], beaten: list[str], over: str, caveats: list[str]) -> Verdict:
    undecided = [method for method in others if method not in beaten]
    if not undecided:
        every = "all of " if len(others) > 1 else ""
        sentence = f"{winner} wins: {over} it is significantly better than {every}{listed(others)}."
    elif beaten:
        sentence = (
            f"{winner} comes first: {over} it is significantly better than {listed(beaten)}, "
            f"but cannot be told from {listed(undecided)}."
        )
    else:
        sentence = f"{winner} comes first, but {over} it cannot be told from {listed(undecided)}: there is no winner."
    return Verdict(winner, not undecided, tuple(beaten), tuple(undecided), sentence, tuple(caveats))
