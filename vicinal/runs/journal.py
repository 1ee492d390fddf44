"""Journals: the records of a comparison, one line each, which several processes write and a kill does not spoil."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from filelock import FileLock
from pydantic import ValidationError

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.files import sealed, sync_folder, unsealed
from vicinal.embedder.folder import IN_COMPARISON
from vicinal.errors import DataError, InputError
from vicinal.runs.record import Record, refusal
from vicinal.runs.run import Run

__all__ = ["Journal", "OpenJournal", "read_journals"]

JOURNAL, LOCK, RUNS = "journal.jsonl", ".journal.lock", "trials"


@final
@dataclass(frozen=True)
class Journal:
    """The journal of a comparison's folder, and where the folders of its runs are.

    Attributes:
        folder: Of the comparison.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """Of the file."""
        return self.folder / JOURNAL

    @property
    def best(self) -> Path:
        """Where the comparison keeps the embedder to use."""
        return self.folder / IN_COMPARISON

    def run_folder(self, key: str) -> Path:
        """Return where the files of a run are."""
        return self.folder / RUNS / key

    def append(self, record: Record) -> None:
        """Add a record; several processes may do so at the same time.

        Raises:
            DataError: Where it cannot be written; the journal is then as it was.
        """
        line = sealed(record.model_dump_json().encode()) + b"\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # The system lets go of the lock when its process ends, however it ends.
            with FileLock(self.folder / LOCK), self.path.open("ab", buffering=0) as file:
                end = os.fstat(file.fileno()).st_size
                if end and not _ends_a_line(self.path):  # a process was killed while it wrote
                    line = b"\n" + line
                try:
                    if file.write(line) != len(line):
                        raise OSError(28, "No space left on device")  # noqa: TRY301 (handled with the disk's own errors)
                    os.fsync(file.fileno())
                    if not end:
                        sync_folder(self.folder)
                except OSError:
                    file.truncate(end)
                    if not end:  # there was no journal before
                        with suppress(OSError):
                            self.path.unlink()
                    raise
        except OSError as error:
            raise DataError(
                f"Could not write to the journal {self.path}: {error.strerror}.",
                hint="Free some space or choose another folder, then give the same command again: finished runs stay.",
            ) from error

    def records(self) -> list[Record]:
        """Return the newest record of each run; none where nothing was written yet."""
        return [run.record for run in read_journals([self.folder])] if self.path.exists() else []


@final
class OpenJournal:
    """The journal of a comparison that is at work: read once, and then kept in memory beside the file.

    Args:
        folder: Folder of the comparison, in which no other process is at work.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder)
        self._records: dict[tuple[str, bool], Record] = {}
        for record in self._journal.records():
            _take(record, self._records)

    def append(self, record: Record) -> None:
        """Add a record to the file and to what is in memory.

        Raises:
            DataError: Where it cannot be written; the journal is then as it was.
        """
        self._journal.append(record)
        _take(record, self._records)

    @property
    def records(self) -> list[Record]:
        """The newest record of each run."""
        return list(self._records.values())

    def runs(self, trust: Trust = NO_TRUST) -> list[Run]:
        """Return the same with the folders of the runs, as `read_journals` does."""
        return [_run(record, [self._journal], trust) for record in self.records]


def read_journals(folders: Sequence[str | Path], trust: Trust = NO_TRUST) -> list[Run]:
    """Read the journals of one or several folders (of several machines, say), the newest record of each run.

    A run that was done anywhere counts as done. A line that a killed process left half-written is passed over.

    Args:
        folders: That `vicinal compare` wrote.
        trust: The code that the runs may name.
    """
    journals = [Journal(Path(folder)) for folder in folders]
    found: dict[tuple[str, bool], Record] = {}
    for journal in journals:
        if not journal.path.exists():
            raise InputError(
                f"{journal.folder} holds no comparison: {journal.path} does not exist. Make one with `vicinal compare`."
            )
        for number, line in enumerate(journal.path.read_bytes().splitlines(), 1):
            record = _record(journal.path, number, line)
            if record is None:
                continue
            _take(record, found)
    return [_run(record, journals, trust) for record in found.values()]


def _take(record: Record, records: dict[tuple[str, bool], Record]) -> None:
    """Put a record in the place of the former one of its run, unless that is done and this one failed."""
    run = record.key, record.same_batches  # the same run may belong to comparisons under both rules
    if not (run in records and records[run].status == "done" and record.status == "failed"):
        records[run] = record


def _run(record: Record, journals: Sequence[Journal], trust: Trust) -> Run:
    folders = [journal.run_folder(record.key) for journal in journals]
    return Run(record, next((folder for folder in folders if folder.is_dir()), None), trust=trust)


def _record(path: Path, number: int, line: bytes) -> Record | None:
    """Return the record of a line; None for one that a killed process left half-written."""
    text, seal = unsealed(line)
    if seal == "damaged":
        raise _damaged(path, number)
    if seal == "torn":
        return None
    try:
        return Record.model_validate_json(text)
    except ValidationError as error:
        raise DataError(
            f"Line {number} of {path} is not a record that this vicinal reads: {refusal(error)}.",
            hint="Read it with the vicinal that wrote it, or start the comparison anew in another folder.",
        ) from None


def _damaged(path: Path, number: int) -> DataError:
    return DataError(
        f"Line {number} of {path} is damaged: its content is not what its checksum says.",
        hint="Put back a copy of the journal; or delete that line and give the command of the comparison again, which "
        "does that run anew.",
    )


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
