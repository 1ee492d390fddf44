"""Rows of features in a file that is filled as they arrive: it survives a kill, and damage is noticed.

A finished file is a NumPy array with the SHA-256 of all its bytes behind it: `numpy.load` reads it, mapped or not.
While it is filled its name ends in `.part`, and beside it a `.rows` file says which rows are there: for each its number
and the checksum of its bytes, so that a row counts only if it arrived whole.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
import numpy.typing as npt

from vicinal.atomic import sync_folder
from vicinal.errors import DataError

__all__ = ["ArrivingRows", "explaining", "read_rows"]

ENTRY = struct.Struct("<II")  # number of the row, checksum of its bytes
DIGEST = hashlib.sha256().digest_size
Rows = npt.NDArray[np.floating[Any]]


def read_rows(path: Path, shape: tuple[int, int], dtype: npt.DTypeLike) -> Rows | None:
    """Return a finished file's rows, mapped into memory; None if it is absent, damaged or of another shape."""
    head, size = _layout(shape, dtype)
    try:
        if path.stat().st_size != size + DIGEST:
            return None
        with path.open("rb") as file:
            if file.read(len(head)) != head or _digest(file, size) != file.read(DIGEST):
                return None
        rows = np.memmap(path, dtype=dtype, mode="r", offset=len(head), shape=shape)
    except OSError:
        return None
    with suppress(OSError):  # of a process that was killed when the file had its name already
        path.with_suffix(".rows").unlink(missing_ok=True)
    return rows


@contextmanager
def explaining(folder: Path) -> Iterator[None]:
    """Say what can be done where a folder of features cannot be written to."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Could not keep features in {folder}: {error}.",
            hint="Free some space, or name another folder in VICINAL_CACHE; what was stored is kept.",
        ) from error


def _layout(shape: tuple[int, int], dtype: npt.DTypeLike) -> tuple[bytes, int]:
    """Return what a NumPy file of this kind begins with, and its length."""
    head = BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    )
    return head.getvalue(), len(head.getvalue()) + shape[0] * shape[1] * np.dtype(dtype).itemsize


def _digest(file: BinaryIO, size: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (chunk := file.read(min(size, 1 << 20))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.digest()


@final
class ArrivingRows:
    """The rows of one file while they arrive, by one process at a time; those of a killed process count.

    Args:
        path: Where the finished file will be.
        shape: Rows and numbers per row.
        dtype: Of the numbers.
    """

    def __init__(self, path: Path, shape: tuple[int, int], dtype: npt.DTypeLike) -> None:
        self.path, self.shape, self.dtype = path, shape, np.dtype(dtype)
        self._part, self._entries = path.with_suffix(".part"), path.with_suffix(".rows")
        self._head, self._size = _layout(shape, dtype)
        self._row_size = shape[1] * self.dtype.itemsize
        self.present = self._found()
        if self.present.all():  # a process was killed after the last row, before the file had its name
            with explaining(path.parent):
                self._finish()

    def _found(self) -> npt.NDArray[np.bool_]:
        present = np.zeros(self.shape[0], dtype=bool)
        with suppress(OSError), self._part.open("rb") as part:
            entries = self._entries.read_bytes()
            if part.read(len(self._head)) != self._head:
                return present
            for row, checksum in ENTRY.iter_unpack(entries[: len(entries) // ENTRY.size * ENTRY.size]):
                if row < len(present):
                    part.seek(len(self._head) + row * self._row_size)
                    present[row] = zlib.crc32(part.read(self._row_size)) == checksum
        return present

    @property
    def missing(self) -> npt.NDArray[np.int64]:
        """The rows that are still to come."""
        return np.flatnonzero(~self.present)

    def put(self, numbers: Sequence[int] | npt.NDArray[np.int64], rows: Rows) -> None:
        """Store some rows; when this returns, a kill does not lose them. The last ones finish the file."""
        with explaining(self.path.parent):
            fresh = not self.present.any()
            with self._part.open("wb" if fresh else "r+b") as part, self._entries.open("wb" if fresh else "ab") as log:
                if fresh:
                    part.write(self._head)
                else:  # a process may have been killed in the middle of an entry
                    log.truncate(log.tell() // ENTRY.size * ENTRY.size)
                entries = b""
                for number, row in zip(numbers, rows, strict=True):
                    content = np.ascontiguousarray(row, dtype=self.dtype).tobytes()
                    part.seek(len(self._head) + int(number) * self._row_size)
                    part.write(content)
                    entries += ENTRY.pack(int(number), zlib.crc32(content))
                part.flush()  # the rows first: an entry without its row would be found out, but cost a computation
                log.write(entries)
            self.present[np.asarray(numbers, dtype=np.int64)] = True
            if self.present.all():
                self._finish()

    def _finish(self) -> None:
        with self._part.open("r+b") as part:
            part.truncate(self._size)
            digest = _digest(part, self._size)
            part.seek(self._size)
            part.write(digest)
            part.flush()
            os.fsync(part.fileno())
        os.replace(self._part, self.path)
        sync_folder(self.path.parent)
        self._entries.unlink(missing_ok=True)
