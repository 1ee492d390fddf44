"""Read external files; anything unreadable raises one kind of error, with the file and what to do.

The parsers belong to other libraries, and on damaged input they raise arbitrary exceptions: dozens of kinds have been
seen. `reading` therefore turns any exception inside it into a `DataError`; only the parsing itself belongs inside.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import stat
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.errors import DataError, MissingExtra, VicinalError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

__all__ = [
    "fault_of_file",
    "matrix_of_lists",
    "printable",
    "read_arrays",
    "read_content",
    "read_csv",
    "read_json",
    "read_mat",
    "read_parquet",
    "read_tensors",
    "read_text",
    "read_toml",
    "reading",
    "require_file",
]

INFLATION = 1100  # upper bound of the bytes that one byte of an archive can expand to
PIECE = 1 << 24
MAT_SECONDS = 120
DAMAGED = "It may be cut short or damaged: copy or make it again."


def printable(text: object) -> str:
    r"""Return a text that can be printed and written: bytes of a file name that are not UTF-8 are escaped.

    Example:
        >>> printable("caf\udce9")
        'caf\\udce9'
    """
    return str(text).encode("utf-8", "backslashreplace").decode()


def fault_of_file(path: str | Path) -> str | None:
    """Return in a few words why a path cannot be read; None for a file.

    Only files are read: a pipe could block forever, and a device never ends.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "missing"
    except (OSError, ValueError) as error:  # a link to itself; an invalid file name
        return f"unreadable ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISREG(mode):
        return None
    return "a folder" if stat.S_ISDIR(mode) else "not a file (a pipe, a socket or a device)"


def require_file(path: str | Path) -> None:
    """Raise an error if there is no file at a path.

    Raises:
        DataError: If there is none; the message says what is there instead.
    """
    fault = fault_of_file(path)
    if fault == "missing":
        raise DataError(f"{printable(path)} does not exist.", hint="Check the path.")
    if fault is not None:
        raise DataError(f"{printable(path)} cannot be read: it is {fault}.", hint="Give the path of a file.")


@contextmanager
def reading(path: str | Path, kind: str, hint: str = DAMAGED) -> Iterator[None]:
    """Turn any exception while a file is parsed into an error that names the file.

    Args:
        path: Path of the file, which must be a regular file.
        kind: Expected kind of file, such as "a table (.csv)".
        hint: Advice to the user.

    Raises:
        DataError: If the file cannot be read as that kind.
    """
    require_file(path)
    try:
        yield
    except VicinalError:
        raise
    except Exception as error:  # parsers raise arbitrary exceptions, see above
        raise DataError(f"{printable(path)} is not {kind} that can be read: {_reason(error)}.", hint=hint) from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.object[error.start]:#04x} at position {error.start:,} is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it asks for more memory than there is"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = printable(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300].rstrip('.')}" if lines else type(error).__name__


def read_content(path: str | Path) -> bytes:
    """Return all bytes of a file."""
    with reading(path, "a file"):
        return Path(path).read_bytes()


def read_text(path: str | Path, kind: str = "text") -> str:
    """Return a text in UTF-8; a byte order mark at its beginning is skipped."""
    with reading(path, kind, "Save it as UTF-8 (in Excel: 'CSV UTF-8')."):
        return Path(path).read_bytes().decode("utf-8-sig")


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file."""
    text = read_text(path, "JSON")
    with reading(path, "JSON"):
        return json.loads(text)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    text = read_text(path, "TOML")
    with reading(path, "TOML", "See `vicinal recipes --help` for files that are."):
        return tomllib.loads(text)


def read_csv(path: str | Path) -> list[list[str]]:
    """Return the rows of a comma-separated table; empty lines are rows without cells."""
    text = read_text(path, "a table (.csv)")
    with reading(path, "a table (.csv)"):
        return list(csv.reader(io.StringIO(text, newline="")))


def read_parquet(path: str | Path, columns: Collection[str] | None = None) -> Any:
    """Return a Parquet file as a pyarrow table.

    Args:
        path: Path of the file.
        columns: Names of the columns to read, if present; None for all.

    Raises:
        MissingExtra: If pyarrow is not installed.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("parquet", "reading Parquet tables") from None
    with reading(path, "a table (.parquet)"), Path(path).open("rb") as file:
        content = parquet.ParquetFile(file)
        present = content.schema_arrow.names
        table = content.read(None if columns is None else [name for name in present if name in columns])
        table.validate(full=True)
        return table


