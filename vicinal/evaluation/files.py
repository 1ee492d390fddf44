"""Read embeddings and labels from files: .npz, .npy with separate labels, Parquet. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from vicinal._util.reading import (
    matrix_of_lists,
    printable,
    read_arrays,
    read_csv,
    read_parquet,
    read_text,
    reading,
    require_file,
)
from vicinal.errors import DataError, look_up
from vicinal.neighbours.rounding import Numbers, pack_rows, row_shape, unpack_rows
from vicinal.neighbours.similarity import DISTANCES

__all__ = [
    "DISTANCE",
    "NUMBERS",
    "Table",
    "checked_distance",
    "checked_numbers",
    "named_labels",
    "packed_arrays",
    "read_labels",
    "read_table",
    "text_in",
    "unpacked",
]

DISTANCE = "distance"  # key of the distance that compares the vectors: a string in .npz, metadata in Parquet
NUMBERS, DIM = "numbers", "dim"  # keys of the number format of the embeddings and of their dimension


@dataclass(frozen=True)
class Table:
    """Content of a file of embeddings.

    Args:
        embeddings: One row per item.
        labels: One label per item.
        sequences: One sequence per item, if the file has any.
        distance: Distance that compares the embeddings; empty if the file does not name one.
    """

    embeddings: NDArray[np.generic]
    labels: NDArray[np.generic]
    sequences: NDArray[np.generic] | None = None
    distance: str = ""


def read_table(path: Path, labels: Path | None = None) -> Table:
    """Read embeddings with their labels.

    Args:
        path: `.npz` with the arrays `embeddings` and `labels` (and optionally `sequences`, and `class_names` that
            the labels index), `.npy` with the embeddings alone, or `.parquet` with the columns `embedding` (a
            list of numbers) and `label` (and optionally `sequence`). Files written by `vicinal embed` and
            `vicinal index export` also name the distance.
        labels: File of labels for `read_labels`; replaces those in `path`, and is required for `.npy`.
    """
    require_file(path)
    readers: dict[str, Callable[[Path], dict[str, NDArray[np.generic]]]] = {
        ".npz": _from_npz,
        ".npy": lambda file: {"embeddings": _from_npy(file)},
        ".parquet": _from_parquet,
    }
    arrays = look_up("kind of embedding file", path.suffix.lower(), readers)(path)
    if "embeddings" not in arrays:
        raise DataError(f"{path} has no array 'embeddings'.", [f"it contains: {', '.join(arrays) or 'nothing'}"])
    if labels is not None:
        arrays["labels"] = read_labels(labels)
    if "labels" not in arrays:
        raise DataError(
            f"{path} has no labels.",
            [f"it contains: {', '.join(arrays)}"],
            "Give them in a separate file with --labels (or --gallery-labels).",
        )
    distance = checked_distance(path, text_in(arrays, DISTANCE))
    return Table(arrays["embeddings"], arrays["labels"], arrays.get("sequences"), distance)


def read_labels(path: Path) -> NDArray[np.generic]:
    """Read labels: `.npy`, `.txt` with one label per line, or `.csv` with a column `label` (or just one column).

    If all labels are integers, they are returned as integers.
    """
    require_file(path)
    kinds: dict[str, Callable[[Path], NDArray[np.generic]]] = {
        ".npy": _from_npy,
        ".txt": lambda file: _numbered(read_text(file).splitlines()),
        ".csv": _from_csv,
    }
    return look_up("kind of label file", path.suffix.lower(), kinds)(path)


def _from_npy(path: Path) -> NDArray[np.generic]:
    arrays = read_arrays(path)
    if "" not in arrays:
        raise DataError(f"{path} holds several arrays.", hint="Rename it to .npz.")
    return arrays[""]


def _from_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    arrays = read_arrays(path, ("embeddings", "labels", "sequences", "class_names", DISTANCE, NUMBERS, DIM))
    if "embeddings" not in arrays:
        return dict(read_arrays(path))
    arrays["embeddings"] = unpacked(path, arrays["embeddings"], arrays)
    names, labels = arrays.pop("class_names", None), arrays.get("labels")
    if names is not None and labels is not None:
        arrays["labels"] = named_labels(path, labels, names)
    return arrays


def packed_arrays(rows: NDArray[np.float32], numbers: Numbers) -> dict[str, NDArray[Any]]:
    """Return embeddings in fewer bytes, as arrays of a file that records their number format."""
    return {
        "embeddings": pack_rows(rows, numbers),
        NUMBERS: np.array(numbers),
        DIM: np.array(rows.shape[1], dtype=np.int64),
    }


def unpacked(path: Path, rows: NDArray[Any], metadata: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the embeddings of a file as rows of numbers, whatever their number format.

    Raises:
        DataError: If the array does not match the format that the file records.
    """
    numbers = checked_numbers(path, text_in(metadata, NUMBERS))
    if numbers == "float32":
        return rows
    dim = metadata.get(DIM, np.array(0))
    whole = int(dim) if dim.ndim == 0 and dim.dtype.kind == "i" else 0
    kind, width = row_shape(numbers, whole)
    if whole < 1 or rows.ndim != 2 or rows.dtype != kind or rows.shape[1] != width:
        raise DataError(
            f"{printable(path)} should have rows of {width} entries of {kind}, for {whole} numbers in {numbers}; "
            f"got {rows.dtype} {list(rows.shape)}.",
            hint="Write it again with vicinal embed.",
        )
    return unpack_rows(rows, numbers, whole)


