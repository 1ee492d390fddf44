"""What can be put into an index: folders, lists, tables and datasets become ids, paths, labels and metadata."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.data.dataset import ROLES, Dataset
from vicinal.data.files import archive_of, digest
from vicinal.data.opening import load, recognise
from vicinal.data.readers.layout import SUFFIXES, by_class, images_below
from vicinal.data.readers.table import read_columns
from vicinal.errors import DataError, InputError
from vicinal.index.columns import BUILT_IN, plain_value
from vicinal.index.item import Id, Item
from vicinal.index.where import Value

__all__ = ["Source", "as_source", "described"]

NOT_METADATA = {"path", "label", "id"}


@dataclass(frozen=True)
class Source:
    """Things to be put into an index; one entry each in every list.

    Attributes:
        inputs: What an embedder takes: paths, images, vectors, or a Dataset.
        ids: All different.
        paths: Of files; empty if there are none.
        labels: Empty if there are none.
        metadata: Further values by column.
        name: Where they were listed, so that a later listing can tell what is gone; None if nothing ever is.
    """

    inputs: Any
    ids: Sequence[Id]
    paths: Sequence[str] = ()
    labels: Sequence[Value | None] = ()
    metadata: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    name: str | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def item(self, place: int) -> Item:
        """One of them, with the stamp and the hash of its content now.

        Raises:
            OSError: If its file cannot be read.
        """
        path = self.paths[place] if self.paths else None
        if path is None:
            return self._item(place, None, None, _content(self.inputs, place))
        return self._item(place, path, _stamp(path), digest(path).hex())

    def with_stamp(self, place: int) -> Item:
        """The same, but the hash is left out: the content is not read.

        Raises:
            OSError: If its file is not there.
        """
        path = self.paths[place] if self.paths else None
        if path is None:
            return self.item(place)
        return self._item(place, path, _stamp(path), None)

    def _item(self, place: int, path: str | None, stamp: str | None, content: str | None) -> Item:
        label = self.labels[place] if self.labels else None
        values = {name: plain_value(column[place], name) for name, column in self.metadata.items()}
        metadata = {name: value for name, value in values.items() if value is not None}
        return Item(
            self.ids[place], path, plain_value(label, "label"), metadata, source=self.name, stamp=stamp, hash=content
        )


def as_source(
    data: Any,
    *,
    ids: Sequence[Id] | None = None,
    labels: Sequence[Any] | None = None,
    metadata: Mapping[str, Sequence[Any]] | None = None,
) -> Source:
    """List what is to be put into an index, without opening files.

    Args:
        data: A folder of images, of class folders, or of train, test, ... with these; a list of paths (.txt, a label
            may follow a tab); a table (.csv, .parquet) with a column `path`; the name or path of any other dataset; a
            Dataset; one path or image; or a sequence of paths, images or vectors.
        ids: In place of the absolute paths of files; needed for images and vectors in memory.
        labels: In place of those that the data has.
        metadata: Further values by column.
    """
    source = _listed(data)
    given = {
        "ids": ids,
        "labels": labels,
        **{f"metadata {name!r}": column for name, column in (metadata or {}).items()},
    }
    for what, values in given.items():
        if values is not None and len(values) != len(source):
            raise InputError(f"{what} must have one entry per item: {len(source)} items, {len(values)} entries.")
    return described(
        Source(
            source.inputs,
            list(ids) if ids is not None else source.ids,
            source.paths,
            list(labels) if labels is not None else source.labels,
            {**source.metadata, **(metadata or {})},
            source.name,
        )
    )


def described(source: Source) -> Source:
    """Check ids and columns, and return the source with plain ids."""
    ids = [plain_value(key, "id") for key in source.ids]
    bad = next((key for key in ids if not isinstance(key, int | str) or isinstance(key, bool)), 0)
    if bad != 0:
        raise InputError(f"ids are texts or whole numbers; got {bad!r}.")
    if len(set(ids)) < len(ids):
        seen: set[Any] = set()
        repeated = next(key for key in ids if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(f"ids must all be different; {repeated!r} is there twice.")
    if clash := sorted({str(name) for name in source.metadata} & set(BUILT_IN)):
        raise InputError(f"Columns of metadata must not be called {', '.join(BUILT_IN)}; got {', '.join(clash)}.")
    if unnamed := [name for name in source.metadata if not isinstance(name, str) or not name or "\0" in name]:
        raise InputError(f"Names of columns are texts; got {unnamed[0]!r}.")
    return Source(source.inputs, ids, source.paths, source.labels, source.metadata, source.name)  # type: ignore[arg-type]


def _listed(data: Any) -> Source:
    if isinstance(data, Source):
        return data
    if isinstance(data, Dataset):
        return _of_dataset(data, data.name)
    if isinstance(data, str | os.PathLike):
        return _of_path(Path(data))
    if not isinstance(data, Sequence | np.ndarray):
        data = [data]
    if len(data) and all(isinstance(item, str | os.PathLike) for item in data):
        return _of_files([os.fspath(item) for item in data])
    return Source(data, [f"item {place}" for place in range(len(data))])


def _of_path(path: Path) -> Source:
    name = os.path.abspath(path)
    if path.is_dir() and recognise(path) == "folder":
        if any(inside.suffix.lower() in SUFFIXES and not inside.name.startswith(".") for inside in path.iterdir()):
            paths, labels = list(images_below(path)), []
        else:
            parts = sorted(inside for inside in path.iterdir() if inside.is_dir() and not inside.name.startswith("."))
            by_role = bool(parts) and all(part.name in ROLES for part in parts)
            listing = by_class(parts if by_role else [path])
            paths, labels = listing.paths, listing.classes
        if not paths:
            raise DataError(f"{path} has no images in it.", hint="Give a folder of images or of folders of images.")
        return _of_files(paths, labels, name=name)
    if path.is_file() and path.suffix == ".txt":
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if len({len(row) for row in rows}) != 1 or len(rows[0]) > 2:
            raise DataError(f"{path} must have a path in every line, and a label after a tab in every line or in none.")
        labels = [row[1].strip() for row in rows] if len(rows[0]) == 2 else []
        return _of_files([str(path.parent / row[0].strip()) for row in rows], labels, name=name)
    if path.is_file() and path.suffix in (".csv", ".parquet"):
        found = read_columns(path)
        columns = {column: values if column == "label" else _typed(values) for column, values in found.items()}
        if "path" in columns:
            files = [str(path.parent / str(inside)) for inside in columns["path"]]
            metadata = {column: values for column, values in columns.items() if column not in NOT_METADATA}
            return _of_files(files, columns.get("label", []), metadata, name, columns.get("id"))
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return _of_files([str(path)])
    return _of_dataset(load(str(path)), name if path.exists() else str(path))


def _of_files(
    paths: Sequence[str],
    labels: Sequence[Any] = (),
    metadata: Mapping[str, Sequence[Any]] | None = None,
    name: str | None = None,
    ids: Sequence[Id] | None = None,
) -> Source:
    files = [os.path.abspath(path) for path in paths]
    return Source(files, files if ids is None else ids, files, labels, metadata or {}, name)


def _of_dataset(data: Dataset, name: str) -> Source:
    labels = [data.class_names[label] for label in data.labels.tolist()]
    metadata: dict[str, Sequence[Any]] = {} if data.roles is None else {"role": data.roles.tolist()}
    if isinstance(data.items, tuple):
        files = [os.path.abspath(path) for path in data.items]
        ids = files
        if data.boxes is not None:  # several boxes of one photograph are several items
            corners = [",".join(f"{edge:g}" for edge in box) for box in data.boxes.tolist()]
            ids = [f"{file}#{corner}" for file, corner in zip(files, corners, strict=True)]
        return Source(data, ids, files, labels, metadata, name)
    return Source(data, [f"{data.name}/{place}" for place in range(len(data))], (), labels, metadata, name)


def _typed(cells: Sequence[Any]) -> Sequence[Any]:
    """Cells of a CSV file are texts; a column of which all are numbers is one of numbers."""
    if not all(cell is None or isinstance(cell, str) for cell in cells):
        return cells
    texts = [None if cell is None or not cell.strip() else cell.strip() for cell in cells]
    for kind in (int, float):
        try:
            return [None if text is None else kind(text) for text in texts]
        except ValueError:
            continue
    return texts


def _stamp(path: str) -> str:
    """Size and time of change of a file, or of the archive that it is in."""
    inside = archive_of(path)
    status = os.stat(path if inside is None else inside[0])
    return f"{status.st_size}-{status.st_mtime_ns}"


def _content(inputs: Any, place: int) -> str | None:
    item = inputs.item(place) if isinstance(inputs, Dataset) else inputs[place]
    if isinstance(item, str | os.PathLike):
        return digest(os.fspath(item)).hex()
    array = np.ascontiguousarray(item)
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()
