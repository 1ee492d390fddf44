"""What training gained over the untrained network: the first question of a practitioner, answered with an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from vicinal._util.text import fraction
from vicinal.leaderboard.entry import Entry, shared_scores
from vicinal.stats import AlignedPair, PairTest, compare_aligned
from vicinal.stats.verdicts import LEVEL, too_few

__all__ = ["CHANCE", "UNTRAINED", "Gain", "gain_of", "reduced", "usable"]

CHANCE, UNTRAINED = "chance", "untrained"  # what tables call baselines
FIRST = "P@1"  # what the first neighbour is worth, whatever a comparison is scored by

ANSWERS = {
    "yes": "Training was worth it",
    "no": "Training was not worth it",
    "unknown": "Whether training was worth it cannot be told",
    "divided": "Whether training was worth it is open, since validation and test classes disagree",
}


def reduced(dim: int) -> str:
    """What tables call the untrained network with its features reduced to so many numbers."""
    return f"{UNTRAINED}, PCA to {dim}"


def usable(baseline: Entry) -> bool:
    """Whether a baseline is an embedder that can be used, which chance is not."""
    return baseline.name != CHANCE


@final
@dataclass(frozen=True, eq=False)
class Gain:
    """How much better a trained method is than the untrained network, on the seeds, folds and classes that both have.

    Attributes:
        trained: The method.
        baseline: The untrained network, or what its principal axes make of it.
        score: What was compared.
        trained_score: Of the method.
        baseline_score: Of the untrained network.
        test: Of the difference; None where the two share no seed, fold or two scored classes.
        first: The same for the first neighbour (P@1), where it is another score and known.
        validated: Which of the two the validation classes prefer; None where they do not choose.
    """

    trained: Entry
    baseline: Entry
    score: str
    trained_score: float
    baseline_score: float
    test: PairTest | None
    first: PairTest | None = None
    validated: Entry | None = None

    def __str__(self) -> str:
        return self.sentence()

    @property
    def answer(self) -> Literal["yes", "no", "unknown", "divided"]:
        """Whether training was worth it: "yes" needs a proof, and "no" none, since the untrained network is free.

        Both need the validation classes too, which choose the model to use: a reader who is told to use a trained
        network must not be told that training was not worth it.
        """
        if self.test is None:
            return "unknown"
        if self.validated is not None and self.validated is not (
            self.trained if self.test.difference > 0 else self.baseline
        ):
            return "divided"
        if self.test.difference <= 0:
            return "no"
        return "yes" if self.test.p_value < LEVEL else "unknown"

    def sentence(self, number: Callable[..., str] = fraction, unit: str = "") -> str:
        """Say it, with the difference and its interval.

        Args:
            number: How shares are written.
            unit: What stands behind a score.
        """
        one, other = self.trained.name, _network_in_words(self.baseline)
        if self.test is None:
            return f"{ANSWERS['unknown']}: {one} and {other} share no seed, fold or scored classes."
        found = self.test
        said = (
            f"{ANSWERS[self.answer]}: {self.score} {number(self.trained_score)}{unit} of {one} against "
            f"{number(self.baseline_score)}{unit} of {other}, {number(found.difference, sign=True)} "
            f"({_interval(found, number)}, over {found.basis})."
        )
        few = too_few({one: found}, 1, LEVEL) if self.answer == "unknown" else ""
        if self.answer == "divided":
            few = f"The validation classes prefer {one if self.validated is self.trained else other}."
        return " ".join(text for text in (said, few, self._otherwise(number)) if text)

    def _otherwise(self, number: Callable[..., str]) -> str:
        """Say where the first neighbour tells another story."""
        found = self.first
        if self.test is None or found is None or found.p_value >= LEVEL or found.difference * self.test.difference >= 0:
            return ""
        which = "better" if found.difference > 0 else "worse"
        shown = f"{number(found.difference, sign=True)} ({_interval(found, number)})"
        return f"By {FIRST} it is {which} than the untrained network: {shown}."


def gain_of(trained: Entry, baseline: Entry, score: str, validated: Entry | None = None) -> Gain:
    """Compare a method with a baseline, class by class and seed by seed, as any two methods are compared."""
    found = _tested(trained, baseline, score)
    if found is None:
        return Gain(trained, baseline, score, trained.mean(score), baseline.mean(score), None)
    test, scores = found
    beside = None if score == FIRST else _tested(trained, baseline, FIRST)
    return Gain(trained, baseline, score, *scores, test, None if beside is None else beside[0], validated)


def _tested(trained: Entry, baseline: Entry, score: str) -> tuple[PairTest, tuple[float, float]] | None:
    shared = shared_scores([trained, baseline], score)
    if shared is None:
        return None
    first, second = shared.values
    pair = AlignedPair(trained.name, baseline.name, first, second, shared.queries, shared.folds)
    mine, theirs = (float(np.average(values.mean(axis=0), weights=shared.queries)) for values in shared.values)
    return compare_aligned([pair])[0], (mine, theirs)


def _interval(test: PairTest, number: Callable[..., str]) -> str:
    low, high = (number(end, sign=True) for end in test.interval)
    return f"95 % interval {low} to {high}"


def _network_in_words(baseline: Entry) -> str:
    _, dim = baseline.network
    return f"the untrained network ({'all of its features' if dim is None else f'PCA to {dim}-D'})"
