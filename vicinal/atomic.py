"""Files that appear whole or not at all: written beside their name, synced, then renamed."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vicinal.errors import DataError
from vicinal.machine import is_gone, this_process

__all__ = ["prepare_output", "remove_partial_files", "replacing", "replacing_path", "sync_folder", "write_atomically"]


def prepare_output(path: Path | None) -> None:
    """Find out before the work whether its result can be written; folders above the file are made.

    Args:
        path: Of the file; None for none.

    Raises:
        DataError: Where the file could not be written.
    """
    if path is None:
        return
    if os.path.isdir(path):  # which takes any name, however long
        raise DataError(f"Cannot write {path}: it is a folder.", hint="Give the name of a file.")
    partial = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only an attempt tells: permissions, quotas and read-only disks all show here, for any user.
        with partial.open("xb") as file:
            file.write(b"\0")
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot write {path}: {_reason(error)}.", hint="Choose another place.") from error
    finally:
        with suppress(OSError, ValueError):
            partial.unlink(missing_ok=True)


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes `path` at the end; a reader sees the old content or the new one.

    Raises:
        DataError: Where the file cannot be written; what was there before stays.
    """
    partial = _beside(path)
    try:
        _sweep(path)
        with partial.open("xb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
        yield partial
        # Some writers make a file of their own that nobody else may read; this one follows the umask as all do.
        partial.chmod(mode)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise DataError(
            f"Could not write {path}: {_reason(error)}.",
            hint="Free some space or choose another place; what was there before is untouched.",
        ) from error
    finally:
        with suppress(OSError):  # a folder that is gone or cannot be written to says so elsewhere
            partial.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing so that a reader sees the old content or the new, never a part."""
    with replacing_path(path) as partial, partial.open("wb") as file:
        yield file


def write_atomically(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk: a file that was renamed is not there after a power cut before they are."""
    with suppress(OSError):  # not every system lets a folder be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_partial_files(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left in a folder that this process has locked."""
    for partial in folder.glob(".*.partial"):
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove what processes that were killed while they wrote this file have left of it; all others may be at work."""
    prefix = _prefix(path)
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(".partial"):
            writer = name.removeprefix(prefix).rpartition("-")[0]
            if is_gone(writer.replace("-", " ")):
                with suppress(OSError):
                    path.with_name(name).unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    # With a number of its own, as two runs, or two threads, may write the same features at the same time.
    return path.with_name(f"{_prefix(path)}{this_process().replace(' ', '-')}-{secrets.token_hex(4)}.partial")


def _prefix(path: Path) -> str:
    # The name of a file may have 255 bytes, of which what follows here takes up to 70.
    too_long = len(os.fsencode(path.name)) > 180
    return f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16] if too_long else path.name}."


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).rstrip(".")
