"""Sources of variance: how much a score varies with the loss, its settings, the seed and the test classes."""

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

FEWEST_TRIALS = 3  # trials of a search needed to estimate a variance


class Influence(NamedTuple):
    """A source of variance between scores.

    Attributes:
        name: "loss", "settings", "learning rate" (if only the rate was chosen), "seed" or "test classes".
        deviation: Standard deviation of a run's score if only this source were redrawn.
        share: Share of the total variance of all sources.
        uneven: Part of the deviation that differs between losses and can therefore change their order.
        levels: Number of levels of the estimate: losses, trials, rates, seeds (and folds) or classes.
        parts: For settings, the share of each in their variance, largest first.
    """

    name: str
    deviation: float
    share: float
    uneven: float
    levels: int
    parts: dict[str, float]


def weigh_influences(board: Leaderboard, searches: Sequence[SearchRecord] = ()) -> list[Influence]:
    """Decompose the variance of the main network's scores by source, largest first.

    Scores of losses, seeds (or folds) and test classes form a crossed table, whose variance components
    `split_variance` estimates. A run's score is a mean over test classes, so components that vary with the class are
    divided by the number of classes. The variance due to settings is that of a search's trials, which differ only in
    their settings; their validation scores are rescaled to test scores. Without a search, the learning rates that
    each loss tried are used instead.

    Args:
        board: Leaderboard of the runs.
        searches: Searches for the settings of its losses.

    Returns:
        Empty for fewer than two losses that share a seed and two test classes. A source with a single level, such as
        one seed, is left out: its effect is part of the others.
    """
    entries = board.of_network()
    aligned = aligned_scores(entries, board.score) if len(entries) > 1 else None
    if aligned is None:
        return []
    losses, cells, classes = aligned.values.shape
    variance = split_variance(aligned.values, ("loss", "seed", "class"))
    weight = float((aligned.queries**2).sum() / aligned.queries.sum() ** 2)  # 1 / number of classes if equally large
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
    entry_names = {entry.name for entry in entries}
    own = [
        search
        for search in searches
        if search.name in entry_names and search.is_of(board.main_network) and len(search.scores) >= FEWEST_TRIALS
    ]
    rates = [[score for score in entry.records[0].rates.values() if score is not None] for entry in entries]
    climbed = [scores for scores in rates if len(scores) >= FEWEST_TRIALS]
    tried = [search.scores for search in own] or climbed
    if tried:
        spread = _to_test_scores(entries, board.score) ** 2 * float(
            np.mean([np.var(values, ddof=1) for values in tried])
        )
        sums["settings" if own else "learning rate"] = (spread, spread, min(map(len, tried)))
    total = sum(whole for whole, _, _ in sums.values()) or 1.0
    influences = [
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
    return sorted(influences, key=lambda influence: -influence.share)


def _to_test_scores(entries: Sequence[Entry], score: str) -> float:
    """Return the mean ratio of test to validation scores; validation has fewer classes to confuse."""
    pairs = [(entry.mean(score), entry.validation(score)) for entry in entries]
    ratios = [test / validation for test, validation in pairs if validation]
    return float(np.mean(ratios)) if ratios else 1.0


def _parts(searches: Sequence[SearchRecord]) -> dict[str, float]:
    """Return each setting's share of the variance, over all searches that have importances."""
    weighed = [search for search in searches if search.importance]
    parts: dict[str, float] = {}
    for search in weighed:
        for name, share in search.importance.items():
            parts[name] = parts.get(name, 0.0) + share * float(np.var(search.scores, ddof=1))
    total = sum(parts.values()) or 1.0
    return {name: value / total for name, value in sorted(parts.items(), key=lambda item: -item[1])}
