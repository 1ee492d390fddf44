"""The map of an index as one Parquet table, for tools such as Embedding Atlas, Spotlight and FiftyOne."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from vicinal.atomic import prepare_output, replacing
from vicinal.errors import InputError, MissingExtra
from vicinal.index.index import Index
from vicinal.index.index_folder import IndexFolder
from vicinal.index.item import Item
from vicinal.index.map_layout import MapLayout, kept_layout
from vicinal.neighbours import find_neighbours

__all__ = ["export_map", "map_table", "prepare_map"]

NEAREST = 10
LONGEST = 100_000  # items whose neighbours are searched for among all; a larger index takes hours


def prepare_map(path: Path) -> None:
    """Find out before the work whether a map can be written to a file; folders above it are made."""
    if path.suffix != ".parquet":
        raise InputError(f"A map is exported to a file that ends in .parquet; got {path}.")
    prepare_output(path)


def export_map(index: Index, path: str | Path) -> int:
    """Write path, label, x, y, neighbours and metadata of every item to a .parquet file.

    Args:
        index: Its map is made if it has none yet.
        path: Of the file, which appears whole or not at all.

    Returns:
        How many items there are.
    """
    target = Path(path)
    prepare_map(target)
    items, vectors = index.get()
    layout = kept_layout(IndexFolder(index.path).current(), vectors, distance=index.distance)
    content = map_table(items, vectors, layout, distance=index.distance)
    with replacing(target) as file:
        file.write(content)
    return len(items)


def map_table(
    items: Sequence[Item],
    vectors: Float32[np.ndarray, "n d"],
    layout: MapLayout,
    *,
    distance: str = "cosine",
    private: Collection[str] = (),
) -> bytes:
    """The bytes of the table.

    Columns are `id`, `path`, `label`, `x`, `y`, then `neighbours` as Embedding Atlas reads it: the row numbers of the
    nearest items (`ids`, from 0) and their distances (1 - cosine, or Euclidean), nearest first; then metadata.

    Args:
        items: Of an index.
        vectors: Of the items.
        layout: Of the vectors.
        distance: "cosine" or "euclidean".
        private: Columns to leave out.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("parquet", "reading and writing Parquet") from None
    columns: dict[str, Any] = {
        "id": [item.id for item in items],
        "path": [item.path for item in items],
        "label": [item.label for item in items],
        "x": layout.places[:, 0],
        "y": layout.places[:, 1],
    }
    kind = pyarrow.struct([("ids", pyarrow.list_(pyarrow.int64())), ("distances", pyarrow.list_(pyarrow.float64()))])
    columns["neighbours"] = pyarrow.array(_neighbours(vectors, distance), kind)
    for name in dict.fromkeys(name for item in items for name in item.metadata):
        columns.setdefault(name, [item.metadata.get(name) for item in items])
    table = pyarrow.table({name: values for name, values in columns.items() if name not in private})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def _neighbours(vectors: Float32[np.ndarray, "n d"], distance: str) -> list[dict[str, list[Any]] | None]:
    many = min(NEAREST, len(vectors) - 1)
    if many < 1 or len(vectors) > LONGEST:
        return [None] * len(vectors)
    found = find_neighbours(vectors, many, distance=distance)
    distances = found.values if distance == "euclidean" else 1 - found.values
    return [
        {"ids": places, "distances": values}
        for places, values in zip(found.indices.tolist(), distances.tolist(), strict=True)
    ]