def checked_numbers(path: Path, name: str) -> Numbers:
    """Return the number format that a file records; float32, which needs no unpacking, if it records none.

    Raises:
        DataError: If there is no such format.
    """
    if name and name not in get_args(Numbers):
        raise DataError(
            f"{printable(path)} has embeddings in the unknown number format {name!r}.",
            hint=f"Known formats: {', '.join(get_args(Numbers))}.",
        )
    return cast(Numbers, name or "float32")


def text_in(arrays: Mapping[str, NDArray[Any]], name: str) -> str:
    """Return the string in a zero-dimensional array; an empty string if there is none."""
    array = arrays.get(name)
    return str(array) if array is not None and array.ndim == 0 and array.dtype.kind == "U" else ""


def checked_distance(path: Path, name: str) -> str:
    """Return the distance that a file records for its vectors, which may be empty.

    Raises:
        DataError: If there is no such distance.
    """
    if name and name not in DISTANCES:
        raise DataError(
            f"{printable(path)} names the unknown distance {name!r}.",
            hint=f"Known distances: {', '.join(DISTANCES)}.",
        )
    return name


def named_labels(path: Path, labels: NDArray[np.generic], names: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the names that labels index; the labels themselves if two classes share a name.

    Raises:
        DataError: If the labels are not valid indices into the names.
    """
    if (
        names.ndim != 1
        or labels.ndim != 1
        or labels.dtype.kind not in "iu"
        or (len(labels) and not 0 <= labels.min() <= labels.max() < len(names))
    ):
        raise DataError(f"{path}: labels must be indices into the {names.size} class_names.")
    return names[labels] if len(set(names.tolist())) == len(names) else labels


def _from_csv(path: Path) -> NDArray[np.generic]:
    rows = [row for row in read_csv(path) if row]
    if rows and "label" in rows[0]:
        column, rows = rows[0].index("label"), rows[1:]
    elif rows and len(rows[0]) == 1:
        column = 0
    else:
        raise DataError(f"{path} must have a column called 'label', or just one column.")
    short = [f"line {line}: {len(row)} columns" for line, row in enumerate(rows, 1) if len(row) <= column]
    if short:
        raise DataError(f"{path}: some lines have no label.", short)
    return _numbered([row[column] for row in rows])


def _numbered(texts: list[str]) -> NDArray[np.generic]:
    try:
        return np.array([int(text) for text in texts], dtype=np.int64)
    except (ValueError, OverflowError):  # a number of 20 digits is a name
        return np.array(texts, dtype=np.str_)


def _from_parquet(path: Path) -> dict[str, NDArray[np.generic]]:
    names = {"embedding": "embeddings", "label": "labels", "sequence": "sequences"}
    table = read_parquet(path, names)
    if "embedding" not in table.column_names:
        raise DataError(
            f"{path} has no column 'embedding'.", [f"it contains: {', '.join(read_parquet(path).column_names)}"]
        )
    with reading(path, "a table of embeddings (.parquet)"):
        return _from_arrow(path, table, names)


def _from_arrow(path: Path, table: Any, names: Mapping[str, str]) -> dict[str, NDArray[np.generic]]:
    arrays: dict[str, NDArray[np.generic]] = {"embeddings": matrix_of_lists(path, table, "embedding")}
    if distance := (table.schema.metadata or {}).get(DISTANCE.encode()):
        arrays[DISTANCE] = np.array(distance.decode())
    for name in ("label", "sequence"):
        if name in table.column_names:
            column = table.column(name)
            if column.null_count:
                raise DataError(f"{path}: {column.null_count} entries of the column {name!r} are missing.")
            arrays[names[name]] = _plain(column.to_numpy())
    return arrays


def _plain(column: NDArray[np.generic]) -> NDArray[np.generic]:
    """Convert strings, which Parquet returns as objects."""
    return column.astype(np.str_) if column.dtype.kind == "O" else column
