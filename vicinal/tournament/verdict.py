"""Which method wins, how sure that is, and what cannot be concluded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.errors import InputError
from vicinal.tournament.nemenyi import experiments_needed
from vicinal.tournament.pair_tests import PairTest
from vicinal.tournament.ranking import Tournament

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
        >>> from vicinal.tournament import compare_pairs
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
    count = len(found.experiments)
    needed = experiments_needed(len(found.methods), found.level)
    caveats = []
    if count < needed:
        caveats.append(
            f"With {len(found.methods)} methods, ranks can tell two of them apart only from {needed} experiments on; "
            f"there {'is' if count == 1 else 'are'} {count}."
        )
    elif not found.significant and found.friedman is not None:
        caveats.append(f"Friedman's test finds no difference at all (p = {found.friedman.p_value:.2g}).")
    caveats += [f"Of what was given, {note}" for note in found.notes]
    return _outcome(winner, others, beaten, f"by mean rank over {_counted(count, 'experiment')}", caveats)


def _of_pairs(tests: Sequence[PairTest], level: float) -> Verdict:
    if not tests:
        raise InputError("A verdict needs at least one tested pair, got none.")
    winner = tests[0].first
    rivals = [test for test in tests if test.first == winner]
    beaten = [test.second for test in rivals if test.p_value < level]
    classes, seeds = tests[0].classes, tests[0].seeds
    caveats = []
    if seeds == 1:
        least = len(tests) * 2.0 ** (1 - classes)
        if least >= level:
            caveats.append(
                f"With {_counted(classes, 'class', 'classes')} and {_counted(len(tests), 'pair')}, p cannot fall below "
                f"{min(1.0, least):.2g}: more classes are needed to conclude anything."
            )
        caveats.append("One run of each method compares these models; only several seeds compare the methods.")
    over = f"over {_counted(classes, 'class', 'classes')}" + (f" and {seeds} seeds" if seeds > 1 else "")
    return _outcome(winner, [test.second for test in rivals], beaten, over, caveats)


def _outcome(winner: str, others: list[str], beaten: list[str], over: str, caveats: list[str]) -> Verdict:
    undecided = [method for method in others if method not in beaten]
    if not undecided:
        sentence = f"{winner} wins: {over} it is significantly better than {_listed(others, 'all of ')}."
    elif beaten:
        sentence = (
            f"{winner} comes first: {over} it is significantly better than {_listed(beaten)}, "
            f"but cannot be told from {_listed(undecided)}."
        )
    else:
        sentence = f"{winner} comes first, but {over} it cannot be told from {_listed(undecided)}: there is no winner."
    return Verdict(winner, not undecided, tuple(beaten), tuple(undecided), sentence, tuple(caveats))


def _listed(names: list[str], several: str = "") -> str:
    return names[0] if len(names) == 1 else f"{several}{', '.join(names[:-1])} and {names[-1]}"


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
