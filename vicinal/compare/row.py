"""One line of a leaderboard: a loss with one network and one dimension, over its seeds and folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from vicinal.evaluation import Interval, seed_interval
from vicinal.statistics.intervals import class_bootstrap
from vicinal.results import Record

__all__ = ["Row", "by_seed", "class_matrix"]


@final
@dataclass(frozen=True)
class Row:
    """The trials of one loss, and those of its joined folds where the protocol joins them.

    Attributes:
        records: Done, at least one.
        joined: One for each seed; empty where folds are not joined.
    """

    records: tuple[Record, ...]
    joined: tuple[Record, ...] = ()

    @property
    def name(self) -> str:
        """Of the loss."""
        return self.records[0].name

    @property
    def backbone(self) -> str:
        """Of the network."""
        return str(self.records[0].recipe["backbone"])

    @property
    def dim(self) -> int | None:
        """Length of the embeddings; None for the network's features as they are."""
        dim: int | None = self.records[0].recipe["dim"]
        return dim

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that were run."""
        return tuple(sorted({record.seed for record in self.records}))

    @property
    def seconds(self) -> float:
        """Mean training time of a trial."""
        return float(np.mean([record.seconds for record in self.records]))

    def mean(self, metric: str) -> float:
        """The mean over seeds of the mean over folds."""
        return float(np.mean(by_seed(self.records, metric)))

    def validation(self, metric: str) -> float | None:
        """The mean validation score at the chosen steps."""
        found = [record.validation[metric] for record in self.records if metric in record.validation]
        return float(np.mean(found)) if found else None

    def over_classes(self, metric: str, *, joined: bool = False) -> Interval | None:
        """A 95 % interval from drawing test classes anew; how sure the score of these models is on other classes."""
        records = self.joined if joined else self.records
        values, queries = class_matrix(records, metric)
        if values.shape[1] < 2:
            return None
        return class_bootstrap((values.mean(axis=0) * queries)[:, None], queries)[0]

    def over_seeds(self, metric: str, *, joined: bool = False) -> Interval | None:
        """A 95 % t interval over seeds; how sure the mean is if training is repeated. None for one seed."""
        values = by_seed(self.joined if joined else self.records, metric)
        return seed_interval(values) if len(values) > 1 else None

    def fold_deviation(self, metric: str) -> float | None:
        """The standard deviation over folds and seeds; None for a protocol without folds."""
        values = [record.test[metric] for record in self.records if record.fold is not None]
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


def by_seed(records: Sequence[Record], metric: str) -> list[float]:
    """Return the test score of each seed, the mean over its folds."""
    seeds = sorted({record.seed for record in records})
    return [float(np.mean([one.test[metric] for one in records if one.seed == seed])) for seed in seeds]


def class_matrix(records: Sequence[Record], metric: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return scores of seeds by classes (means over folds), and how many queries each class has.

    Classes without a scored query are left out.
    """
    scored = np.array([value is not None for value in records[0].per_class[metric]])
    seeds = sorted({record.seed for record in records})
    rows = [
        np.mean([np.array(one.per_class[metric], dtype=np.float64) for one in records if one.seed == seed], axis=0)
        for seed in seeds
    ]
    queries = np.array(records[0].queries or np.ones(len(scored)), dtype=np.int64)
    return np.stack(rows)[:, scored], queries[scored]
