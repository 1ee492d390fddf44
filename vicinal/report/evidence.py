"""What the scores of a comparison prove: every pair of losses on the same test classes and seeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import numpy.typing as npt

from vicinal.errors import InputError
from vicinal.report.comparison import Comparison, Entry
from vicinal.report.summary import class_queries
from vicinal.statistics import (
    PairTest,
    RankCorrelation,
    Tournament,
    Verdict,
    compare_pairs,
    probability_of_best,
    rank_correlation,
    tournament,
    verdict,
)

__all__ = ["Evidence", "correlation_of", "evidence", "ranks_of"]


@final
@dataclass(frozen=True)
class Evidence:
    """The tests of one comparison, on the network of its best entry.

    Args:
        pairs: All of them, those of the best loss first.
        verdict: What follows.
        best: How probable it is that each loss is the best.
        left_out: Losses that could not be paired with the others.
    """

    pairs: list[PairTest]
    verdict: Verdict
    best: dict[str, float]
    left_out: tuple[str, ...]


@lru_cache(maxsize=8)
def evidence(comparison: Comparison) -> Evidence | None:
    """Test all pairs of losses; None where fewer than two can be paired."""
    arrays = {entry.label: _by_seed_and_class(entry, comparison.metric) for entry in comparison.losses}
    known = {name: array for name, array in arrays.items() if array is not None}
    shapes = Counter(array.shape for array in known.values())
    if not shapes:
        return None
    shape = shapes.most_common(1)[0][0]
    seeds = Counter(tuple(entry.seeds) for entry in comparison.losses if entry.label in known)
    usual = seeds.most_common(1)[0][0]
    kept = {
        entry.label: known[entry.label]
        for entry in comparison.losses
        if entry.label in known and known[entry.label].shape == shape and tuple(entry.seeds) == usual
    }
    scored = np.isfinite(np.concatenate(list(kept.values()))).all(axis=0) if kept else np.zeros(0, dtype=bool)
    if len(kept) < 2 or scored.sum() < 2:
        return None
    queries = class_queries(comparison.losses[0], shape[1])[scored]
    paired = {name: array[:, scored] for name, array in kept.items()}
    pairs = compare_pairs(paired, queries=queries)
    return Evidence(
        pairs,
        verdict(pairs),
        probability_of_best(paired, queries=queries),
        tuple(entry.label for entry in comparison.losses if entry.label not in kept),
    )


def ranks_of(comparison: Comparison) -> Tournament | None:
    """Rank the losses in every experiment that has them all; None where there are fewer than two such."""
    scores: dict[str, dict[str, float]] = {}
    for entry in comparison.entries:
        for record in entry.records:
            scores.setdefault(record.experiment, {})[entry.label] = record.test[comparison.metric]
    every = {name for of_experiment in scores.values() for name in of_experiment}
    complete = {experiment: found for experiment, found in scores.items() if set(found) == every}
    return tournament(complete) if len(complete) > 1 and len(every) > 1 else None


def correlation_of(comparison: Comparison) -> RankCorrelation | None:
    """How far the order of losses on validation classes is that on test classes; None for fewer than three losses."""
    metric = comparison.metric
    found = {entry.label: entry.validation(metric) for entry in comparison.losses}
    validation = {name: score for name, score in found.items() if score is not None}
    test = {entry.label: entry.mean(metric) for entry in comparison.losses if entry.label in validation}
    try:
        return rank_correlation(validation, test)
    except InputError:
        return None


def _by_seed_and_class(entry: Entry, metric: str) -> npt.NDArray[np.float64] | None:
    """Scores of seeds by classes, each the mean over folds."""
    rows = []
    for seed in entry.seeds:
        found = [record.per_class.get(metric) for record in entry.records if record.seed == seed]
        if any(row is None for row in found) or len({len(row) for row in found if row is not None}) != 1:
            return None
        rows.append(np.array(found, dtype=np.float64).mean(axis=0))
    return np.stack(rows)
