"""What a comparison found: leaderboards with intervals, one for each dataset and protocol, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import final

from rich.console import Console

from vicinal.compare.board import Board
from vicinal.results import Record, read_records
from vicinal.results.joined import concatenated

__all__ = ["Comparison"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The trials of one comparison, or of several that are read together.

    Attributes:
        records: One for each trial, failed ones included.
        folders: Where their files are.

    Example:
        >>> Comparison.of([]).boards
        []
    """

    records: tuple[Record, ...]
    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Record], *folders: Path) -> Comparison:
        """Make a comparison of records whose files are in some folders."""
        return cls(tuple(records), folders)

    @classmethod
    def read(cls, *folders: str | Path) -> Comparison:
        """Read what `compare` left in one or several folders, of several machines, say."""
        paths = tuple(map(Path, folders))
        return cls(tuple(read_records(*paths)), paths)

    @cached_property
    def boards(self) -> list[Board]:
        """One leaderboard for each dataset and protocol: results of different protocols never share a table."""
        joined = concatenated(self.records, self.folders) if self.folders else []
        groups: dict[tuple[str, ...], list[Record]] = {}
        for record in self.records:
            groups.setdefault(_place(record), []).append(record)
        return [
            Board(tuple(records), tuple(one for one in joined if _place(one) == place))
            for place, records in groups.items()
        ]

    @property
    def failed(self) -> list[Record]:
        """Trials that failed, with their errors."""
        return [record for record in self.records if record.status == "failed"]

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        done = len(self.records) - len(self.failed)
        return f"Comparison({done} trials done, {len(self.failed)} failed)"

    def __str__(self) -> str:
        text = StringIO()
        self.print(Console(file=text, width=140, no_color=True))
        return text.getvalue()

    def print(self, console: Console) -> None:
        """Show every leaderboard with what can be concluded from it."""
        for board in self.boards:
            board.print(console)


def _place(record: Record) -> tuple[str, ...]:
    return record.dataset, record.data, record.protocol, record.selected_on
