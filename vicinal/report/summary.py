"""What an entry scored, and how sure that is: over seeds, and over test classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from vicinal.evaluation import Interval, seed_interval
from vicinal.report.comparison import Comparison, Entry
from vicinal.statistics.intervals import class_bootstrap

__all__ = ["Line", "class_means", "class_queries", "lines"]

DRAWS = 2000


@final
@dataclass(frozen=True)
class Line:
    """One line of a leaderboard.

    Args:
        entry: Whose it is.
        mean: Of the test score, over seeds.
        by_seed: The test score of each seed.
        over_seeds: Student's interval of the mean; None for a single seed.
        over_classes: Bootstrap interval of the mean over test classes; None where there are no scores by class.
        deviation: Over the folds of all seeds; None where there are no folds.
    """

    entry: Entry
    mean: float
    by_seed: tuple[float, ...]
    over_seeds: Interval | None
    over_classes: Interval | None
    deviation: float | None


def lines(comparison: Comparison, entries: list[Entry]) -> list[Line]:
    """Summarise entries, best first, by the score that models were chosen by."""
    metric = comparison.metric
    found = []
    for entry in entries:
        by_seed = entry.by_seed(metric)
        values = [record.test[metric] for record in entry.records]
        folds = any(record.fold is not None for record in entry.records)
        found.append(
            Line(
                entry,
                entry.mean(metric),
                tuple(by_seed),
                seed_interval(by_seed) if len(by_seed) > 1 else None,
                _over_classes(comparison, entry),
                float(np.std(values, ddof=1)) if folds and len(values) > 1 else None,
            )
        )
    return found


def class_means(entry: Entry, metric: str) -> npt.NDArray[np.float64] | None:
    """The mean score of each test class over seeds and folds; NaN for a class without a query, None for no scores."""
    rows = [record.per_class[metric] for record in entry.records if metric in record.per_class]
    if not rows or len({len(row) for row in rows}) > 1:
        return None
    return np.array(rows, dtype=np.float64).mean(axis=0)


def _over_classes(comparison: Comparison, entry: Entry) -> Interval | None:
    means = class_means(entry, comparison.metric)
    if means is None or np.isfinite(means).sum() < 2:
        return None
    counts = np.where(np.isfinite(means), class_queries(entry, len(means)), 0)
    sums = np.nan_to_num(means) * counts
    return class_bootstrap(sums[:, None], counts, draws=DRAWS)[0]


def class_queries(entry: Entry, classes: int) -> npt.NDArray[np.int64]:
    """How many queries each test class has; equally many where that is not known."""
    counts = entry.records[0].queries
    return np.array(counts if len(counts) == classes else [1] * classes, dtype=np.int64)
