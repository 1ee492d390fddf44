"""Write files atomically, flush them to disk, and protect them by checksums."""

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
    """Check before the work whether its result can be written; parent folders are created.

    Args:
        path: Path of the file; None to check nothing.

    Raises:
        DataError: If the file cannot be written.
    """
    if path is None:
        return
    if os.path.isdir(path):  # works for names of any length
        raise DataError(f"Cannot write {path}: it is a folder.", hint="Give the name of a file.")
    partial = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only an attempt detects permissions, quotas and read-only disks for any user.
        with partial.open("xb") as file:
            file.write(b"\0")
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot write {path}: {_reason(error)}.", hint="Choose another path.") from error
    finally:
        with suppress(OSError, ValueError):
            partial.unlink(missing_ok=True)


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes `path` at the end; a reader sees the old content or the new one.

    Raises:
        DataError: If the file cannot be written; the previous content stays.
    """
    partial = _beside(path)
    try:
        _sweep(path)
        with partial.open("xb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
        yield partial
        # Some writers create the file again, readable by its owner only; restore the mode of the umask.
        partial.chmod(mode)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise DataError(
            f"Could not write {path}: {_reason(error)}.",
            hint="Free some space or choose another path. The previous file is unchanged.",
        ) from error
    finally:
        with suppress(OSError):  # a folder that is missing or read-only raises an error elsewhere
            partial.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing so that a reader sees the old or the new content, never a part."""
    with replacing_path(path) as partial, partial.open("wb") as file:
        yield file


def write_atomically(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk; without it, a rename may be lost after a power cut.

    Does nothing on systems that do not support it (Windows, some network file systems); a failing disk is an error.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows cannot open folders, and syncs names itself
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_partial_files(folder: Path) -> None:
    """Remove partial files of killed processes from a folder that this process has locked."""
    for partial in folder.glob(".*.partial"):
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove partial files of this file from processes that are known to have ended; others may still be writing."""
    prefix = _prefix(path)
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(".partial"):
            writer = name.removeprefix(prefix).rpartition("-")[0]
            if is_gone(writer.replace("-", " ")):
                with suppress(OSError):
                    path.with_name(name).unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    # With a random suffix, since two runs, or two threads, may write the same features at the same time.
    return path.with_name(f"{_prefix(path)}{this_process().replace(' ', '-')}-{secrets.token_hex(4)}.partial")


def _prefix(path: Path) -> str:
    # A file name may have 255 bytes; the part added to it takes up to 70.
    too_long = len(os.fsencode(path.name)) > 180
    return f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16] if too_long else path.name}."


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).rstrip(".")


# Files of an index: writes that are on disk when a call returns, and caches that can be recomputed.

CHUNK = 1 << 30  # systems write at most 2 GB at a time


def write_at(path: Path, offset: int, content: bytes | memoryview) -> None:
    """Write bytes at an offset of a file, which is created if it does not exist; nothing is synced yet."""
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
    """Rename a file or folder, replacing an existing one, and flush the change to disk."""
    os.replace(source, target)
    sync_folder(target.parent)


@final
@dataclass(frozen=True)
class CachedFile:
    """A file that can be recomputed, with a JSON file that records what it was computed from.

    A file that is missing, damaged, of another version or of other data is not read: its owner recomputes it. In a
    read-only folder nothing is stored.

    Attributes:
        path: Path of the file; the JSON file has the same name and ends in .json.
        version: Version of the format.
    """

    path: Path
    version: int

    def read(self, fits: Callable[[Mapping[str, Any]], bool]) -> tuple[NDArray[np.uint8], Mapping[str, Any]] | None:
        """Return the memory-mapped bytes, and the fields that were written with them; None if they do not fit.

        Args:
            fits: Function that returns whether the fields match the current data.
        """
        import numpy as np  # imported here, since the command line imports this file for its help

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
        """Store bytes with fields that record what they were computed from."""
        fields = {**about, "version": self.version, "sha256": _checksum(about, content)}
        with suppress(DataError):  # the next process recomputes it
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


# JSON objects whose last field is a checksum of the rest, which detects damage that leaves valid JSON.

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
    """Return the content of a sealed object, and whether it is intact.

    A line that a killed process left half-written is "torn": it has no checksum, and does not end like one.

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
