"""Entry: one method with one network over its seeds and folds, a line of a leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from vicinal._util.text import counted, in_words
from vicinal.runs.record import Network, Record
from vicinal.runs.run import Run
from vicinal.stats import Interval, seed_interval
from vicinal.stats.intervals import class_bootstrap

__all__ = ["AlignedScores", "Entry", "SharedScores", "aligned_scores", "shared_scores"]

DRAWS = 2000  # of test classes, for every interval over classes
Cell = tuple[int, int | None]  # a seed and a fold


@final
@dataclass(frozen=True, eq=False)
class Entry:
    """The finished runs of one method with one network.

    A score of a seed is the mean over its folds, and that of the entry the mean over its seeds.

    Attributes:
        name: What tables call the method.
        network: The backbone and the length of the embeddings.
        runs: Done, at least one, by seed and fold.
        joined: The folds of each seed as one model, where the protocol joins them and all of a seed are there.
        not_joined: Of the other seeds why not, in words.
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
        """The name as it reads in a sentence."""
        return in_words(self.name)

    @property
    def records(self) -> tuple[Record, ...]:
        """Of its runs."""
        return tuple(run.record for run in self.runs)

    @property
    def method(self) -> str:
        """The loss and what it was used with, whatever tables call it."""
        return self.runs[0].record.method

    @cached_property
    def cells(self) -> dict[Cell, tuple[Record, ...]]:
        """The records of each seed and fold; several where runs differ in their settings alone."""
        found: dict[Cell, tuple[Record, ...]] = {}
        for record in self.records:
            found[record.seed, record.fold] = (*found.get((record.seed, record.fold), ()), record)
        return found

    def of_cells(self, cells: Collection[Cell]) -> Entry:
        """The same with the runs of some seeds and folds alone; it must have such."""
        runs = tuple(run for run in self.runs if (run.record.seed, run.record.fold) in cells)
        return Entry(self.name, self.network, runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return tuple(sorted({seed for seed, _ in self.cells}))

    @property
    def scores(self) -> set[str]:
        """The names of what every run scored on the test classes."""
        return set.intersection(*(set(record.test) for record in self.records))

    @property
    def seconds(self) -> float:
        """Mean training time of a run."""
        return float(np.mean([record.seconds for record in self.records]))

    @property
    def missing_folds(self) -> dict[int, tuple[int, ...]]:
        """Of each seed that lacks some, the folds that are not done."""
        folds = range(max((record.folds or 0 for record in self.records if record.fold is not None), default=0))
        missing = {seed: tuple(fold for fold in folds if (seed, fold) not in self.cells) for seed in self.seeds}
        return {seed: which for seed, which in missing.items() if which}

    def by_seed(self, score: str) -> tuple[float, ...]:
        """The test score of each seed."""
        return self._by_seed(lambda record: record.test[score])

    def mean(self, score: str) -> float:
        """The test score."""
        return float(np.mean(self.by_seed(score)))

    def validation(self, score: str) -> float | None:
        """The score on validation classes at the chosen steps; None where there were none."""
        if not all(_validated(record, score) for record in self.records):
            return None
        return float(np.mean(self._by_seed(lambda record: record.validation[score])))

    def over_seeds(self, score: str) -> Interval | None:
        """A 95 % t interval: how sure the mean is if training is repeated. None for one seed."""
        values = self.by_seed(score)
        return seed_interval(values) if len(values) > 1 else None

    def over_classes(self, score: str) -> Interval | None:
        """A 95 % interval from drawing test classes anew: how sure the score of these models is on other classes.

        None without the scores of two classes.
        """
        own = shared_scores([self], score)
        if own is None:
            return None
        sums = own.values[0].mean(axis=0) * own.queries
        return class_bootstrap(sums[:, None], own.queries, draws=DRAWS)[0]

    def fold_deviation(self, score: str) -> float | None:
        """The standard deviation over folds and seeds; None for a protocol without folds."""
        values = [record.test[score] for record in self.records if record.fold is not None]
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def typical(self, score: str = "MAP@R") -> Run:
        """The run whose test items were kept and whose score lies in the middle of its seeds and folds."""
        kept = [run for run in self.runs if run.has_test_items] or list(self.runs)
        ordered = sorted(kept, key=lambda run: run.record.test.get(score, 0.0))
        return ordered[len(ordered) // 2]

    def best_validated(self, score: str = "MAP@R") -> Run:
        """The run to use: of those whose model was kept the best on validation; without validation the typical one."""
        kept = tuple(run for run in self.runs if run.has_model) or self.runs
        if not all(_validated(run.record, score) for run in kept):
            return Entry(self.name, self.network, kept).typical(score)
        return max(kept, key=lambda run: run.record.validation[score])

    def class_scores(self, score: str) -> dict[Cell, dict[str, float]]:
        """The scores of test classes by name, of each seed and fold that has any."""
        tables = {cell: [_by_class(record, score) for record in records] for cell, records in self.cells.items()}
        means = {cell: _mean_by_class(of_runs) for cell, of_runs in tables.items()}
        return {cell: found for cell, found in means.items() if found}

    def class_queries(self) -> dict[str, int]:
        """How many queries each test class has; none where that is not known."""
        record = self.records[0]
        return dict(zip(_class_names(record), record.queries, strict=False))

    def _by_seed(self, value: Callable[[Record], float]) -> tuple[float, ...]:
        cells = {cell: float(np.mean([value(record) for record in records])) for cell, records in self.cells.items()}
        return tuple(float(np.mean([one for (of, _), one in cells.items() if of == seed])) for seed in self.seeds)


class SharedScores(NamedTuple):
    """What several entries scored on the seeds, folds and test classes that all of them have.

    Attributes:
        values: Entries by seeds by classes; a seed's scores are means over the shared folds.
        queries: Of each class; 1 where that is not known.
        folds: How many of all seeds together; None where there are no folds.
    """

    values: npt.NDArray[np.float64]
    queries: npt.NDArray[np.int64]
    folds: int | None


def shared_scores(entries: Sequence[Entry], score: str) -> SharedScores | None:
    """Align the scores of entries: the one rule by which leaderboards compare.

    Classes are paired by name, and those that every run has scored are kept.

    Returns:
        None where there is no seed and fold, or fewer than two classes, that all of them have.
    """
    aligned = aligned_scores(entries, score)
    if aligned is None:
        return None
    cells = np.array([seed for seed, _ in aligned.cells])
    values = [aligned.values[:, cells == seed].mean(axis=1) for seed in dict.fromkeys(cells.tolist())]
    folds = [cell for cell in aligned.cells if cell[1] is not None]
    return SharedScores(np.stack(values, axis=1), aligned.queries, len(folds) or None)


class AlignedScores(NamedTuple):
    """The same, with every fold by itself.

    Attributes:
        values: Entries by cells by classes.
        queries: Of each class; 1 where that is not known.
        cells: Seeds and folds, in order.
    """

    values: npt.NDArray[np.float64]
    queries: npt.NDArray[np.int64]
    cells: tuple[Cell, ...]


def aligned_scores(entries: Sequence[Entry], score: str) -> AlignedScores | None:
    """Return what `shared_scores` takes means of."""
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


def _validated(record: Record, score: str) -> bool:
    """Whether a record has a score on classes that it was not tested on."""
    return score in record.validation and record.selected_on != "test"


def _by_class(record: Record, score: str) -> dict[str, float]:
    values = record.per_class.get(score, ())
    return {name: value for name, value in zip(_class_names(record), values, strict=False) if value is not None}


def _mean_by_class(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the means over runs, of the classes that all of them have scored."""
    shared = set.intersection(*(set(table) for table in tables))
    return {name: float(np.mean([table[name] for table in tables])) for name in shared}


def _class_names(record: Record) -> Sequence[str]:
    """Return the names of the test classes, or their numbers where a journal has none."""
    return record.classes or [str(number) for number in range(max(map(len, record.per_class.values()), default=0))]
