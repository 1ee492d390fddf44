"""What a person decided about items: a CSV file beside the index; the items and their files stay as they are."""

from __future__ import annotations

import csv
import io
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias, final

from vicinal._util.reading import read_csv
from vicinal.errors import DataError, InputError
from vicinal.index.item import Item

__all__ = ["Decision", "Review", "ReviewFile", "guarded_cell"]

Decision: TypeAlias = Literal["keep", "relabel", "remove"]

HEAD = ("time", "id", "path", "label", "decision", "new_label", "queue")
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Review:
    """One decision.

    Attributes:
        id: Of the item, as text.
        decision: Keep it as it is, give it another label, or remove it.
        new_label: For "relabel".
        queue: Which list it was looked at in.
    """

    id: str
    decision: Decision
    new_label: str = ""
    queue: str = ""


def guarded_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula: an apostrophe goes before what begins like one.

    Example:
        >>> guarded_cell("=1+1"), guarded_cell("wren")
        ("'=1+1", 'wren')
    """
    return f"'{text}" if text.startswith(FORMULAS) else text


@final
class ReviewFile:
    """The file of decisions: rows are only ever added, and the last one on an item counts.

    Args:
        path: Of the CSV file; made with the first decision.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def add(self, item: Item, review: Review) -> None:
        """Write a decision down; it is on the disk by the time that this returns."""
        if review.decision == "relabel" and not review.new_label.strip():
            raise InputError("A new label is needed; give one, or decide to keep or to remove.")
        when = datetime.now(UTC).isoformat(timespec="seconds")
        label = "" if item.label is None else str(item.label)
        new_label = review.new_label.strip() if review.decision == "relabel" else ""
        row = (when, str(item.id), item.path or "", label, review.decision, new_label, review.queue)
        with self._lock:
            try:
                with self.path.open("ab") as file:
                    if file.tell() == 0:
                        file.write(_line(HEAD))
                    file.write(_line([guarded_cell(cell) for cell in row]))
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise DataError(
                    f"{self.path.name} could not be written: {error.strerror or error}.",
                    hint="Free some space, or allow writing beside the index.",
                ) from error

    def latest(self) -> dict[str, Review]:
        """The last decision on each item, by its id as text."""
        found = {}
        for row in map(_plain_row, self._rows()):
            if row["decision"] in ("keep", "relabel", "remove"):
                found[row["id"]] = Review(row["id"], row["decision"], row["new_label"], row["queue"])  # type: ignore[arg-type]
        return found

    def content(self, shown: Callable[[dict[str, str]], dict[str, str]] = dict) -> bytes:
        """The whole file; a head without rows if there is none yet.

        Args:
            shown: What is to be seen of a row, given its cells by column.
        """
        rows = [_plain_row(row) for row in self._rows()]
        return b"".join([_line(HEAD), *(_line([guarded_cell(cell) for cell in shown(row).values()]) for row in rows)])

    def _rows(self) -> list[list[str]]:
        if not self.path.is_file():
            return []
        return [row for row in read_csv(self.path) if len(row) == len(HEAD)][1:]


def _plain_row(row: Sequence[str]) -> dict[str, str]:
    return {name: _plain(cell) for name, cell in zip(HEAD, row, strict=True)}


def _plain(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULAS) else cell


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)
    return text.getvalue().encode("utf-8", "backslashreplace")
