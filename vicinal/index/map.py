"""The map of an index: a 2-D position for every item, with neighbours close together; computed once and cached.

t-SNE places a few thousand landmarks; every other item is placed between its nearest landmarks. With very few or very
many items, the two principal axes are used instead.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from vicinal._util.files import CachedFile, prepare_output, replacing
from vicinal._util.progress import LiveBar
from vicinal.errors import DataError, InputError, MissingExtra
from vicinal.index.folder import IndexFolder
from vicinal.index.index import Index
from vicinal.index.item import Item
from vicinal.neighbours import find_neighbours

__all__ = ["MapLayout", "export_map", "keep_map", "kept_layout", "lay_out", "map_table"]


FILE = "map.f32"
VERSION = 2
LANDMARKS = 3_000  # t-SNE takes seconds for these
NEAREST = 8  # landmarks that an item is placed between
SHARPNESS = 3.0  # the farthest of them has exp(-3) of the weight of the nearest
FEWEST, MOST = 12, 2_000_000  # numbers of items for which t-SNE is used
BLOCK = 1 << 16  # items placed at a time


@dataclass(frozen=True)
class MapLayout:
    """Positions of items on the map.

    Attributes:
        positions: Coordinates between -1 and 1, one row per item.
        method: "t-SNE" or "PCA".
        landmarks: Number of items placed by t-SNE itself; the others are placed between the nearest of them.
    """

    positions: Float32[np.ndarray, "n 2"]
    method: str
    landmarks: int = 0


def lay_out(
    vectors: Float32[np.ndarray, "n d"],
    *,
    distance: str = "cosine",
    seed: int = 0,
    landmarks: int = LANDMARKS,
    placed: Callable[[int], object] = int,
) -> MapLayout:
    """Place items in the plane; the same vectors and seed give the same positions to the last bit.

    Args:
        vectors: One row per item.
        distance: "cosine" or "euclidean".
        seed: Seed for the choice of landmarks.
        landmarks: Number of items that t-SNE places.
        placed: Progress callback; receives the number of items placed so far.

    Example:
        >>> layout = lay_out(np.float32([[0, 0], [1, 0], [4, 0]]), distance="euclidean")
        >>> layout.method, layout.positions[:, 1].tolist()
        ('PCA', [0.0, 0.0, 0.0])
    """
    rows = _unit(vectors) if distance == "cosine" else vectors
    if not FEWEST <= len(rows) <= MOST:
        return MapLayout(_framed(_principal_axes(rows)), "PCA")
    if len(rows) <= landmarks:
        return MapLayout(_framed(_neighbourhoods(rows)), "t-SNE", len(rows))
    chosen = np.sort(np.random.default_rng(seed).choice(len(rows), landmarks, replace=False))
    corners = _neighbourhoods(rows[chosen])
    placed(landmarks)
    positions = np.empty((len(rows), 2))
    for start in range(0, len(rows), BLOCK):
        positions[start : start + BLOCK] = _between(rows[start : start + BLOCK], rows[chosen], corners)
        placed(min(start + BLOCK, len(rows)))
    positions[chosen] = corners
    return MapLayout(_framed(positions), "t-SNE", landmarks)


def kept_layout(
    folder: Path,
    vectors: Float32[np.ndarray, "n d"],
    *,
    distance: str = "cosine",
    seed: int = 0,
    placed: Callable[[int], object] = int,
) -> MapLayout:
    """Return the cached layout of these vectors; if there is none, or it is damaged, compute and cache it.

    Args:
        folder: Folder of the index's generation; nothing is cached if it is not writable.
        vectors: One row per item.
        distance: "cosine" or "euclidean".
        seed: Seed for the choice of landmarks.
        placed: Progress callback; see `lay_out`.
    """
    cached = _read(folder, vectors, distance, seed)
    if cached is not None:
        return cached
    layout = lay_out(vectors, distance=distance, seed=seed, placed=placed)
    about = {"key": _key(vectors, distance, seed), "method": layout.method, "landmarks": layout.landmarks}
    CachedFile(folder / FILE, VERSION).write(np.ascontiguousarray(layout.positions, dtype="<f4").data, about)
    return layout


def has_layout(folder: Path, vectors: Float32[np.ndarray, "n d"], *, distance: str = "cosine", seed: int = 0) -> bool:
    """Return whether the layout of these vectors is cached in a folder."""
    return _read(folder, vectors, distance, seed) is not None


def _key(vectors: Float32[np.ndarray, "n d"], distance: str, seed: int) -> str:
    content = hashlib.sha256(f"{distance} {seed} {vectors.shape}".encode())
    content.update(np.ascontiguousarray(vectors).data)
    return content.hexdigest()


def _read(folder: Path, vectors: Float32[np.ndarray, "n d"], distance: str, seed: int) -> MapLayout | None:
    key = _key(vectors, distance, seed)
    cached = CachedFile(folder / FILE, VERSION).read(lambda about: about["key"] == key)
    if cached is None:
        return None
    content, about = cached
    return MapLayout(np.array(content).view("<f4").reshape(-1, 2), about["method"], about["landmarks"])


def _unit(vectors: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _principal_axes(rows: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n 2"]:
    if len(rows) < 2:
        return np.zeros((len(rows), 2))
    mean = rows.mean(axis=0, dtype=np.float64)
    spread = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK] - mean
        spread += block.T @ block
    axes = np.linalg.eigh(spread)[1][:, ::-1][:, :2]
    axes = axes * np.where(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0) < 0, -1, 1)
    coordinates = np.zeros((len(rows), 2))
    for start in range(0, len(rows), BLOCK):
        coordinates[start : start + BLOCK, : axes.shape[1]] = (rows[start : start + BLOCK] - mean) @ axes
    return coordinates


def _neighbourhoods(rows: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n 2"]:
    """Run t-SNE, initialized with the principal axes so that the result is deterministic."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    start = _framed(_principal_axes(rows)) * np.float32(1e-4)
    # One thread: several would sum forces in an order that differs from run to run.
    with threadpool_limits(1):
        embedding = TSNE(perplexity=min(30.0, (len(rows) - 1) / 3), init=start, random_state=0, max_iter=750)
        return embedding.fit_transform(rows).astype(np.float64)


