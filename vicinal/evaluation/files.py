"""Embeddings and labels from files: .npz, .npy with labels beside it, Parquet. Nothing is unpickled."""

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

DISTANCE = "distance"  # what a file calls how its vectors are compared: a text in .npz, metadata in Parquet
NUMBERS, DIM = "numbers", "dim"  # what a file calls what each number is kept in, and how many there are


@dataclass(frozen=True)
class Table:
    """What a file of embeddings holds.

    Args:
        embeddings: One row per item.
        labels: One per item.
        sequences: One per item, if the file has any.
        distance: How embeddings are compared; empty if the file does not say.
    """

    embeddings: NDArray[np.generic]
    labels: NDArray[np.generic]
    sequences: NDArray[np.generic] | None = None
    distance: str = ""


def read_table(path: Path, labels: Path | None = None) -> Table:
    """Read embeddings with their labels.

    Args:
        path: `.npz` with the arrays `embeddings` and `labels` (and perhaps `sequences`, and `class_names` that
            the labels count), `.npy` with the embeddings alone, or `.parquet` with the columns `embedding` (a
            list of numbers) and `label` (and perhaps `sequence`). What `vicinal embed` and `vicinal index export`
            write also says how embeddings are compared.
        labels: A file of labels for `read_labels`; instead of those in `path`, and necessary for `.npy`.
    """
    require_file(path)
    readers: dict[str, Callable[[Path], dict[str, NDArray[np.generic]]]] = {
        ".npz": _from_npz,
        ".npy": lambda file: {"embeddings": _from_npy(file)},
        ".parquet": _from_parquet,
    }
    found = look_up("kind of embedding file", path.suffix.lower(), readers)(path)
    if "embeddings" not in found:
        raise DataError(f"{path} has no array 'embeddings'.", [f"it holds: {', '.join(found) or 'nothing'}"])
    if labels is not None:
        found["labels"] = read_labels(labels)
    if "labels" not in found:
        raise DataError(
            f"{path} has no labels.",
            [f"it holds: {', '.join(found)}"],
            "Give them in a file of their own with --labels (or --gallery-labels).",
        )
    distance = checked_distance(path, text_in(found, DISTANCE))
    return Table(found["embeddings"], found["labels"], found.get("sequences"), distance)


def read_labels(path: Path) -> NDArray[np.generic]:
    """Read labels: `.npy`, `.txt` with one in each line, or `.csv` with a column `label` (or just one column).

    Text that is integers throughout becomes integers.
    """
    require_file(path)
    kinds: dict[str, Callable[[Path], NDArray[np.generic]]] = {
        ".npy": _from_npy,
        ".txt": lambda file: _numbered(read_text(file).splitlines()),
        ".csv": _from_csv,
    }
    return look_up("kind of label file", path.suffix.lower(), kinds)(path)


def _from_npy(path: Path) -> NDArray[np.generic]:
    found = read_arrays(path)
    if "" not in found:
        raise DataError(f"{path} holds several arrays.", hint="Rename it to .npz.")
    return found[""]


def _from_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    found = read_arrays(path, ("embeddings", "labels", "sequences", "class_names", DISTANCE, NUMBERS, DIM))
    if "embeddings" not in found:
        return dict(read_arrays(path))
    found["embeddings"] = unpacked(path, found["embeddings"], found)
    names, labels = found.pop("class_names", None), found.get("labels")
    if names is not None and labels is not None:
        found["labels"] = named_labels(path, labels, names)
    return found


def packed_arrays(rows: NDArray[np.float32], numbers: Numbers) -> dict[str, NDArray[Any]]:
    """Embeddings in fewer bytes, as arrays of a file that says so."""
    return {
        "embeddings": pack_rows(rows, numbers),
        NUMBERS: np.array(numbers),
        DIM: np.array(rows.shape[1], dtype=np.int64),
    }


