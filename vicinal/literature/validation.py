"""Does validation pick the best model? The evidence in published tables with both scores of every fold or split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from vicinal.literature.tables import Published
from vicinal.stats import Interval, RankCorrelation, rank_correlation

__all__ = ["ValidatedParts", "validated_parts"]

PREFIX = "validation "
REACH = 1.959964  # quantile of the normal distribution for a 95 % interval


@final
@dataclass(frozen=True)
class ValidatedParts:
    """A published table for one method, with a validation and a test score for each part (fold or split).

    Attributes:
        source: Paper and table.
        dataset: Name of the dataset in vicinal.
        method: Name of the method in vicinal.
        score: Name of the score, such as "R@1".
        validation: Validation score of each part.
        test: Test score of each part.
        correlation: Pearson correlation of the two.
        interval: Interval of the correlation, by Fisher's transform; None for fewer than five parts.
        ranks: Rank correlation of the two.
    """

    source: str
    dataset: str
    method: str
    score: str
    validation: dict[str, float]
    test: dict[str, float]
    correlation: float
    interval: Interval | None
    ranks: RankCorrelation

    def __str__(self) -> str:
        named = f"{self.source}, {self.dataset}: {self.method}, {self.score} on validation and on test classes over"
        lines = [f"{named} {len(self.test)} parts ({next(iter(self.test))} to {list(self.test)[-1]})"]
        lines.append(f"  Pearson {self.correlation:+.2f}{_between(self.interval)}")
        lines.append(f"  Spearman {self.ranks.spearman:+.2f}{_between(self.ranks.spearman_interval)}")
        chosen = max(self.validation, key=self.validation.__getitem__)
        best = max(self.test, key=self.test.__getitem__)
        lines.append(
            f"  the best on validation ({chosen}) has {100 * self.test[chosen]:.2f} on test, the best there ({best}) "
            f"{100 * self.test[best]:.2f}"
        )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "paper": self.source,
            "dataset": self.dataset,
            "method": self.method,
            "score": self.score,
            "validation": self.validation,
            "test": self.test,
            "correlation": self.correlation,
            "interval": None if self.interval is None else list(self.interval),
            "spearman": self.ranks.spearman,
        }


def validated_parts(rows: Sequence[Published]) -> list[ValidatedParts]:
    """Return every table in which all parts have a validation and a test score, with the correlation of the two.

    Example:
        >>> from vicinal.literature.tables import published
        >>> folds, splits = validated_parts(published("cub"))
        >>> folds.source, round(folds.correlation, 2), len(splits.test)
        ('Psomas 2020, Table 13', -0.36, 4)
    """
    tables: dict[tuple[str, str, str, str], tuple[dict[str, float], dict[str, float]]] = {}
    for row in rows:
        if row.part:
            name = (row.source, row.dataset, row.method, row.score.removeprefix(PREFIX))
            validation, test = tables.setdefault(name, ({}, {}))
            (validation if row.score.startswith(PREFIX) else test)[row.part] = row.value
    return [
        _correlated(*name, validation, test)
        for name, (validation, test) in tables.items()
        if validation.keys() == test.keys() and len(test) >= 3
    ]


def _correlated(
    source: str, dataset: str, method: str, score: str, validation: dict[str, float], test: dict[str, float]
) -> ValidatedParts:
    pearson = float(np.corrcoef(list(validation.values()), [test[part] for part in validation])[0, 1])
    interval = None
    if len(test) >= 5:
        middle, reach = math.atanh(pearson), REACH / math.sqrt(len(test) - 3)
        interval = Interval(math.tanh(middle - reach), math.tanh(middle + reach))
    ranks = rank_correlation(validation, test)
    return ValidatedParts(source, dataset, method, score, validation, test, pearson, interval, ranks)


def _between(interval: Interval | None) -> str:
    return "" if interval is None else f" ({interval.low:+.2f} to {interval.high:+.2f})"
