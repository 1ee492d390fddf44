"""Export an index to a file for other programs (Parquet, npz, faiss), and import vectors made elsewhere.

Export to Parquet or npz and import again is lossless: ids, labels, paths, metadata, the columns that `refresh` needs,
the distance, and the hash of the embedder. The embedder itself is not in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32
from numpy.typing import NDArray

from vicinal._util.files import prepare_output, replacing, replacing_path, write_atomically
from vicinal._util.reading import matrix_of_lists, printable, read_arrays, read_parquet, reading, require_file
from vicinal.errors import DataError, InputError, MissingExtra
from vicinal.evaluation.files import (
    DISTANCE,
    NUMBERS,
    checked_distance,
    checked_numbers,
    named_labels,
    packed_arrays,
    text_in,
    unpacked,
)
from vicinal.index.filters import BUILT_IN
from vicinal.index.item import Header, Item
from vicinal.neighbours.rounding import Numbers, check_numbers

__all__ = ["ForeignVectors", "export_items", "prepare_export", "read_vectors", "write_arrays"]

EMBEDDER = "embedder"
OF_FILES = ("path", "source", "stamp", "hash")  # built-in columns that are neither ids nor labels
PREFIX = "metadata_"  # prefix of metadata columns in an npz file
MISSING = "missing_"  # prefix of the masks that mark missing entries of another array
ARRAYS = {"label": "labels", "path": "paths", **{name: f"item_{name}" for name in OF_FILES[1:]}}


@dataclass(frozen=True)
class ForeignVectors:
    """Vectors that a file holds.

    Attributes:
        vectors: One row per item.
        ids: Ids of the items; None if the file has none.
        labels: Labels of the items; None if the file has none.
        metadata: Additional columns, by name.
        files: Columns about the items' files (path, source, stamp, hash), by name.
        embedder: Hash of the embedder that made the vectors; empty if the file does not name one.
        distance: Distance of the vectors; empty if the file does not name one.
        numbers: Number format of the vectors in the file.
    """

    vectors: NDArray[Any]
    ids: Sequence[Any] | None = None
    labels: Sequence[Any] | None = None
    metadata: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    files: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    embedder: str = ""
    distance: str = ""
    numbers: str = "float32"


def prepare_export(path: Path) -> None:
    """Check before any work that an index can be exported to a file; parent folders are created.

    Raises:
        InputError: If the suffix is not a supported format.
        DataError: If the file cannot be written.
    """
    if path.suffix not in WRITERS:
        raise InputError(f"An index is exported to a file that ends in {', '.join(WRITERS)}; got {path}.")
    if path.suffix == ".parquet":
        _pyarrow()
    if path.suffix == ".faiss":
        _faiss()
        prepare_output(_listed_ids(path))
    prepare_output(path)


def export_items(path: Path, header: Header, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    """Write items and vectors atomically to a .parquet, .npz or .faiss file."""
    prepare_export(path)
    WRITERS[path.suffix](path, header, items, vectors)


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any]], embedder: str, distance: str, numbers: Numbers = "float32"
) -> None:
    """Write arrays to an .npz file, with the hash of the embedder that made them and their distance.

    Args:
        path: The file.
        arrays: Arrays by name; the embeddings take as many bytes as their number format needs.
        embedder: Hash of the embedder.
        distance: Distance of the embeddings.
        numbers: Number format of the embeddings.
    """
    stored = {EMBEDDER: np.array(embedder), DISTANCE: np.array(distance)}
    if numbers != "float32":
        stored |= packed_arrays(arrays["embeddings"], numbers)
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **{**arrays, **stored})  # type: ignore[arg-type]


def read_vectors(path: Path) -> ForeignVectors:
    """Read vectors from a .parquet file (columns embedding, id, label, others), or an .npz or .npy file.

    Raises:
        DataError: If the file is damaged or holds something else.
    """
    require_file(path)
    readers = {".parquet": _from_parquet, ".npz": _from_numpy, ".npy": _from_numpy}
    if path.suffix.lower() not in readers:
        raise InputError(f"Vectors are imported from a file that ends in {', '.join(readers)}; got {path}.")
    with reading(path, "a file of vectors"):
        foreign = readers[path.suffix.lower()](path)
    checked_distance(path, foreign.distance)
    columns = {"ids": foreign.ids, "labels": foreign.labels, **foreign.files, **foreign.metadata}
    for name, values in columns.items():
        if values is not None and len(values) != len(foreign.vectors):
            raise DataError(
                f"{printable(path)} has {len(foreign.vectors):,} embeddings, but {len(values):,} entries of {name!r}.",
                hint="Give every embedding one.",
            )
    return foreign


def _columns(items: Sequence[Item]) -> dict[str, list[Any]]:
    """Return all values of the items except their ids, by column; empty columns are left out."""
    names = dict.fromkeys(["label", *OF_FILES, *(name for item in items for name in item.metadata)])
    every = [item.values() for item in items]
    columns = {name: [values.get(name) for values in every] for name in names}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _to_parquet(path: Path, header: Header, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    pyarrow, parquet = _pyarrow()
    columns = _columns(items)
    if "embedding" in columns:
        raise InputError("In Parquet the column 'embedding' is that of the vectors; export to an .npz file instead.")
    flat = pyarrow.array(np.ascontiguousarray(vectors).reshape(-1))
    table = pyarrow.table(
        {
            "id": [item.id for item in items],
            **columns,
            "embedding": pyarrow.FixedSizeListArray.from_arrays(flat, header.dim),
        }
    ).replace_schema_metadata({EMBEDDER: header.embedder, DISTANCE: header.distance, NUMBERS: header.numbers})
    with replacing_path(path) as partial:
        parquet.write_table(table, partial)


def _to_npz(path: Path, header: Header, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    arrays: dict[str, NDArray[Any]] = {"embeddings": vectors, "ids": np.array([item.id for item in items])}
    for column, values in _columns(items).items():
        name = ARRAYS.get(column) or f"{PREFIX}{column}"
        missing, blank = [value is None for value in values], _blank(values)
        arrays[name] = np.array([blank if value is None else value for value in values])
        if any(missing):
            arrays[f"{MISSING}{name}"] = np.array(missing)
    write_arrays(path, arrays, header.embedder, header.distance, check_numbers(header.numbers, header.distance))


def _blank(values: Sequence[Any]) -> Any:
    """Return a placeholder for missing values; an npz array of this type cannot mark them itself."""
    kinds = set(map(type, values))
    blanks = {str: "", float: np.nan, int: 0, bool: False}
    return next(blank for kind, blank in blanks.items() if kind in kinds)


def _to_faiss(path: Path, header: Header, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    """Write a flat index with ids. faiss has no text ids: they are numbered and listed in a file next to the index."""
    faiss = _faiss()
    rows = np.ascontiguousarray(vectors)
    if header.distance == "cosine":
        lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
        rows = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    metric = faiss.METRIC_INNER_PRODUCT if header.distance == "cosine" else faiss.METRIC_L2
    flat = faiss.IndexIDMap2(faiss.IndexFlat(header.dim, metric))
    texts = any(isinstance(item.id, str) for item in items)
    flat.add_with_ids(rows, np.array([position if texts else item.id for position, item in enumerate(items)], np.int64))
    if texts:
        write_atomically(_listed_ids(path), "".join(f"{item.id}\n" for item in items))
    with replacing_path(path) as partial:
        faiss.write_index(flat, str(partial))


WRITERS: dict[str, Callable[..., None]] = {".parquet": _to_parquet, ".npz": _to_npz, ".faiss": _to_faiss}


def _listed_ids(path: Path) -> Path:
    return path.with_suffix(".ids.txt")


def _from_parquet(path: Path) -> ForeignVectors:
    table = read_parquet(path)
    if "embedding" not in table.column_names:
        raise DataError(f"{printable(path)} has no column 'embedding'.", [f"columns: {', '.join(table.column_names)}"])
    vectors = _matrix(path, matrix_of_lists(path, table, "embedding"))
    columns = {name: table[name].to_pylist() for name in table.column_names if name != "embedding"}
    file_metadata = table.schema.metadata or {}
    return ForeignVectors(
        vectors,
        columns.get("id"),
        columns.get("label"),
        {name: values for name, values in columns.items() if name not in BUILT_IN},
        {name: columns[name] for name in OF_FILES if name in columns},
        file_metadata.get(EMBEDDER.encode(), b"").decode(),
        file_metadata.get(DISTANCE.encode(), b"").decode(),
        checked_numbers(path, file_metadata.get(NUMBERS.encode(), b"").decode()),
    )


def _from_numpy(path: Path) -> ForeignVectors:
    arrays = read_arrays(path)
    names = ("embeddings", "vectors", "X", "")  # "" is the only array of an .npy file
    vectors = next((arrays[name] for name in names if name in arrays), None)
    if vectors is None:
        raise DataError(f"{printable(path)} must hold an array 'embeddings'.", [f"it holds: {', '.join(arrays)}"])
    vectors = unpacked(path, vectors, arrays)
    labels = arrays.get("labels", arrays.get("y"))
    if labels is not None and "class_names" in arrays:
        arrays["labels"] = named_labels(path, labels, arrays["class_names"])
    elif labels is not None:
        arrays["labels"] = labels
    columns = {name: _entries(path, arrays, ARRAYS.get(name, name)) for name in ("ids", *ARRAYS)}
    files = {name: values for name in OF_FILES if (values := columns[name]) is not None}
    metadata = {name[len(PREFIX) :]: _entries(path, arrays, name) for name in arrays if name.startswith(PREFIX)}
    return ForeignVectors(
        _matrix(path, vectors),
        files.get("path") if columns["ids"] is None else columns["ids"],
        columns["label"],
        {name: values for name, values in metadata.items() if values is not None},
        files,
        text_in(arrays, EMBEDDER),
        text_in(arrays, DISTANCE),
        checked_numbers(path, text_in(arrays, NUMBERS)),
    )


def _entries(path: Path, arrays: Mapping[str, NDArray[Any]], name: str) -> list[Any] | None:
    """Return the entries of an array, with None for those that its mask marks as missing; None if it does not exist."""
    array = arrays.get(name)
    if array is None:
        return None
    missing: Bool[np.ndarray, ...] = arrays.get(f"{MISSING}{name}", np.zeros(array.shape, dtype=bool))
    if array.ndim != 1 or missing.shape != array.shape or missing.dtype != bool:
        raise DataError(
            f"{printable(path)}: {name!r} must be a list, and {MISSING + name!r}, if there is one, must say of every "
            f"entry whether it is missing; got {list(array.shape)} and {missing.dtype} {list(missing.shape)}."
        )
    return [None if gone else value for value, gone in zip(array.tolist(), missing.tolist(), strict=True)]


def _matrix(path: Path, vectors: NDArray[Any]) -> NDArray[Any]:
    """Return the vectors as a matrix; a single vector becomes one row."""
    if vectors.ndim not in (1, 2) or vectors.dtype.kind not in "fiub":
        raise DataError(
            f"{printable(path)}: embeddings must be a matrix of numbers, one row each; got {vectors.dtype} "
            f"{list(vectors.shape)}."
        )
    return np.atleast_2d(vectors)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("parquet", "reading and writing Parquet") from None
    return pyarrow, parquet


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss", "export to faiss") from None
    return faiss
