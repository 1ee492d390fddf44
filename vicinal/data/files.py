"""Read files by path, in a folder or inside a zip archive (`set.zip/inside/name.png`)."""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TypeAlias, TypeVar

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from vicinal._util.reading import fault_of_file, printable, reading
from vicinal.errors import DataError

T = TypeVar("T")
THREADS = 4
MOST_PIXELS = 50_000_000  # limit for an image: 150 MB as RGB
MANY = 256

# Errors that Pillow raises for a file that is not an image, is damaged or truncated, or is far too large. It documents
# OSError; its plugins raise the others, or let them through, for damaged input (from the source of Pillow 13, and
# checked by a test that damages images of 19 formats). Errors that indicate bugs in vicinal, such as a failed
# assertion, a missing import or a wrong name, are not included.
IMAGE_ERRORS = (
    OSError,  # includes UnidentifiedImageError and truncated files
    ValueError,
    SyntaxError,  # for an invalid header
    EOFError,
    RuntimeError,  # includes NotImplementedError, for unsupported variants of a format
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,  # if warnings are errors
)

Watch: TypeAlias = Callable[[int, int], None]  # called with the number of files done and the total


def archive_of(path: str) -> tuple[str, str] | None:
    """Split `a.zip/b/c.png` into the archive and the member; None if the path is not inside an archive.

    Example:
        >>> archive_of("photos/one.jpg") is None
        True
    """
    head, separator, member = path.partition(".zip/")
    return (head + ".zip", member) if separator and os.path.isfile(head + ".zip") else None


def file_size(path: str) -> int:
    """Return the size of a file in bytes, on disk or in its archive."""
    archived = archive_of(path)
    if archived is None:
        return os.path.getsize(path)
    try:
        return open_archive(archived[0]).getinfo(archived[1]).file_size
    except KeyError:
        raise FileNotFoundError(path) from None


def read_bytes(path: str) -> bytes:
    """Return the whole content of a file, on disk or in its archive; raises OSError if there is none."""
    archived = archive_of(path)
    if archived is None:
        fault = fault_of_file(path)  # reading a pipe would block forever
        if fault is not None and fault != "missing":
            raise OSError(f"{printable(path)} is {fault}")
        return Path(path).read_bytes()
    try:
        return open_archive(archived[0]).read(archived[1])
    except KeyError:
        raise FileNotFoundError(path) from None
    except Exception as error:  # the archive is damaged, encrypted or compressed by an unknown method
        raise OSError(f"{printable(path)}: {error}") from error


def open_header(content: bytes | str) -> Image.Image:
    """Return an image of which only the header is read; it is decoded when its pixels are used.

    Args:
        content: Bytes of a file, or its path.

    Raises:
        Exception: Any error of Pillow for a file that is not an image; DecompressionBombError if the header declares
            more than `MOST_PIXELS`, since a few kilobytes can decode to gigabytes.
    """
    image = Image.open(BytesIO(content) if isinstance(content, bytes) else content)
    check_pixels(image)
    return image


def check_pixels(image: Image.Image) -> None:
    """Raise an error if an image is not yet decoded and would take too much memory."""
    if getattr(image, "tile", None) and image.width * image.height > MOST_PIXELS:
        raise Image.DecompressionBombError(
            f"it has {image.width:,} x {image.height:,} pixels, more than the {MOST_PIXELS:,} allowed; scale it down"
        )


def upright(image: Image.Image) -> Image.Image:
    """Return the image rotated by its EXIF orientation; the same object, not decoded, if it needs no rotation."""
    try:
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
    except IMAGE_ERRORS:  # damaged metadata, but intact pixels
        turned = False
    return ImageOps.exif_transpose(image) if turned else image


def open_archive(path: str) -> zipfile.ZipFile:
    """Return an open archive, cached per process: a forked worker must not share a file position."""
    status = os.stat(path)
    return _open_archive(path, os.getpid(), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _open_archive(path: str, process: int, size: int, changed: int) -> zipfile.ZipFile:
    with reading(path, "a zip archive"):
        return zipfile.ZipFile(path)


def fault_of_image(error: Exception) -> str:
    """Return in a few words why an image cannot be read."""
    if isinstance(error, UnidentifiedImageError):  # its message contains the address of an object
        return type(error).__name__
    return f"{type(error).__name__}: {printable(error).partition(chr(10))[0][:200].rstrip('.')}"


@contextmanager
def decoding(path: object) -> Iterator[None]:
    """Turn errors of decoding an image into a DataError that names the image."""
    try:
        yield
    except IMAGE_ERRORS as error:
        raise DataError(
            f"{printable(path)} cannot be read as an image: {fault_of_image(error)}",
            hint="Fix it, or skip it with skip_bad=True (--skip-bad).",
        ) from error


def map_files(function: Callable[[str], T], paths: Sequence[str], watch: Watch | None = None) -> list[T]:
    """Apply a function to every path, a few at a time to keep slow disks busy.

    Each thread gets a contiguous run of paths: dispatching them one by one costs more than reading them.

    Args:
        function: Function of a path.
        paths: Paths of the files.
        watch: Callback, called after every file, from the thread that read it.

    Example:
        >>> map_files(len, ["a", "bcd", "ef"])
        [1, 3, 2]
    """
    done = count(1)

    def apply(path: str) -> T:
        result = function(path)
        if watch is not None:
            watch(next(done), len(paths))
        return result

    if len(paths) < MANY:  # starting threads would take longer
        return [apply(path) for path in paths]
    length = -(-len(paths) // THREADS)
    runs = [paths[start : start + length] for start in range(0, len(paths), length)]
    with ThreadPoolExecutor(THREADS) as pool:
        return [result for run in pool.map(lambda run: [apply(path) for path in run], runs) for result in run]


Version = tuple[str, int, int]
# Cached hashes: the same files are hashed for a dataset, for its views and for the features of every class.
_DIGESTS: dict[Version, bytes] = {}


def version_of(path: str) -> Version:
    """Return path, size and modification time of a file, which identify its content."""
    archived = archive_of(path)
    status = os.stat(path if archived is None else archived[0])
    return path, status.st_size, status.st_mtime_ns


def digest(path: str, content: bytes | None = None) -> bytes:
    """Return the SHA-256 of a file's bytes, cached as long as the file does not change.

    Args:
        path: Path of the file.
        content: Bytes of the file, if it was just read.
    """
    version = version_of(path)
    if version not in _DIGESTS:
        _DIGESTS[version] = hashlib.sha256(read_bytes(path) if content is None else content).digest()
    return _DIGESTS[version]