def _between(
    rows: Float32[np.ndarray, "n d"], landmarks: Float32[np.ndarray, "m d"], corners: Float64[np.ndarray, "m 2"]
) -> Float64[np.ndarray, "n 2"]:
    """Return the weighted mean of the positions of the nearest landmarks; nearer ones weigh more."""
    nearest = find_neighbours(rows, NEAREST, gallery=landmarks, distance="euclidean")
    squares = np.square(nearest.values.numpy())
    # Excess distance over the nearest landmark, relative to that of the farthest. In high dimensions all landmarks are
    # about equally far; weighting by plain distance would put items midway between them and shrink clusters to a dot.
    beyond = squares - squares[:, :1]
    weights = np.exp(-SHARPNESS * beyond / np.maximum(beyond[:, -1:], 1e-12))
    weights /= weights.sum(axis=1, keepdims=True)
    return (weights[:, :, None] * corners[nearest.indices.numpy()]).sum(axis=1)


def _framed(places: Float64[np.ndarray, "n 2"]) -> Float32[np.ndarray, "n 2"]:
    """Centre the positions and scale both axes by the same factor, into the square from -1 to 1."""
    if not len(places):
        return places.astype(np.float32)
    low, high = places.min(axis=0), places.max(axis=0)
    half = float((high - low).max()) / 2
    return ((places - (low + high) / 2) / (half or 1.0)).astype(np.float32)


# The map of an index as one Parquet table, for tools such as Embedding Atlas, Spotlight and FiftyOne.

EXPORTED_NEIGHBOURS = 10
LONGEST = 100_000  # largest number of items whose neighbours are exported; more would take hours


def prepare_map(path: Path) -> None:
    """Check before any work that a map can be written to a file; parent folders are created."""
    if path.suffix != ".parquet":
        raise InputError(f"A map is exported to a file that ends in .parquet; got {path}.")
    prepare_output(path)


def export_map(index: Index, path: str | Path) -> int:
    """Write path, label, x, y, neighbours and metadata of every item to a .parquet file.

    Args:
        index: The index; its map is computed if it has none yet.
        path: Path of the file, which is written atomically.

    Returns:
        Number of items written.
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
    """Return the map as the bytes of a Parquet file.

    Columns are `id`, `path`, `label`, `x`, `y`, then `neighbours` as Embedding Atlas reads it: the row numbers of the
    nearest items (`ids`, from 0) and their distances (1 - cosine, or Euclidean), nearest first; then metadata.

    Args:
        items: Items of an index.
        vectors: Vectors of the items.
        layout: Layout of the vectors.
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
        "x": layout.positions[:, 0],
        "y": layout.positions[:, 1],
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
    count = min(EXPORTED_NEIGHBOURS, len(vectors) - 1)
    if count < 1 or len(vectors) > LONGEST:
        return [None] * len(vectors)
    nearest = find_neighbours(vectors, count, distance=distance)
    distances = nearest.values if distance == "euclidean" else 1 - nearest.values
    return [
        {"ids": indices, "distances": values}
        for indices, values in zip(nearest.indices.tolist(), distances.tolist(), strict=True)
    ]


# The map of an index, computed in advance so that the first viewer does not wait.


def keep_map(index: Index, *, progress: bool = True) -> MapLayout:
    """Compute the map of an index and cache it in its folder, where the server reads it.

    Args:
        index: The index; an existing map is not computed again.
        progress: Whether to show a progress bar.

    Raises:
        DataError: If the folder cannot be written to.
    """
    vectors = index.get()[1]
    folder = IndexFolder(index.path).current()
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with LiveBar(*columns, shown=progress) as bar:
        task = bar.add_task("map", total=len(vectors))
        layout = kept_layout(
            folder, vectors, distance=index.distance, placed=lambda many: bar.update(task, completed=many)
        )
        bar.update(task, completed=len(vectors))
    if not has_layout(folder, vectors, distance=index.distance):
        raise DataError(f"The map cannot be saved in {folder}.", hint="Make the folder writable.")
    return layout
