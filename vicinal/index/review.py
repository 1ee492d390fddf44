"""Review decisions about items, in a CSV file next to the index; the items and their files are not changed."""

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
    """One decision about an item.

    Attributes:
        id: Id of the item, as text.
        decision: "keep", "relabel" or "remove".
        new_label: New label, for "relabel".
        queue: Name of the list in which the item was reviewed.
    """

    id: str
    decision: Decision
    new_label: str = ""
    queue: str = ""


def guarded_cell(text: str) -> str:
    """Return a cell that no spreadsheet evaluates: text that starts like a formula is prefixed with an apostrophe.

    Example:
        >>> guarded_cell("=1+1"), guarded_cell("wren")
        ("'=1+1", 'wren')
    """
    return f"'{text}" if text.startswith(FORMULAS) else text


@final
class ReviewFile:
    """Append-only file of decisions; the last one on an item counts.

    Args:
        path: Path of the CSV file; it is created with the first decision.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def add(self, item: Item, review: Review) -> None:
        """Append a decision; it is on disk when this returns."""
        if review.decision == "relabel" and not review.new_label.strip():
            raise InputError("Give a new label, or decide to keep or remove the item.")
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
        """Return the last decision on each item, by its id as text."""
        latest = {}
        for row in map(_plain_row, self._rows()):
            if row["decision"] in ("keep", "relabel", "remove"):
                latest[row["id"]] = Review(row["id"], row["decision"], row["new_label"], row["queue"])  # type: ignore[arg-type]
        return latest

    def content(self, shown: Callable[[dict[str, str]], dict[str, str]] = dict) -> bytes:
        """Return the content of the file; only the header row if there is no file yet.

        Args:
            shown: Function from the cells of a row, by column, to those that are shown.
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
