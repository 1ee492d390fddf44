"""Entry: one row of a leaderboard, that is one method with one network over its seeds and folds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from vicinal._util.text import counted, in_words
from vicinal.data.splits import FEWEST_VALIDATION
from vicinal.runs.record import Network, Record
from vicinal.runs.run import Run
from vicinal.stats import Interval, seed_interval
from vicinal.stats.intervals import class_interval

__all__ = ["AlignedScores", "Entry", "SharedScores", "aligned_scores", "shared_scores", "validated_scores"]

Cell = tuple[int, int | None]  # a seed and a fold


@final
@dataclass(frozen=True, eq=False)
class Entry:
    """The finished runs of one method with one network.

    The score of a seed is the mean over its folds. The score of the entry is the mean over its seeds.

    Attributes:
        name: Name of the method in tables.
        network: Backbone and embedding dimension.
        runs: Finished runs (at least one), sorted by seed and fold.
        joined: Folds of each seed as one model, if the protocol joins them and no fold of the seed is missing.
        not_joined: Reasons why the folds of the other seeds were not joined.
    """

    name: str
    network: Network
    runs: tuple[Run, ...]
    joined: Entry | None = None
    not_joined: tuple[str, ...] = ()

    def __repr__(self) -> str:
        backbone, dim = self.network
        return f"Entry({self.name}, {backbone}-{dim}, {counted(len(self.runs), 'run')})"

    @property
    def label(self) -> str:
        """The name as it is written in a sentence."""
        return in_words(self.name)

    @property
    def records(self) -> tuple[Record, ...]:
        """Records of the runs."""
        return tuple(run.record for run in self.runs)

    @property
    def method(self) -> str:
        """The loss and its additions, independent of the name in tables."""
        return self.runs[0].record.method

    @cached_property
    def cells(self) -> dict[Cell, tuple[Record, ...]]:
        """Records of each seed and fold; several if runs differ only in their settings."""
        records: dict[Cell, tuple[Record, ...]] = {}
        for record in self.records:
            records[record.seed, record.fold] = (*records.get((record.seed, record.fold), ()), record)
        return records

    def of_cells(self, cells: Collection[Cell]) -> Entry:
        """Return the entry restricted to some seeds and folds, at least one of which it must have."""
        runs = tuple(run for run in self.runs if (run.record.seed, run.record.fold) in cells)
        return Entry(self.name, self.network, runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds in ascending order."""
        return tuple(sorted({seed for seed, _ in self.cells}))

    @property
    def scores(self) -> set[str]:
        """Names of the test scores that every run has."""
        return set.intersection(*(set(record.test) for record in self.records))

    @property
    def seconds(self) -> float:
        """Mean training time of a run."""
        return float(np.mean([record.seconds for record in self.records]))

    @property
    def missing_folds(self) -> dict[int, tuple[int, ...]]:
        """Unfinished folds of each seed that has any."""
        folds = range(max((record.folds or 0 for record in self.records if record.fold is not None), default=0))
        missing = {seed: tuple(fold for fold in folds if (seed, fold) not in self.cells) for seed in self.seeds}
        return {seed: which for seed, which in missing.items() if which}

    def by_seed(self, score: str) -> tuple[float, ...]:
        """Return the test score of each seed."""
        return self._by_seed(lambda record: record.test[score])

    def mean(self, score: str) -> float:
        """Return the mean test score over seeds."""
        return float(np.mean(self.by_seed(score)))

    def validation(self, score: str) -> float | None:
        """Return the score on validation classes at the chosen steps; None if there are no validation classes."""
        if not all(_validated(record, score) for record in self.records):
            return None
        return float(np.mean(self._by_seed(lambda record: record.validation[score])))

    def over_seeds(self, score: str) -> Interval | None:
        """Return the 95 % t interval of the mean over repeated training; None for one seed."""
        values = self.by_seed(score)
        return seed_interval(values) if len(values) > 1 else None

    def over_classes(self, score: str) -> Interval | None:
        """Return the 95 % interval over test classes: the uncertainty of the models' score on other classes.

        None if fewer than two classes have scores.
        """
        own = shared_scores([self], score)
        if own is None:
            return None
        sums = own.values[0].mean(axis=0) * own.queries
        return class_interval(sums[:, None], own.queries)[0]

    def fold_deviation(self, score: str) -> float | None:
        """Return the standard deviation over folds and seeds; None for a protocol without folds."""
        values = [record.test[score] for record in self.records if record.fold is not None]
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def typical(self, score: str = "MAP@R") -> Run:
        """Return the run with the median score over seeds and folds, among runs whose test items were saved."""
        candidates = [run for run in self.runs if run.has_test_items] or list(self.runs)
        ordered = sorted(candidates, key=lambda run: run.record.test.get(score, 0.0))
        return ordered[len(ordered) // 2]

    def best_validated(self, score: str = "MAP@R") -> Run:
        """Return the run to use: the best on validation among saved models, or the typical one without validation."""
        candidates = tuple(run for run in self.runs if run.has_model) or self.runs
        if not all(_validated(run.record, score) for run in candidates):
            return Entry(self.name, self.network, candidates).typical(score)
        return max(candidates, key=lambda run: run.record.validation[score])

    def class_scores(self, score: str) -> dict[Cell, dict[str, float]]:
        """Return the scores of test classes by name, for each seed and fold that has any."""
        tables = {cell: [_by_class(record, score) for record in records] for cell, records in self.cells.items()}
        means = {cell: _mean_by_class(of_runs) for cell, of_runs in tables.items()}
        return {cell: scores for cell, scores in means.items() if scores}

    def class_queries(self) -> dict[str, int]:
        """Return the number of queries of each test class; empty if unknown."""
        record = self.records[0]
        return dict(zip(_class_names(record), record.queries, strict=False))

    def _by_seed(self, value: Callable[[Record], float]) -> tuple[float, ...]:
        cells = {cell: float(np.mean([value(record) for record in records])) for cell, records in self.cells.items()}
        return tuple(float(np.mean([mean for (of, _), mean in cells.items() if of == seed])) for seed in self.seeds)


class SharedScores(NamedTuple):
    """Scores of several entries on the seeds, folds and test classes that they all share.

    Attributes:
        values: Scores of shape (entries, seeds, classes); a seed's scores are means over the shared folds.
        queries: Number of queries of each class; 1 if unknown.
        folds: Number of folds over all seeds; None if there are no folds.
    """

    values: npt.NDArray[np.float64]
    queries: npt.NDArray[np.int64]
    folds: int | None


def shared_scores(entries: Sequence[Entry], score: str) -> SharedScores | None:
    """Align the scores of entries. All comparisons of a leaderboard use this rule.

    Classes are matched by name. Only those that every run has scored are used.

    Returns:
        None if the entries share no seed and fold, or fewer than two classes.
    """
    aligned = aligned_scores(entries, score)
    if aligned is None:
        return None
    cells = np.array([seed for seed, _ in aligned.cells])
    values = [aligned.values[:, cells == seed].mean(axis=1) for seed in dict.fromkeys(cells.tolist())]
    folds = [cell for cell in aligned.cells if cell[1] is not None]
    return SharedScores(np.stack(values, axis=1), aligned.queries, len(folds) or None)


class AlignedScores(NamedTuple):
    """Like `SharedScores`, but with separate folds.

    Attributes:
        values: Scores of shape (entries, cells, classes).
        queries: Number of queries of each class; 1 if unknown.
        cells: Pairs of seed and fold, sorted.
    """

    values: npt.NDArray[np.float64]
    queries: npt.NDArray[np.int64]
    cells: tuple[Cell, ...]


def aligned_scores(entries: Sequence[Entry], score: str) -> AlignedScores | None:
    """Return the scores that `shared_scores` averages over folds."""
    tables = [entry.class_scores(score) for entry in entries]
    cells = set.intersection(*(set(table) for table in tables))
    if not cells:
        return None
    classes = sorted(set.intersection(*(set(table[cell]) for table in tables for cell in cells)))
    if len(classes) < 2:
        return None
    ordered = tuple(sorted(cells, key=lambda cell: (cell[0], cell[1] or 0)))
    values = [[[table[cell][name] for name in classes] for cell in ordered] for table in tables]
    queries = entries[0].class_queries()
    counts = np.array([max(1, queries.get(name, 1)) for name in classes], dtype=np.int64)
    return AlignedScores(np.array(values), counts, ordered)


class ValidatedScores(NamedTuple):
    """Validation scores of several entries on the classes that they all share.

    Attributes:
        values: Scores of shape (entries, classes), means over seeds and folds.
        queries: Number of queries of each class.
    """

    values: npt.NDArray[np.float64]
    queries: npt.NDArray[np.int64]


def validated_scores(entries: Sequence[Entry]) -> ValidatedScores | None:
    """Align the cross-fitted validation scores of entries by class; None if they share fewer than three classes.

    Only the seeds and folds that all entries have are used, since their validation classes may differ.
    """
    cells = set.intersection(*(set(entry.cells) for entry in entries))
    tables = [_validation_by_class(entry, cells) for entry in entries]
    classes = sorted(set.intersection(*map(set, tables)))
    if len(classes) < FEWEST_VALIDATION:
        return None
    values = [[float(np.mean(table[name])) for name in classes] for table in tables]
    queries = {
        name: count
        for records in entries[0].cells.values()
        for record in records
        for name, count in zip(record.validation_classes, record.validation_queries, strict=True)
    }
    return ValidatedScores(np.array(values), np.array([queries[name] for name in classes]))


def _validation_by_class(entry: Entry, cells: Collection[Cell]) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = {}
    for cell in cells:
        for record in entry.cells[cell]:
            for name, value in zip(record.validation_classes, record.validation_per_class, strict=True):
                if value is not None:
                    scores.setdefault(name, []).append(value)
    return scores


def _validated(record: Record, score: str) -> bool:
    """Whether a record has a validation score that does not come from the test classes."""
    return score in record.validation and record.selected_on != "test"


def _by_class(record: Record, score: str) -> dict[str, float]:
    values = record.per_class.get(score, ())
    return {name: value for name, value in zip(_class_names(record), values, strict=False) if value is not None}


def _mean_by_class(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the means over runs for the classes that all of them have scored."""
    shared = set.intersection(*(set(table) for table in tables))
    return {name: float(np.mean([table[name] for table in tables])) for name in shared}


def _class_names(record: Record) -> Sequence[str]:
    """Return the names of the test classes, or their numbers if the journal has no names."""
    return record.classes or [str(number) for number in range(max(map(len, record.per_class.values()), default=0))]
