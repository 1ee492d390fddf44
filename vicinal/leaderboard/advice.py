"""Advice on a leaderboard: which model to use, and what would make the result more certain."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from vicinal._util.text import counted, duration, fraction, listed, percent
from vicinal.leaderboard.effort import ended_by, risers
from vicinal.leaderboard.text import best_in_words
from vicinal.runs.record import Record
from vicinal.stats import PairTest, Verdict
from vicinal.stats.pair_tests import Spread
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
        need: Kind of evidence that is missing; "choice" if two methods are too close, "nothing" if all is clear.
        text: Reason, and how to get the missing evidence.
    """

    need: Need
    text: str


def advise(board: Leaderboard, number: Callable[..., str] = fraction, unit: str = "") -> list[Advice]:
    """Return which model to use, whether training helped and what to do next; empty if no run has finished.

    Args:
        board: Leaderboard to advise on.
        number: Function that formats a score.
        unit: Unit to print after a score.
    """
    if not board.entries:
        return []
    worth = [] if board.gain is None else [Advice("Was training worth it?", board.gain.sentence(number, unit))]
    use = Advice("Use this", f"{best_in_words(board)}{_certainty(board)}", _command(board))
    return [use, *worth, Advice("Next", next_step(board).text)]


def _certainty(board: Leaderboard) -> str:
    """Return how often the recommended method is the best one of its network in resamples, as a sentence."""
    best = board.best_entry
    probabilities = board.best_probabilities(best.network) if best.network in board.networks else None
    if probabilities is None or best.name not in probabilities.shares:
        return ""
    share = percent(probabilities.shares[best.name], 0)
    return f" It is the best method in {share} % of resamples of {probabilities.basis}."


def next_step(board: Leaderboard) -> NextStep:
    """Return what the comparison needs most. Each check here undermines the conclusions of those after it."""
    entries, verdict = board.of_network(), board.verdict()
    if board.failed:
        failed = counted(len(board.failed), "run")
        return NextStep(
            "repair", f"fix the cause of the failure ({failed}) and run the same command with --retry-failed."
        )
    if verdict is None:
        return NextStep("methods", f"compare it with other methods; {entries[0].name} is the only one here.")
    tests = {test.second: test for test in board.pairs() if test.first == verdict.winner}
    if tests and all(_beyond_proof(test, len(board.pairs())) for test in tests.values()):
        few = counted(max(test.count for test in tests.values()), "test class")
        text = (
            f"more test classes. With {few}, even a method that is better on every class is not significantly better."
        )
        return NextStep("classes", text)
    rising = [entry.name for entry, _ in risers(board)]
    if rising:
        budget = _twice([record for entry in entries for record in entry.records])
        text = f"a larger budget. Validation scores of {listed(rising)} were still rising at the end, so the order may "
        return NextStep("budget", f"{text}change. Compare again with --budget {budget} and another --out.")
    if board.gain is not None and board.gain.answer == "divided":
        text = "more validation classes. Validation and test classes disagree about the untrained network. Compare "
        return NextStep(
            "validation", f"{text}again with a larger --validation, or with more classes and --seeds {SEEDS}."
        )
    if board.gain is not None and board.gain.answer == "no":
        text = "other conditions. No method here beats the untrained network, so their order matters little. Try "
        frozen = any(record.recipe.get("freeze") is True for entry in entries for record in entry.records)
        other = (
            "training the whole network (without --freeze)" if frozen else "another network, such as a pretrained one"
        )
        return NextStep("conditions", f"{text}more budget, more training classes, or {other}.")
    if any(test.seeds == 1 and test.unit == "class" for test in tests.values()):
        text = "more seeds. One run per method compares these models, not the methods. Run the same command with "
        return NextStep("seeds", f"{text}--seeds {SEEDS}; only the missing runs are trained.")
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
    text = f"nothing, the result is clear. Over {test.basis}, {verdict.winner} leads {rival}, the closest, by {lead}."
    return NextStep("nothing", text)


def _undecided(board: Leaderboard, verdict: Verdict, tests: dict[str, PairTest]) -> NextStep:
    """Say how many seeds or classes would separate the winner from its closest rival, or that it takes too many."""
    entries = {entry.name: entry for entry in board.of_network()}
    winner, rival = entries[verdict.winner], entries[verdict.undecided[0]]
    test = tests.get(rival.name)
    if test is None:
        text = f"the missing runs. {winner.name} and {rival.name} share no seed, fold or scored class."
        return NextStep("seeds", text)
    seeds, classes = _needed(test)
    lead = (
        f"the lead of {winner.name} over {rival.name} significant, if it stays at {percent(test.difference, 1)} points"
    )
    if seeds is not None:
        text = (
            f"more seeds. About {seeds} seeds (now {test.seeds}) would make {lead}. Run the same command with --seeds "
        )
        return NextStep("seeds", f"{text}{seeds}; only the missing runs are trained.")
    if classes is not None:
        text = f"more test classes. About {classes} classes (now {test.count}) would make {lead}."
        return NextStep("classes", text)
    low, high = (percent(end, 1, sign=True) for end in test.interval)
    quick = min((winner, rival), key=lambda entry: entry.seconds)
    text = (
        f"choose either. {winner.name} and {rival.name} are within the noise ({low} to {high} points over "
        f"{test.basis}), and a few more seeds or classes would not change that. {quick.name} trains faster "
        f"({duration(quick.seconds)} per run)."
    )
    return NextStep("choice", text)


def _needed(test: PairTest) -> tuple[int | None, int | None]:
    """Return how many seeds, or how many classes, would make the current lead significant; None if too many."""
    corrected = max(1.0, test.p_value / test.p_single) if test.p_single > 0 else 1.0

    def enough(seeds: int, classes: int) -> bool:
        more = Spread(
            test.spread.of_seeds * test.seeds / seeds,
            test.spread.seed_degrees * (seeds - 1) / (test.seeds - 1),
            test.spread.of_classes * test.count / classes,
            test.spread.class_degrees * classes / test.count,
        )
        return test.difference > more.reach(1 - LEVEL / corrected)

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
