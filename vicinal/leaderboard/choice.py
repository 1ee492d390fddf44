"""Choice: the model to use, the candidates that are level with it, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from vicinal.leaderboard.entry import Entry, validated_scores
from vicinal.stats.choice import level_with_best

__all__ = ["Choice", "choose"]

# Mean loss of MAP@R against the best of five methods over 18 subsets of 20 and 40 classes of CUB and fruits, for
# heads on frozen features (docs/studies/choices.md). The first two are level: four more subsets reversed their order.
# Among methods that validation cannot separate, the one with the best record is preferred.
RECORD = {
    "multi_similarity+valid_triplets": 0.0034,
    "proxy_anchor": 0.0036,
    "triplet+semi_hard": 0.0057,
    "contrastive": 0.0061,
    "normalised_softmax": 0.0156,
}


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """The entry to use, chosen by validation classes.

    Attributes:
        entry: Entry to use: the simplest of those that are level with the best one.
        level: Entries within a standard error of the best validation score, best first; the best one alone if it leads
            by more.
        classes: Number of validation classes that chose; 0 if their scores are not known class by class.
    """

    entry: Entry
    level: tuple[Entry, ...]
    classes: int


def choose(entries: Sequence[Entry], untrained: Collection[Entry], score: str) -> Choice | None:
    """Choose the entry to use by the validation classes that all entries share; None without validation scores.

    Untrained networks are preferred to trained ones, and trained methods by their record over datasets.

    Args:
        entries: Candidates.
        untrained: Candidates that cost no training.
        score: Name of the score.
    """
    scored = [entry for entry in entries if entry.validation(score) is not None]
    if not scored:
        return None
    shared = validated_scores(scored)
    if shared is None:
        cells = set.intersection(*(set(entry.cells) for entry in scored))  # folds differ in their classes
        judged = {entry: entry.of_cells(cells) if cells else entry for entry in scored}
        best = max(scored, key=lambda entry: judged[entry].validation(score) or 0.0)
        return Choice(best, (best,), 0)
    level = tuple(scored[index] for index in level_with_best(shared.values, shared.queries))

    def simplicity(entry: Entry) -> tuple[bool, float, int]:
        return entry not in untrained, RECORD.get(entry.name, np.inf), level.index(entry)

    return Choice(min(level, key=simplicity), level, len(shared.queries))
