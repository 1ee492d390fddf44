"""A leaderboard: the losses of one dataset and protocol, best first, and what can be concluded from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vicinal.compare.row import Row, class_matrix
from vicinal.evaluation import Interval
from vicinal.results import Record
from vicinal.statistics import RankCorrelation, Verdict, compare_pairs, rank_correlation, verdict

__all__ = ["Board"]

SELECTED = {
    "validation": "steps selected on validation classes",
    "last": "last steps",
    "test": "SELECTED ON TEST: the scores are too good, and no other table's",
}


@final
@dataclass(frozen=True, eq=False, repr=False)
class Board:
    """The trials of one dataset and protocol.

    Attributes:
        records: Of single trials, failed ones included.
        joined: Of folds joined to one model, for the reality check.
    """

    records: tuple[Record, ...]
    joined: tuple[Record, ...] = ()

    @property
    def metric(self) -> str:
        """What steps were selected by and the table is sorted by."""
        return str(self.records[0].recipe["training"]["metric"])

    @property
    def title(self) -> str:
        """Dataset, protocol and how steps were selected."""
        first = self.records[0]
        return f"{first.dataset}, {first.protocol}, {SELECTED[first.selected_on]}"

    @cached_property
    def rows(self) -> list[Row]:
        """One for each loss, network and dimension that has a finished trial, best first."""
        groups: dict[tuple[object, ...], list[Record]] = {}
        for record in self.records:
            if record.status == "done":
                groups.setdefault(_contestant(record), []).append(record)
        rows = [
            Row(tuple(group), tuple(one for one in self.joined if _contestant(one) == contestant))
            for contestant, group in groups.items()
        ]
        return sorted(rows, key=lambda row: (-row.mean(self.metric), row.name))

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """For each network and dimension which loss wins, over the seeds that all losses there have."""
        found = {}
        for experiment, rows in self._experiments().items():
            seeds = set.intersection(*(set(row.seeds) for row in rows))
            if len(rows) > 1 and seeds:
                kept = {row.name: [one for one in row.records if one.seed in seeds] for row in rows}
                scores = {name: class_matrix(records, self.metric)[0] for name, records in kept.items()}
                queries = class_matrix(rows[0].records, self.metric)[1]
                found[experiment] = verdict(compare_pairs(scores, queries=queries))
        return found

    @cached_property
    def correlations(self) -> dict[str, RankCorrelation]:
        """For each network and dimension how far validation ranks losses as the test does, where three or more are."""
        found = {}
        for experiment, rows in self._experiments().items():
            validation = {row.name: row.validation(self.metric) for row in rows}
            known = {name: value for name, value in validation.items() if value is not None}
            if len(known) == len(rows) > 2 and self.records[0].selected_on == "validation":
                found[experiment] = rank_correlation(known, {row.name: row.mean(self.metric) for row in rows})
        return found

    def table(self) -> Table:
        """Return the rows as a table."""
        metric, rows = self.metric, self.rows
        several = {
            "network": len({row.backbone for row in rows}) > 1,
            "dim": len({row.dim for row in rows}) > 1,
            "over seeds": any(len(row.seeds) > 1 for row in rows),
            "over folds": any(row.fold_deviation(metric) is not None for row in rows),
            "joined": any(row.joined for row in rows),
            "validation": any(row.validation(metric) is not None for row in rows),
        }
        table = Table(box=box.SIMPLE_HEAD, title=self.title, title_justify="left", pad_edge=False)
        table.add_column("loss", min_width=16)
        columns = ["network", "dim", metric, "over classes", "over seeds", "over folds", "joined", "P@1"]
        shown = [name for name in [*columns, "validation", "trials", "s/trial"] if several.get(name, True)]
        for name in shown:
            table.add_column(name.replace("over ", "over\n"), justify="right", no_wrap=True)
        for row in rows:
            cells = {
                "network": row.backbone,
                "dim": str(row.dim),
                metric: f"{row.mean(metric):.4f}",
                "over classes": _ends(row.over_classes(metric)),
                "over seeds": _ends(row.over_seeds(metric)),
                "over folds": _deviation(row.fold_deviation(metric)),
                "joined": _joined(row, metric),
                "P@1": f"{row.mean('P@1'):.4f}",
                "validation": _number(row.validation(metric)),
                "trials": str(len(row.records)),
                "s/trial": f"{row.seconds:.0f}",
            }
            table.add_row(escape(row.name), *(cells[name] for name in shown))
        return table

    def print(self, console: Console) -> None:
        """Show the table, the verdict, how far validation can be trusted, what losses demanded, and what failed."""
        if self.rows:
            console.print(self.table())
        several = len(self.verdicts) > 1
        for experiment, found in self.verdicts.items():
            console.print(f"{experiment + ': ' if several else ''}{found}", highlight=False, markup=False)
        for experiment, correlation in self.correlations.items():
            console.print(f"{experiment + ': ' if several else ''}{correlation}", highlight=False, markup=False)
        demands = {record.name: record.demands for record in self.records if record.demands}
        for name, asked in demands.items():
            console.print(f"{name} demanded: {'; '.join(asked)}", highlight=False, markup=False)
        for record in self.records:
            if record.status == "failed":
                console.print(f"failed: {record.name}, {record.experiment}: {record.error}", markup=False)

    def _experiments(self) -> dict[str, list[Row]]:
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(f"{row.backbone}-{row.dim}", []).append(row)
        return groups


def _contestant(record: Record) -> tuple[object, ...]:
    return record.name, record.recipe["backbone"], record.recipe["dim"]


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.low:.3f}-{interval.high:.3f}"


def _deviation(value: float | None) -> str:
    return "" if value is None else f"sd {value:.3f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _joined(row: Row, metric: str) -> str:
    values: Sequence[float] = [record.test[metric] for record in row.joined]
    return f"{sum(values) / len(values):.4f}" if values else ""
