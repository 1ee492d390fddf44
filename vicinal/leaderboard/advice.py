"""Advice on a leaderboard: which run to use, and what would make the result more certain."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from vicinal._util.text import counted, duration, fraction, listed, percent
from vicinal.leaderboard.effort import ended_by, risers
from vicinal.leaderboard.entry import Entry, shared_scores
from vicinal.leaderboard.text import best_in_words
from vicinal.runs.record import Record
from vicinal.stats import PairTest, Verdict
from vicinal.stats.pair_tests import difference_variances
from vicinal.stats.verdicts import LEVEL

if TYPE_CHECKING:
    from vicinal.leaderboard.leaderboard import Leaderboard

__all__ = ["Advice", "Need", "NextStep", "advise", "next_step"]

MANY_SEEDS, MANY_CLASSES = 12, 5  # most seeds, and most times the classes, worth suggesting
SEEDS = 3  # fewest seeds that show the variance over seeds

Need = Literal["repair", "methods", "classes", "budget", "validation", "conditions", "seeds", "choice", "nothing"]


class Advice(NamedTuple):
    """A piece of advice.

    Attributes:
        about: Topic in two words, or the question that it answers.
        text: Advice in a sentence or two.
        command: Command to run, empty if there is none.
    """

    about: str
    text: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.about}{'' if self.about.endswith('?') else ':'} {self.text}"


class NextStep(NamedTuple):
    """The step that would most increase the certainty of a comparison.

    Attributes:
        need: Kind of evidence that is missing; "choice" if two methods are level, "nothing" if the result is settled.
        text: Reason, and how to get the missing evidence.
    """

    need: Need
    text: str


def advise(board: Leaderboard, number: Callable[..., str] = fraction, unit: str = "") -> list[Advice]:
    """Return which run to use, whether training was worth it and what to do next; empty if no run has finished.

    Args:
        board: Leaderboard to advise on.
        number: Function that formats a score.
        unit: Unit to print after a score.
    """
    if not board.entries:
        return []
    worth = [] if board.gain is None else [Advice("Worth it?", board.gain.sentence(number, unit))]
    return [Advice("To use", best_in_words(board), _command(board)), *worth, Advice("Next", next_step(board).text)]


def next_step(board: Leaderboard) -> NextStep:
    """Return what the comparison needs most. Each check here undermines the conclusions of those after it."""
    entries, verdict = board.of_network(), board.verdict()
    if board.failed:
        failed = counted(len(board.failed), "run")
        return NextStep("repair", f"mend what failed ({failed}) and give the same command with --retry-failed.")
    if verdict is None:
        return NextStep("methods", f"compare it with other ways: {entries[0].name} is the only one here.")
    tests = {test.second: test for test in board.pairs() if test.first == verdict.winner}
    if tests and all(_beyond_proof(test, len(board.pairs())) for test in tests.values()):
        few = counted(max(test.count for test in tests.values()), "test class")
        text = f"more test classes. With {few} even a way that is better on every one of them may be so by luck."
        return NextStep("classes", text)
    rising = [entry.name for entry, _ in risers(board)]
    if rising:
        budget = _twice([record for entry in entries for record in entry.records])
        text = f"more budget. The validation scores of {listed(rising)} were still rising at the end, and more may "
        return NextStep("budget", f"{text}change the order: compare again with --budget {budget} and another --out.")
    if board.gain is not None and board.gain.answer == "divided":
        text = "more classes to choose by. Validation and test classes disagree about the untrained network: compare "
        return NextStep(
            "validation", f"{text}again with a larger --validation, or with more classes and --seeds {SEEDS}."
        )
    if board.gain is not None and board.gain.answer == "no":
        text = "other conditions. No way here beats the untrained network, so which is best matters little: try "
        frozen = any(record.recipe.get("freeze") is True for entry in entries for record in entry.records)
        other = "a network that is not frozen" if frozen else "another network, or a pretrained one with --freeze"
        return NextStep("conditions", f"{text}more budget, more training classes, or {other}.")
    if any(test.seeds == 1 and test.unit == "class" for test in tests.values()):
        text = "more seeds. One run of each way compares these models and not the ways: give the same command with "
        return NextStep("seeds", f"{text}--seeds {SEEDS}, and only what is missing will run.")
    return _settled(verdict, tests) if verdict.significant else _undecided(board, verdict, tests)


def _twice(records: Sequence[Record]) -> str:
    """Return twice the budget of the runs, in the format of --budget."""
    limits = [record.recipe["training"].get("seconds") for record in records if ended_by(record) == "time"]
    return f"{2 * max(limits):g}s" if limits else str(2 * max(record.steps for record in records))


def _beyond_proof(test: PairTest, pairs: int) -> bool:
    """Whether p would stay above the significance level even if all classes had the same sign."""
    return test.seeds == 1 and pairs * 2.0 ** (1 - test.count) >= LEVEL


def _settled(verdict: Verdict, tests: dict[str, PairTest]) -> NextStep:
    rival, test = min(tests.items(), key=lambda item: item[1].difference)
    low, high = (percent(end, 1, sign=True) for end in test.interval)
    lead = f"{percent(test.difference, 1)} points ({low} to {high})"
    text = f"nothing, it is settled: over {test.basis} {verdict.winner} is ahead of every rival, of {rival} by {lead}."
    return NextStep("nothing", text)


def _undecided(board: Leaderboard, verdict: Verdict, tests: dict[str, PairTest]) -> NextStep:
    """Say how many seeds or classes would separate the winner from its closest rival, or that it takes too many."""
    entries = {entry.name: entry for entry in board.of_network()}
    winner, rival = entries[verdict.winner], entries[verdict.undecided[0]]
    test = tests.get(rival.name)
    if test is None:
        text = f"the runs that are missing: {winner.name} and {rival.name} share no seed, fold or scored class."
        return NextStep("seeds", text)
    seeds, classes = _needed([winner, rival], test, board.score)
    apart = f"will tell {winner.name} from {rival.name} if the lead of {percent(test.difference, 1)} points stays"
    if seeds is not None:
        text = (
            f"more seeds. About {seeds} (there are {test.seeds}) {apart}: give the same command with --seeds {seeds}, "
        )
        return NextStep("seeds", f"{text}and only what is missing will run.")
    if classes is not None:
        text = f"more test classes. About {classes} (there are {test.count}) {apart}."
        return NextStep("classes", text)
    low, high = (percent(end, 1, sign=True) for end in test.interval)
    quick = min((winner, rival), key=lambda entry: entry.seconds)
    text = f"choose. {winner.name} and {rival.name} are level ({low} to {high} points over {test.basis}), and neither "
    text += f"seeds nor classes would soon part them; {quick.name} is trained faster, in {duration(quick.seconds)}."
    return NextStep("choice", text)


def _needed(entries: Sequence[Entry], test: PairTest, score: str) -> tuple[int | None, int | None]:
    """Return how many seeds, or how many classes, would make the current lead significant; None if too many."""
    from scipy import stats  # slow to import

    shared = shared_scores(entries, score)
    assert shared is not None  # otherwise there would be no test
    weights = shared.queries / shared.queries.sum()
    parts = difference_variances((shared.values[0] - shared.values[1])[..., None], weights)
    of_seeds, of_classes = (float(part[0]) for part in parts)
    corrected = max(1.0, test.p_value / test.p_single) if test.p_single > 0 else 1.0

    def enough(seeds: int, classes: int) -> bool:
        first, second = of_seeds * test.seeds / seeds, of_classes * test.count / classes
        if not first + second:
            return test.difference > 0
        degrees = (first + second) ** 2 / (first**2 / (seeds - 1) + second**2 / max(1, classes - 1))
        return bool(2 * corrected * stats.t.sf(test.difference / math.sqrt(first + second), degrees) < LEVEL)

    more_seeds = range(test.seeds + 1, MANY_SEEDS + 1)
    more_classes = (round(test.count * factor / 10) for factor in range(11, 10 * MANY_CLASSES + 1))
    return (
        next((count for count in more_seeds if enough(count, test.count)), None),
        next((count for count in more_classes if enough(test.seeds, count)), None),
    )


def _command(board: Leaderboard) -> str:
    """Return the command that uses the best model, if the comparison has saved it."""
    if board.best_folder is None:
        return ""
    words = ["vicinal", "embed", str(board.best_folder), board.first.dataset or "PHOTOS", "--out", "embeddings.npz"]
    return shlex.join(words)