def unpacked(path: Path, rows: NDArray[Any], said: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Embeddings of a file as rows of numbers, whatever it keeps them in.

    Raises:
        DataError: If they are not what the file says of them.
    """
    numbers = checked_numbers(path, text_in(said, NUMBERS))
    if numbers == "float32":
        return rows
    dim = said.get(DIM, np.array(0))
    whole = int(dim) if dim.ndim == 0 and dim.dtype.kind == "i" else 0
    kind, width = row_shape(numbers, whole)
    if whole < 1 or rows.ndim != 2 or rows.dtype != kind or rows.shape[1] != width:
        raise DataError(
            f"{printable(path)} says that its embeddings have {whole} numbers in {numbers}, which are {width} entries "
            f"of {kind} a row; got {rows.dtype} {list(rows.shape)}.",
            hint="Write it again with vicinal embed.",
        )
    return unpack_rows(rows, numbers, whole)


def checked_numbers(path: Path, said: str) -> Numbers:
    """Return what a file says that its numbers are kept in; float32 where it says nothing, which is as they are.

    Raises:
        DataError: If there is no such thing.
    """
    if said and said not in get_args(Numbers):
        raise DataError(
            f"{printable(path)} says that its numbers are kept in {said!r}.",
            hint=f"There is: {', '.join(get_args(Numbers))}.",
        )
    return cast(Numbers, said or "float32")


def text_in(arrays: Mapping[str, NDArray[Any]], name: str) -> str:
    """Return the text that an array without dimensions holds; nothing where there is none."""
    array = arrays.get(name)
    return str(array) if array is not None and array.ndim == 0 and array.dtype.kind == "U" else ""


def checked_distance(path: Path, said: str) -> str:
    """Return how a file says that its vectors are compared, which may be nothing.

    Raises:
        DataError: If there is no such distance.
    """
    if said and said not in DISTANCES:
        raise DataError(
            f"{printable(path)} says that its vectors are compared by {said!r}.",
            hint=f"There is: {', '.join(DISTANCES)}.",
        )
    return said


def named_labels(path: Path, labels: NDArray[np.generic], names: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the names that labels count; the labels themselves where two classes have one name.

    Raises:
        DataError: If labels are no positions among the names.
    """
    if (
        names.ndim != 1
        or labels.ndim != 1
        or labels.dtype.kind not in "iu"
        or (len(labels) and not 0 <= labels.min() <= labels.max() < len(names))
    ):
        raise DataError(f"{path}: labels must be positions among the {names.size} class_names.")
    return names[labels] if len(set(names.tolist())) == len(names) else labels


def _from_csv(path: Path) -> NDArray[np.generic]:
    rows = [row for row in read_csv(path) if row]
    if rows and "label" in rows[0]:
        column, rows = rows[0].index("label"), rows[1:]
    elif rows and len(rows[0]) == 1:
        column = 0
    else:
        raise DataError(f"{path} must have a column called 'label', or just one column.")
    short = [f"line {at}: {len(row)} columns" for at, row in enumerate(rows, 1) if len(row) <= column]
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
            f"{path} has no column 'embedding'.", [f"it holds: {', '.join(read_parquet(path).column_names)}"]
        )
    with reading(path, "a table of embeddings (.parquet)"):
        return _from_arrow(path, table, names)


def _from_arrow(path: Path, table: Any, names: Mapping[str, str]) -> dict[str, NDArray[np.generic]]:
    found: dict[str, NDArray[np.generic]] = {"embeddings": matrix_of_lists(path, table, "embedding")}
    if said := (table.schema.metadata or {}).get(DISTANCE.encode()):
        found[DISTANCE] = np.array(said.decode())
    for name in ("label", "sequence"):
        if name in table.column_names:
            column = table.column(name)
            if column.null_count:
                raise DataError(f"{path}: {column.null_count} entries of the column {name!r} are missing.")
            found[names[name]] = _plain(column.to_numpy())
    return found


def _plain(column: NDArray[np.generic]) -> NDArray[np.generic]:
    """Parquet gives strings as objects."""
    return column.astype(np.str_) if column.dtype.kind == "O" else column
