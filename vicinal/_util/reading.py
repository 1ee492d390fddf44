"""Everything that comes from outside is read here: what cannot be read becomes one error, with the file and what to do.

The parsers below are those of other libraries, and on damaged input each of them raises what it likes: dozens of kinds
of exceptions have been seen. `reading` therefore turns whatever is raised inside it into a `DataError`; nothing but the
parsing itself belongs inside.
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

INFLATION = 1100  # more than a byte of an archive can become
PIECE = 1 << 24
MAT_SECONDS = 120
DAMAGED = "It may be cut short or damaged: copy or make it again."


def printable(text: object) -> str:
    r"""Return a text that can be printed and written: bytes of a file's name that are not UTF-8 are spelled out.

    Example:
        >>> printable("caf\udce9")
        'caf\\udce9'
    """
    return str(text).encode("utf-8", "backslashreplace").decode()


def fault_of_file(path: str | Path) -> str | None:
    """Return why there is nothing to read at a path, in a few words; None for a file.

    A pipe would be waited for forever, and a device never ends: only files are read.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "missing"
    except (OSError, ValueError) as error:  # a link to itself; a name that no file can have
        return f"unreadable ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISREG(mode):
        return None
    return "a folder" if stat.S_ISDIR(mode) else "not a file (a pipe, a socket or a device)"


def require_file(path: str | Path) -> None:
    """Raise where there is no file at a path.

    Raises:
        DataError: Saying what is there instead.
    """
    fault = fault_of_file(path)
    if fault == "missing":
        raise DataError(f"There is no file {printable(path)}.", hint="Give the path of one that exists.")
    if fault is not None:
        raise DataError(f"{printable(path)} cannot be read: it is {fault}.", hint="Give the path of a file.")


@contextmanager
def reading(path: str | Path, kind: str, hint: str = DAMAGED) -> Iterator[None]:
    """Turn whatever goes wrong while a file is parsed into an error that names it.

    Args:
        path: Of the file, which must be one.
        kind: What it should be: "a table (.csv)".
        hint: What can be done.

    Raises:
        DataError: Where the file cannot be read as that kind.
    """
    require_file(path)
    try:
        yield
    except VicinalError:
        raise
    except Exception as error:  # see above: parsers raise what they like
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
    """Return a text in UTF-8; the mark at its beginning that some programs write is passed over."""
    with reading(path, kind, "Save it as UTF-8 (in Excel: 'CSV UTF-8')."):
        return Path(path).read_bytes().decode("utf-8-sig")


def read_json(path: str | Path) -> Any:
    """Return what a JSON file holds."""
    text = read_text(path, "JSON")
    with reading(path, "JSON"):
        return json.loads(text)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return what a TOML file holds."""
    text = read_text(path, "TOML")
    with reading(path, "TOML", "See `vicinal recipes --help` for files that are."):
        return tomllib.loads(text)


def read_csv(path: str | Path) -> list[list[str]]:
    """Return the rows of a table with commas; empty lines are rows without cells."""
    text = read_text(path, "a table (.csv)")
    with reading(path, "a table (.csv)"):
        return list(csv.reader(io.StringIO(text, newline="")))


def read_parquet(path: str | Path, columns: Collection[str] | None = None) -> Any:
    """Return a Parquet file as a pyarrow table.

    Args:
        path: Of the file.
        columns: Which to read, where it has them; None for all.

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
    """Return a column of a pyarrow table that holds lists of equally many numbers as a matrix, one row each.

    Args:
        path: Of the file that the table was read from, for the message.
        table: As `read_parquet` returns it, with the column in it.
        column: Its name.
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
            told = sorted(map(str, lengths))[:5]
            raise DataError(
                f"{printable(path)}: the lists of the column {column!r} differ in length or are missing: {told}."
            )
        return rows.flatten().to_numpy(zero_copy_only=False).reshape(len(rows), lengths.pop())


def read_arrays(path: str | Path, names: Collection[str] | None = None) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of an `.npz` file by name, or the one of an `.npy` file under the name "".

    Nothing is unpickled, and no more memory is asked for than the file has numbers.

    Args:
        path: Of the file.
        names: Which to read, where it has them; None for all.
    """
    with reading(path, "a file of arrays (.npy, .npz)"), Path(path).open("rb") as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return {"": _array(file, os.fstat(file.fileno()).st_size)}
        with zipfile.ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            found = {}
            for name, member in members.items():
                if names is None or name in names:
                    most = min(member.file_size, INFLATION * Path(path).stat().st_size)
                    with archive.open(member) as part:
                        found[name] = _array(part, most)
            return found


def _array(file: Any, size: int) -> npt.NDArray[np.generic]:
    """Read one array from a file of so many bytes; its header is believed only as far as the bytes go."""
    import numpy as np

    layout = np.lib.format
    version = layout.read_magic(file)
    # Versions 2 and 3 differ in how names of fields are encoded, and arrays with fields are refused anyway.
    read_header = layout.read_array_header_1_0 if version == (1, 0) else layout.read_array_header_2_0
    shape, columns_first, dtype = read_header(file)
    if dtype.hasobject or dtype.names is not None:
        raise ValueError(f"it holds {dtype}, and only numbers and text are read")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > size:
        raise ValueError(f"it is cut short: its header promises {wanted:,} bytes, and there are {size:,}")
    if wanted == 0:
        return np.empty(shape, dtype=dtype)
    content = bytearray(wanted)  # of which the array is made, and which may be written to
    filled = 0
    while filled < wanted:
        piece = file.read(min(PIECE, wanted - filled))
        if not piece:
            raise ValueError(f"it is cut short: its header promises {wanted:,} bytes, and there are {filled:,}")
        content[filled : filled + len(piece)] = piece
        filled += len(piece)
    file.read(1)  # at the end of an archive's member its checksum is compared
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if columns_first else "C")


def read_mat(path: str | Path) -> dict[str, Any]:
    """Return what a MATLAB file holds as plain lists, texts and numbers, without dimensions of length one."""
    with reading(path, "a MATLAB file (.mat)"):
        # By its path and without its folder on the path of imports (-P): that has a `statistics` of its own.
        script = Path(__file__).parents[1] / "data/readers/_mat_as_json.py"
        command = [sys.executable, "-P", str(script), os.path.abspath(path)]
        done = subprocess.run(command, capture_output=True, timeout=MAT_SECONDS, check=False)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise ValueError(said if done.returncode == 1 and said else "it is damaged")
        content: dict[str, Any] = json.loads(done.stdout)
        return content


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return a file of named tensors: safetensors by its extension, otherwise PyTorch's, tensors only."""
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
