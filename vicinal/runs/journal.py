"""Journals: the records of a comparison, one line each; safe for several processes and if one of them is killed."""

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
    """Journal of a comparison's folder, and paths of the folders of its runs.

    Attributes:
        folder: Folder of the comparison.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """Path of the journal file."""
        return self.folder / JOURNAL

    @property
    def best(self) -> Path:
        """Folder of the best embedder of the comparison."""
        return self.folder / IN_COMPARISON

    def run_folder(self, key: str) -> Path:
        """Return the folder of a run."""
        return self.folder / RUNS / key

    def append(self, record: Record) -> None:
        """Add a record; several processes may do so at the same time.

        Raises:
            DataError: If it cannot be written; the journal is then unchanged.
        """
        line = sealed(record.model_dump_json().encode()) + b"\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # The system releases the lock when the process ends, even if it is killed.
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
                hint="Free some space or choose another folder, then repeat the command: finished runs are kept.",
            ) from error

    def records(self) -> list[Record]:
        """Return the newest record of each run; empty if there is no journal yet."""
        return [run.record for run in read_journals([self.folder])] if self.path.exists() else []


@final
class OpenJournal:
    """Journal of a running comparison: read once, and then cached in memory.

    Args:
        folder: Folder of the comparison, which no other process may use.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder)
        self._records: dict[tuple[str, bool], Record] = {}
        for record in self._journal.records():
            _take(record, self._records)

    def append(self, record: Record) -> None:
        """Add a record to the file and to the records in memory.

        Raises:
            DataError: If it cannot be written; the journal is then unchanged.
        """
        self._journal.append(record)
        _take(record, self._records)

    @property
    def records(self) -> list[Record]:
        """The newest record of each run."""
        return list(self._records.values())

    def runs(self, trust: Trust = NO_TRUST) -> list[Run]:
        """Return the runs of these records, as `read_journals` does."""
        return [_run(record, [self._journal], trust) for record in self.records]


def read_journals(folders: Sequence[str | Path], trust: Trust = NO_TRUST) -> list[Run]:
    """Read the journals of one or several folders (from several machines, for example): the newest record of each run.

    A run that is done in any folder is done. An incomplete line, left by a killed process, is ignored.

    Args:
        folders: Folders written by `vicinal compare`.
        trust: Code that the runs may name.
    """
    journals = [Journal(Path(folder)) for folder in folders]
    records: dict[tuple[str, bool], Record] = {}
    for journal in journals:
        if not journal.path.exists():
            raise InputError(
                f"{journal.folder} holds no comparison: {journal.path} does not exist. Run `vicinal compare` first."
            )
        for number, line in enumerate(journal.path.read_bytes().splitlines(), 1):
            record = _record(journal.path, number, line)
            if record is None:
                continue
            _take(record, records)
    return [_run(record, journals, trust) for record in records.values()]


def _take(record: Record, records: dict[tuple[str, bool], Record]) -> None:
    """Replace the earlier record of a run, unless that is done and the new one failed."""
    run = record.key, record.same_batches  # the same run may belong to comparisons under both rules
    if not (run in records and records[run].status == "done" and record.status == "failed"):
        records[run] = record


def _run(record: Record, journals: Sequence[Journal], trust: Trust) -> Run:
    folders = [journal.run_folder(record.key) for journal in journals]
    return Run(record, next((folder for folder in folders if folder.is_dir()), None), trust=trust)


def _record(path: Path, number: int, line: bytes) -> Record | None:
    """Return the record of a line; None for an incomplete line, left by a killed process."""
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
            hint="Read it with the vicinal that wrote it, or start a new comparison in another folder.",
        ) from None


def _damaged(path: Path, number: int) -> DataError:
    return DataError(
        f"Line {number} of {path} is corrupted: its checksum does not match.",
        hint="Restore a copy of the journal, or delete that line and run the same command to repeat the run.",
    )


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
