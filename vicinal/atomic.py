"""Files that appear whole or not at all: written beside their name, synced, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vicinal.errors import DataError

__all__ = ["remove_partial_files", "replacing", "replacing_path", "write_atomically"]


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes `path` at the end; a reader sees the old content or the new one.

    Raises:
        DataError: Where the file cannot be written; what was there before stays.
    """
    # With the process's number, as two runs may write the same features at the same time.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise DataError(
            f"Could not write {path}: {error.strerror or error}.",
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
        file.write(text.encode())


def remove_partial_files(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left in a folder."""
    for partial in folder.glob(".*.partial"):
        with suppress(OSError):
            partial.unlink(missing_ok=True)
