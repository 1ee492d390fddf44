"""Does validation tell which model is best? What tables say that have both scores of every fold or split."""

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
REACH = 1.959964  # of a normal distribution, for 95 %


@final
@dataclass(frozen=True)
class ValidatedParts:
    """One table of one method, each of whose parts (folds, splits) has a validation and a test score.

    Attributes:
        source: The table.
        dataset: vicinal's name of it.
        method: vicinal's name of it.
        score: "R@1", for example.
        validation: By part.
        test: By part.
        correlation: Pearson's, of the two.
        interval: Of it, by Fisher's transform; None for fewer than five parts.
        ranks: How far the two put parts in the same order.
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
        """For JSON."""
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
    """Return every table whose parts have a validation and a test score, with the correlation of the two.

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
