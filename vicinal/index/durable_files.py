"""The few ways in which an index changes files, each of which is over when it returns: on the disk, not on its way."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["rename", "sync_file", "sync_folder", "write_at"]

CHUNK = 1 << 30  # systems write at most 2 GB at a time


def write_at(path: Path, offset: int, content: bytes | memoryview) -> None:
    """Write bytes at a place of a file, which is made if it is not there; nothing is synced yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        os.lseek(descriptor, offset, os.SEEK_SET)
        rest = memoryview(content).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest[:CHUNK]) :]
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Have a file's content on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have a folder's names on the disk, where the system can be told to (Windows does it by itself)."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Give a file or folder its name, in place of what has it, and have that on the disk."""
    os.replace(source, target)
    sync_folder(target.parent)