def matrix_of_lists(path: str | Path, table: Any, column: str) -> npt.NDArray[np.generic]:
    """Return a column of a pyarrow table with number lists of equal length as a matrix, one row per list.

    Args:
        path: Path of the file that the table was read from, for the message.
        table: Table from `read_parquet` with the column.
        column: Name of the column.
    """
    import pyarrow as arrow

    with reading(path, f"a table with lists of numbers in the column {column!r}"):
        rows = table.column(column).combine_chunks()
        kinds = (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list)
        if not any(is_kind(rows.type) for is_kind in kinds):
            raise DataError(f"{printable(path)}: the column {column!r} must hold lists of numbers, got {rows.type}.")
        fixed = arrow.types.is_fixed_size_list(rows.type)
        lengths = set(rows.value_lengths().to_pylist()) or {rows.type.list_size if fixed else 0}
        if len(lengths) > 1 or None in lengths:
            shown = sorted(map(str, lengths))[:5]
            raise DataError(
                f"{printable(path)}: the lists of the column {column!r} differ in length or are missing: {shown}."
            )
        return rows.flatten().to_numpy(zero_copy_only=False).reshape(len(rows), lengths.pop())


def read_arrays(path: str | Path, names: Collection[str] | None = None) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of an `.npz` file by name, or the array of an `.npy` file under the name "".

    Nothing is unpickled, and no more memory is allocated than the file has data for.

    Args:
        path: Path of the file.
        names: Names of the arrays to read, if present; None for all.
    """
    with reading(path, "a file of arrays (.npy, .npz)"), Path(path).open("rb") as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return {"": _array(file, os.fstat(file.fileno()).st_size)}
        with zipfile.ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            arrays = {}
            for name, member in members.items():
                if names is None or name in names:
                    most = min(member.file_size, INFLATION * Path(path).stat().st_size)
                    with archive.open(member) as part:
                        arrays[name] = _array(part, most)
            return arrays


def _array(file: Any, size: int) -> npt.NDArray[np.generic]:
    """Read one array from a file of `size` bytes; a header that declares more than that is an error."""
    import numpy as np

    layout = np.lib.format
    version = layout.read_magic(file)
    # Versions 2 and 3 differ only in the encoding of field names, and arrays with fields are rejected anyway.
    read_header = layout.read_array_header_1_0 if version == (1, 0) else layout.read_array_header_2_0
    shape, columns_first, dtype = read_header(file)
    if dtype.hasobject or dtype.names is not None:
        raise ValueError(f"it holds {dtype}; only numbers and text are supported")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > size:
        raise ValueError(f"it is truncated: its header says {wanted:,} bytes, but there are {size:,}")
    if wanted == 0:
        return np.empty(shape, dtype=dtype)
    content = bytearray(wanted)  # the array shares this memory, which is writable
    filled = 0
    while filled < wanted:
        piece = file.read(min(PIECE, wanted - filled))
        if not piece:
            raise ValueError(f"it is truncated: its header says {wanted:,} bytes, but there are {filled:,}")
        content[filled : filled + len(piece)] = piece
        filled += len(piece)
    file.read(1)  # reading to the end of an archive's member verifies its checksum
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if columns_first else "C")


def read_mat(path: str | Path) -> dict[str, Any]:
    """Return the content of a MATLAB file as plain lists, strings and numbers, without dimensions of length one."""
    with reading(path, "a MATLAB file (.mat)"):
        # By its path and without its folder on the import path (-P), which has its own `statistics` module.
        script = Path(__file__).parents[1] / "data/readers/_mat_as_json.py"
        command = [sys.executable, "-P", str(script), os.path.abspath(path)]
        done = subprocess.run(command, capture_output=True, timeout=MAT_SECONDS, check=False)
        if done.returncode:
            message = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise ValueError(message if done.returncode == 1 and message else "it is damaged")
        content: dict[str, Any] = json.loads(done.stdout)
        return content


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return the named tensors of a file: safetensors by its extension, otherwise PyTorch's format, tensors only."""
    import torch
    from safetensors.torch import load_file

    hint = "It may be cut short, or hold more than tensors, which is never loaded. Fetch it again."
    with reading(path, "a file of weights", hint):
        state = (
            load_file(path)
            if Path(path).suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise DataError(
            f"{printable(path)} must hold one table of named tensors (a state dict); got {type(state).__name__}."
        )
    return {str(name): tensor for name, tensor in state.items()}
