"""Files written whole or not at all, flushed to disk, and sealed with a checksum."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, final

from vicinal._util.machine import is_gone, this_process
from vicinal.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "CachedFile",
    "prepare_output",
    "remove_partial_files",
    "rename",
    "replacing",
    "replacing_path",
    "sealed",
    "sync_file",
    "sync_folder",
    "unsealed",
    "write_at",
    "write_atomically",
]


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
    """Put the names in a folder on disk: a file that was renamed is not there after a power cut before they are.

    Where a system cannot do that (Windows, some network file systems) nothing is done; a disk that fails is an error.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders, and syncs names by itself
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
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


# Files of an index: changes that are on the disk when a call returns, and caches that can be computed again.

CHUNK = 1 << 30  # systems write at most 2 GB at a time


def write_at(path: Path, offset: int, content: bytes | memoryview) -> None:
    """Write bytes at a position of a file, which is made if it is not there; nothing is synced yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        os.lseek(descriptor, offset, os.SEEK_SET)
        rest = memoryview(content).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest[:CHUNK]) :]
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Flush a file to disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def rename(source: Path, target: Path) -> None:
    """Give a file or folder its name, in place of what has it, and flush that to disk."""
    os.replace(source, target)
    sync_folder(target.parent)


@final
@dataclass(frozen=True)
class CachedFile:
    """A file that can be computed again, beside a JSON file that says what it was computed from.

    A file that is missing, damaged, of another version or of other data is not read: its owner computes it again. A
    folder that cannot be written to keeps nothing.

    Attributes:
        path: Path of the file; the JSON file has the same name and ends in .json.
        version: Version of the format.
    """

    path: Path
    version: int

    def read(self, fits: Callable[[Mapping[str, Any]], bool]) -> tuple[NDArray[np.uint8], Mapping[str, Any]] | None:
        """Return the bytes, mapped from the file, and the fields that were written with them; None if they do not fit.

        Args:
            fits: Whether the fields are those of the present data.
        """
        import numpy as np  # here, as the command line imports this file for its help

        try:
            about = json.loads(self._beside.read_text(encoding="utf-8"))
            checksum, version = about.pop("sha256"), about.pop("version")
            if version != self.version or not fits(about):
                return None
            size = self.path.stat().st_size
            content = np.memmap(self.path, np.uint8, "r") if size else np.empty(0, np.uint8)
            return (content, about) if _checksum(about, content.data) == checksum else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def write(self, content: bytes | memoryview, about: Mapping[str, Any]) -> None:
        """Keep bytes with fields that say what they were computed from."""
        fields = {**about, "version": self.version, "sha256": _checksum(about, content)}
        with suppress(DataError):  # the next process computes it again
            with replacing(self.path) as file:
                file.write(content)
            write_atomically(self._beside, json.dumps(fields) + "\n")

    @property
    def _beside(self) -> Path:
        return self.path.with_suffix(".json")


def _checksum(about: Mapping[str, Any], content: bytes | memoryview) -> str:
    total = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    total.update(content)
    return total.hexdigest()


# JSON objects whose last field is a checksum of the rest: damage that leaves them valid JSON is seen.

DIGITS = 16
SEAL = b',"sha256":"%s"}'
LENGTH = len(SEAL % (b"0" * DIGITS))


def sealed(text: bytes) -> bytes:
    """Return a JSON object with its checksum as the last field.

    Example:
        >>> sealed(b'{"step": 1}')
        b'{"step": 1,"sha256":"66acd07fcea20439"}'
    """
    return text[:-1] + SEAL % hashlib.sha256(text).hexdigest()[:DIGITS].encode()


def unsealed(text: bytes) -> tuple[bytes, Literal["sealed", "torn", "damaged"]]:
    """Return what was sealed, and whether it still is what it was.

    A line that a killed process left half-written is "torn": it has no checksum, and does not end as one does.

    Example:
        >>> unsealed(sealed(b'{"step": 1}'))
        (b'{"step": 1}', 'sealed')
        >>> unsealed(sealed(b'{"step": 1}').replace(b"1,", b"2,"))[1]
        'damaged'
    """
    if not text[-LENGTH:].startswith(b',"sha256":"'):
        return text, "damaged" if text.endswith(b'"}') else "torn"
    content = text[:-LENGTH] + b"}"
    return content, "sealed" if sealed(content) == text else "damaged"
