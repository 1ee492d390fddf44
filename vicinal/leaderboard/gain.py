"""Gain of training over the untrained network, with a confidence interval."""

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

CHANCE, UNTRAINED = "chance", "untrained"  # names of the baselines in tables
FIRST = "P@1"  # precision of the first neighbour, reported whatever score a comparison uses

ANSWERS = {
    "yes": "Training helped",
    "no": "Training did not help",
    "unknown": "Unclear whether training helped",
    "divided": "Unclear whether training helped, because validation and test classes disagree",
}


def reduced(dim: int) -> str:
    """Return the name in tables of the untrained network with features reduced to `dim` dimensions."""
    return f"{UNTRAINED}, PCA to {dim}"


def usable(baseline: Entry) -> bool:
    """Whether a baseline is a usable embedder; chance is not."""
    return baseline.name != CHANCE


@final
@dataclass(frozen=True, eq=False)
class Gain:
    """Improvement of a trained method over the untrained network, on the seeds, folds and classes that they share.

    Attributes:
        trained: Trained method.
        baseline: Untrained network, with all of its features or with their principal components.
        score: Name of the score that is compared.
        trained_score: Score of the method.
        baseline_score: Score of the untrained network.
        test: Test of the difference; None if the two share no seed and fold, or fewer than two scored classes.
        first: The same test for the first neighbour (P@1), if that is a different score and available.
        validated: Entry that the validation classes prefer; None if there is no validation.
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
        """Whether training helped. "yes" needs significance; "no" does not, since the untrained network is free.

        Both also need the agreement of the validation classes, which choose the model to use: advice to use a trained
        network must not come with the statement that training did not help.
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
        """Return the answer as a sentence, with the difference and its interval.

        Args:
            number: Function that formats a score.
            unit: Unit to print after a score.
        """
        trained, untrained = self.trained.name, _network_in_words(self.baseline)
        if self.test is None:
            return f"{ANSWERS['unknown']}: {trained} and {untrained} share no seed, fold or scored classes."
        test = self.test
        answer = (
            f"{ANSWERS[self.answer]}: {self.score} is {number(self.trained_score)}{unit} with {trained} and "
            f"{number(self.baseline_score)}{unit} with {untrained}. The difference is "
            f"{number(test.difference, sign=True)} ({_interval(test, number)}, over {test.basis})."
        )
        few = too_few({trained: test}, 1, LEVEL) if self.answer == "unknown" else ""
        if self.answer == "divided":
            few = f"The validation classes prefer {trained if self.validated is self.trained else untrained}."
        return " ".join(text for text in (answer, few, self._otherwise(number)) if text)

    def _otherwise(self, number: Callable[..., str]) -> str:
        """Report if P@1 significantly contradicts the main score."""
        first = self.first
        if self.test is None or first is None or first.p_value >= LEVEL or first.difference * self.test.difference >= 0:
            return ""
        which = "better" if first.difference > 0 else "worse"
        shown = f"{number(first.difference, sign=True)} ({_interval(first, number)})"
        return f"By {FIRST}, {self.trained.name} is {which} than the untrained network: {shown}."


def gain_of(trained: Entry, baseline: Entry, score: str, validated: Entry | None = None) -> Gain:
    """Compare a method with a baseline by class and seed, like any two methods."""
    main = _tested(trained, baseline, score)
    if main is None:
        return Gain(trained, baseline, score, trained.mean(score), baseline.mean(score), None)
    test, scores = main
    first_neighbour = None if score == FIRST else _tested(trained, baseline, FIRST)
    return Gain(
        trained, baseline, score, *scores, test, None if first_neighbour is None else first_neighbour[0], validated
    )


def _tested(trained: Entry, baseline: Entry, score: str) -> tuple[PairTest, tuple[float, float]] | None:
    shared = shared_scores([trained, baseline], score)
    if shared is None:
        return None
    first, second = shared.values
    pair = AlignedPair(trained.name, baseline.name, first, second, shared.queries, shared.folds)
    own_score, baseline_score = (
        float(np.average(values.mean(axis=0), weights=shared.queries)) for values in shared.values
    )
    return compare_aligned([pair])[0], (own_score, baseline_score)


def _interval(test: PairTest, number: Callable[..., str]) -> str:
    low, high = (number(end, sign=True) for end in test.interval)
    return f"95 % interval {low} to {high}"


def _network_in_words(baseline: Entry) -> str:
    _, dim = baseline.network
    return f"the untrained network ({'all features' if dim is None else f'PCA to {dim} dimensions'})"
