"""What mattered: how far a score moves with the loss, its settings, the seed and the test classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vicinal.leaderboard.entry import Entry, aligned_scores
from vicinal.runs.record import SearchRecord
from vicinal.stats import split_variance

if TYPE_CHECKING:
    from vicinal.leaderboard.leaderboard import Leaderboard

__all__ = ["Influence", "weigh_influences"]

FEWEST_TRIALS = 3  # of a search, for a variance


class Influence(NamedTuple):
    """One source of differences between scores.

    Attributes:
        name: "loss", "settings", "learning rate" (where it alone was chosen), "seed" or "test classes".
        deviation: Standard deviation of the score of a run if this alone were drawn anew.
        share: Of the variance of all sources together.
        uneven: The part of the deviation that differs from loss to loss, and so can change their order.
        levels: How many there were to judge by: losses, trials, rates, seeds (and folds), classes.
        parts: For settings, each one's share of their variance, the largest first.
    """

    name: str
    deviation: float
    share: float
    uneven: float
    levels: int
    parts: dict[str, float]


def weigh_influences(board: Leaderboard, searches: Sequence[SearchRecord] = ()) -> list[Influence]:
    """Split the spread of scores of the main network into its sources, the largest first.

    Scores of losses, seeds (or folds) and test classes are a crossed table, whose variances `split_variance` finds. A
    run's score is a mean over test classes, so what varies with them counts by their number. Settings are the scores
    of a search's trials on validation classes, which differ in settings alone, brought to the scale of test scores;
    without a search, learning rates are those of the ladder that each loss has climbed.

    Args:
        board: Whose runs.
        searches: For the settings of its losses.

    Returns:
        Nothing for fewer than two losses that share a seed and two test classes. A source with a single level, such
        as one seed, is left out: what it does is in the others.
    """
    entries = board.of_network()
    found = aligned_scores(entries, board.score) if len(entries) > 1 else None
    if found is None:
        return []
    losses, cells, classes = found.values.shape
    variance = split_variance(found.values, ("loss", "seed", "class"))
    weight = float((found.queries**2).sum() / found.queries.sum() ** 2)  # one over the number of equal classes
    sums = {
        "loss": (variance["loss",], variance["loss",], losses),
        "seed": (
            variance.get(("seed",), 0.0) + variance.get(("loss", "seed"), 0.0),
            variance.get(("loss", "seed"), 0.0),
            cells,
        ),
        "test classes": (
            weight * sum(value for names, value in variance.items() if "class" in names),
            weight * sum(value for names, value in variance.items() if {"class", "loss"} <= set(names)),
            classes,
        ),
    }
    known = {entry.name for entry in entries}
    own = [
        search
        for search in searches
        if search.name in known and search.is_of(board.main_network) and len(search.scores) >= FEWEST_TRIALS
    ]
    rates = [[score for score in entry.records[0].rates.values() if score is not None] for entry in entries]
    climbed = [scores for scores in rates if len(scores) >= FEWEST_TRIALS]
    tried = [search.scores for search in own] or climbed
    if tried:
        spread = _to_test_scores(entries, board.score) ** 2 * float(np.mean([np.var(one, ddof=1) for one in tried]))
        sums["settings" if own else "learning rate"] = (spread, spread, min(map(len, tried)))
    total = sum(whole for whole, _, _ in sums.values()) or 1.0
    made = [
        Influence(
            name,
            float(np.sqrt(whole)),
            whole / total,
            float(np.sqrt(uneven)),
            levels,
            _parts(own) if name == "settings" else {},
        )
        for name, (whole, uneven, levels) in sums.items()
        if levels > 1
    ]
    return sorted(made, key=lambda influence: -influence.share)


def _to_test_scores(entries: Sequence[Entry], score: str) -> float:
    """How much larger a test score is than one on validation classes, among which there are fewer to mistake."""
    pairs = [(entry.mean(score), entry.validation(score)) for entry in entries]
    ratios = [test / validation for test, validation in pairs if validation]
    return float(np.mean(ratios)) if ratios else 1.0


def _parts(searches: Sequence[SearchRecord]) -> dict[str, float]:
    """Each setting's share of the variance of all searches whose settings were weighed."""
    weighed = [search for search in searches if search.importance]
    parts: dict[str, float] = {}
    for search in weighed:
        for name, share in search.importance.items():
            parts[name] = parts.get(name, 0.0) + share * float(np.var(search.scores, ddof=1))
    total = sum(parts.values()) or 1.0
    return {name: value / total for name, value in sorted(parts.items(), key=lambda item: -item[1])}
