"""A connection to a file of SQLite: for those who may write, for those who may not, and what is said if it fails."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from vicinal.errors import DataError

__all__ = ["DAMAGE", "RESTORE", "Stamp", "connect", "connect_to_read", "in_use", "stamp_of", "unreadable"]

Stamp: TypeAlias = tuple[tuple[int, ...], bool]

# SQLite quotes what it cannot read in its message, which then need not be text.
DAMAGE = (sqlite3.Error, UnicodeDecodeError)
RESTORE = "Restore it from a copy, or build it again; `vicinal index FOLDER --rollback` goes back to what was before."


def connect_to_read(path: Path) -> tuple[sqlite3.Connection, Stamp | None]:
    """A connection, to write as well where one may; and a stamp, if it is right only while the file has that one."""
    if not path.is_file():
        raise DataError(f"{path} is missing.", hint=RESTORE)
    here = os.access(path.parent, os.W_OK)
    if here and os.access(path, os.W_OK):
        return connect(path), None
    stamp = stamp_of(path)
    if here or stamp[1]:  # the log of a writer is there, or what tells of it can be made
        return connect(path, "?mode=ro"), None
    return connect(path, "?mode=ro&immutable=1"), stamp


def stamp_of(path: Path) -> Stamp:
    """What changes when the file does, or is about to: a writer has a log beside it."""
    try:
        status = path.stat()
    except OSError:
        return (), False
    log = path.with_name(f"{path.name}-wal")
    return (status.st_ino, status.st_size, status.st_mtime_ns), log.is_file() and log.stat().st_size > 0


def connect(path: Path, how: str = "") -> sqlite3.Connection:
    """A connection that syncs what it commits; `how` is what SQLite's address says after the path."""
    address = f"file:{quote(str(path.absolute()))}{how}"
    try:
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=60)
    except sqlite3.Error as error:
        raise unreadable(path, error) from error
    try:
        connection.execute("PRAGMA synchronous = full")
    except DAMAGE as error:
        connection.close()
        raise unreadable(path, error) from error
    return connection


def in_use(path: Path) -> bool:
    """Whether anybody has the file open, in this process or another; for one that is about to be removed.

    SQLite leaves the write-ahead log for good only where nobody else has the file open.
    """
    if not path.is_file():
        return False
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            return bool(connection.execute("PRAGMA journal_mode = delete").fetchone()[0] == "wal")
        finally:
            connection.close()
    except sqlite3.Error as error:
        return "locked" in str(error)  # a damaged file is of no use to anybody


def unreadable(path: Path, error: Exception) -> DataError:
    """What is said of an error of SQLite, with what to do about it."""
    if "locked" in str(error):
        return DataError(f"{path} is busy: {error}.", hint="Try again when the other program is done.")
    if "readonly" in str(error):
        return DataError(
            f"{path} cannot be written: you have no permission to, or its disk is read-only.",
            hint="Searching is possible; changes are for who may write to the folder.",
        )
    if "unable to open" in str(error):
        return DataError(
            f"{path} cannot be opened: {error}.",
            hint="A writer may have been killed: who may write to the folder has to search it once.",
        )
    if "full" in str(error):
        return DataError(
            f"{path} cannot be written: {error}.", hint="Free some space; all that was added before is safe."
        )
    return DataError(f"{path} cannot be used: {error}.", hint=RESTORE)
