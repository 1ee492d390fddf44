"""An index as a file for other programs (Parquet, npz, faiss), and vectors made elsewhere as rows of an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from vicinal.atomic import replacing, replacing_path, write_atomically
from vicinal.errors import DataError, InputError, MissingExtra
from vicinal.index.columns import BUILT_IN
from vicinal.index.item import Header, Item

__all__ = ["ForeignVectors", "export_items", "read_vectors"]

EMBEDDER = "embedder"
PREFIX = "metadata_"  # of metadata columns in an npz file


@dataclass(frozen=True)
class ForeignVectors:
    """Vectors that a file holds.

    Attributes:
        vectors: One row per item.
        ids: None if the file has none.
        labels: None if the file has none.
        metadata: Further values by column.
        embedder: Hash of the embedder that made them; empty if the file does not say.
    """

    vectors: NDArray[Any]
    ids: Sequence[Any] | None = None
    labels: Sequence[Any] | None = None
    metadata: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    embedder: str = ""


def export_items(path: Path, header: Header, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    """Write items and vectors to a .parquet, .npz or .faiss file, which appears whole or not at all."""
    writers: dict[str, Callable[..., None]] = {".parquet": _to_parquet, ".npz": _to_npz, ".faiss": _to_faiss}
    if path.suffix not in writers:
        raise InputError(f"An index is exported to a file that ends in {', '.join(writers)}; got {path}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    writers[path.suffix](path, header, items, vectors)


def read_vectors(path: Path) -> ForeignVectors:
    """Read vectors from a .parquet file (columns embedding, id, label, others), or an .npz or .npy file."""
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    readers = {".parquet": _from_parquet, ".npz": _from_numpy, ".npy": _from_numpy}
    if path.suffix not in readers:
        raise InputError(f"Vectors are imported from a file that ends in {', '.join(readers)}; got {path}.")
    return readers[path.suffix](path)


def _columns(items: Sequence[Item]) -> dict[str, list[Any]]:
    """Everything about the items but their ids, in columns; those that hold nothing are left out."""
    names = dict.fromkeys(["label", "path", *(name for item in items for name in item.metadata)])
    columns = {name: [item.values().get(name) for item in items] for name in names}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _to_parquet(path: Path, header: Header, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    pyarrow, parquet = _pyarrow()
    flat = pyarrow.array(np.ascontiguousarray(vectors).reshape(-1))
    table = pyarrow.table(
        {
            "id": [item.id for item in items],
            **_columns(items),
            "embedding": pyarrow.FixedSizeListArray.from_arrays(flat, header.dim),
        }
    ).replace_schema_metadata({EMBEDDER: header.embedder, "distance": header.distance})
    with replacing_path(path) as partial:
        parquet.write_table(table, partial)


def _to_npz(path: Path, header: Header, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    columns = _columns(items)
    arrays = {"embeddings": vectors, "ids": np.array([item.id for item in items])}
    plural = {"label": "labels", "path": "paths"}
    for name, values in columns.items():
        missing = "" if any(isinstance(value, str) for value in values) else np.nan
        filled = [missing if value is None else value for value in values]
        arrays[plural.get(name) or f"{PREFIX}{name}"] = np.array(filled)
    with replacing(path) as file:
        np.savez(
            file,
            allow_pickle=False,
            **arrays,
            **{EMBEDDER: np.array(header.embedder), "distance": np.array(header.distance)},
        )


def _to_faiss(path: Path, header: Header, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    """A flat index under the ids; texts, which faiss has none of, are numbered, and listed in a file beside it."""
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss", "export to faiss") from None
    rows = np.ascontiguousarray(vectors)
    if header.distance == "cosine":
        lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
        rows = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    metric = faiss.METRIC_INNER_PRODUCT if header.distance == "cosine" else faiss.METRIC_L2
    flat = faiss.IndexIDMap2(faiss.IndexFlat(header.dim, metric))
    texts = any(isinstance(item.id, str) for item in items)
    flat.add_with_ids(rows, np.array([place if texts else item.id for place, item in enumerate(items)], np.int64))
    if texts:
        write_atomically(path.with_suffix(".ids.txt"), "".join(f"{item.id}\n" for item in items))
    with replacing_path(path) as partial:
        faiss.write_index(flat, str(partial))


def _from_parquet(path: Path) -> ForeignVectors:
    _, parquet = _pyarrow()
    table = parquet.read_table(path)
    if "embedding" not in table.column_names:
        raise DataError(f"{path} has no column 'embedding'.", [f"columns: {', '.join(table.column_names)}"])
    columns = {name: table[name].to_pylist() for name in table.column_names if name != "embedding"}
    vectors = np.array(table["embedding"].to_pylist(), dtype=np.float32)
    said = (table.schema.metadata or {}).get(EMBEDDER.encode(), b"").decode()
    metadata = {name: values for name, values in columns.items() if name not in BUILT_IN}
    return ForeignVectors(vectors, columns.get("id"), columns.get("label"), metadata, said)


def _from_numpy(path: Path) -> ForeignVectors:
    try:
        content = np.load(path, allow_pickle=False)
        found = {"embeddings": content} if isinstance(content, np.ndarray) else dict(content)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is not a readable file of arrays: {error}.") from None
    vectors = next((found[name] for name in ("embeddings", "vectors", "X") if name in found), None)
    if vectors is None:
        raise DataError(f"{path} must hold an array 'embeddings'.", [f"it holds: {', '.join(found)}"])
    labels = found.get("labels", found.get("y"))
    if labels is not None and "class_names" in found:
        labels = found["class_names"][labels]
    metadata = {name[len(PREFIX) :]: values.tolist() for name, values in found.items() if name.startswith(PREFIX)}
    ids = found["ids"].tolist() if "ids" in found else found["paths"].tolist() if "paths" in found else None
    said = str(found[EMBEDDER]) if EMBEDDER in found else ""
    return ForeignVectors(vectors, ids, None if labels is None else labels.tolist(), metadata, said)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("parquet", "reading and writing Parquet") from None
    return pyarrow, parquet
