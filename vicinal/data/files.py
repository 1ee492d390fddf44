"""Read files by path, whether they lie in a folder or inside a zip archive (`set.zip/inside/name.png`)."""

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
MOST_PIXELS = 50_000_000  # of an image: as RGB they take 150 MB
MANY = 256

# What Pillow raises for a file that is no image, is damaged or cut short, or is absurdly large. It documents OSError;
# the others are those that its plugins raise, or let through, for damaged input (from the source of Pillow 13, and
# checked by a test that damages pictures of 19 formats). Bugs of ours, such as a failed assertion, a missing import or
# a wrong name, are not among them.
IMAGE_ERRORS = (
    OSError,  # UnidentifiedImageError and cut files among them
    ValueError,
    SyntaxError,  # of a header
    EOFError,
    RuntimeError,  # NotImplementedError, for kinds of a format that are not known, among them
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,  # where warnings are errors
)

Watch: TypeAlias = Callable[[int, int], None]  # called with the number of files that are done, and of all


def archive_of(path: str) -> tuple[str, str] | None:
    """Split `a.zip/b/c.png` into the archive and the member; None if the path is a plain file's.

    Example:
        >>> archive_of("photos/one.jpg") is None
        True
    """
    head, found, member = path.partition(".zip/")
    return (head + ".zip", member) if found and os.path.isfile(head + ".zip") else None


def file_size(path: str) -> int:
    """Number of bytes of a file, on disk or in its archive."""
    place = archive_of(path)
    if place is None:
        return os.path.getsize(path)
    try:
        return open_archive(place[0]).getinfo(place[1]).file_size
    except KeyError:
        raise FileNotFoundError(path) from None


def read_bytes(path: str) -> bytes:
    """The whole content of a file, on disk or in its archive; OSError if there is none."""
    place = archive_of(path)
    if place is None:
        fault = fault_of_file(path)  # a pipe would be waited for forever
        if fault is not None and fault != "missing":
            raise OSError(f"{printable(path)} is {fault}")
        return Path(path).read_bytes()
    try:
        return open_archive(place[0]).read(place[1])
    except KeyError:
        raise FileNotFoundError(path) from None
    except Exception as error:  # of an archive that is damaged, encrypted or packed in a way that is not known
        raise OSError(f"{printable(path)}: {error}") from error


def open_header(content: bytes | str) -> Image.Image:
    """An image of which only the header was read: decoded when its pixels are used.

    Args:
        content: The bytes of a file, or its path.

    Raises:
        Exception: Whatever Pillow raises for what is not an image; DecompressionBombError where the header promises
            more than `MOST_PIXELS`: a few kilobytes can ask for gigabytes of memory.
    """
    image = Image.open(BytesIO(content) if isinstance(content, bytes) else content)
    check_pixels(image)
    return image


def check_pixels(image: Image.Image) -> None:
    """Refuse an image that is not decoded yet and would take too much memory."""
    if getattr(image, "tile", None) and image.width * image.height > MOST_PIXELS:
        raise Image.DecompressionBombError(
            f"its header promises {image.width:,} x {image.height:,} pixels, and {MOST_PIXELS:,} are decoded at most; "
            "scale it down"
        )


def upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF orientation says; itself, not decoded, where that says nothing."""
    try:
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
    except IMAGE_ERRORS:  # damaged metadata around sound pixels
        turned = False
    return ImageOps.exif_transpose(image) if turned else image


def open_archive(path: str) -> zipfile.ZipFile:
    """An open archive, kept for this process: a forked worker must not share a file position."""
    status = os.stat(path)
    return _open_archive(path, os.getpid(), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _open_archive(path: str, process: int, size: int, changed: int) -> zipfile.ZipFile:
    with reading(path, "a zip archive"):
        return zipfile.ZipFile(path)


def fault_of_image(error: Exception) -> str:
    """Say why an image cannot be read, in a few words."""
    if isinstance(error, UnidentifiedImageError):  # whose own words name an object in memory
        return type(error).__name__
    return f"{type(error).__name__}: {printable(error).partition(chr(10))[0][:200].rstrip('.')}"


@contextmanager
def decoding(path: object) -> Iterator[None]:
    """Name the image that cannot be decoded."""
    try:
        yield
    except IMAGE_ERRORS as error:
        raise DataError(
            f"{printable(path)} cannot be read as an image: {fault_of_image(error)}",
            hint="Mend it, or leave it out with skip_bad=True (--skip-bad).",
        ) from error


def map_files(function: Callable[[str], T], paths: Sequence[str], watch: Watch | None = None) -> list[T]:
    """Apply a function to every path, a few at a time so that slow disks are kept busy.

    Each thread has its own run of paths: handing them over one by one costs more than reading them.

    Args:
        function: Function of a path.
        paths: Paths of the files.
        watch: Callback, called after every file from the thread that has read it.

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
# Hashes by version: the same files are hashed for a dataset, for its views and for the features of every class.
_DIGESTS: dict[Version, bytes] = {}


def version_of(path: str) -> Version:
    """Path, size and time of change of a file: while they are the same, so is its content."""
    place = archive_of(path)
    status = os.stat(path if place is None else place[0])
    return path, status.st_size, status.st_mtime_ns


def digest(path: str, content: bytes | None = None) -> bytes:
    """SHA-256 of a file's bytes, remembered while the file does not change.

    Args:
        path: Of the file.
        content: Bytes of the file, where it was just read.
    """
    version = version_of(path)
    if version not in _DIGESTS:
        _DIGESTS[version] = hashlib.sha256(read_bytes(path) if content is None else content).digest()
    return _DIGESTS[version]
