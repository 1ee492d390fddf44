"""What can be put into an index: folders, lists, tables and datasets become ids, paths, labels and metadata."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.data.dataset import ROLES, Dataset
from vicinal.data.files import archive_of, digest
from vicinal.data.label_sets import need_one_label
from vicinal.data.opening import load, recognise
from vicinal.data.readers.layout import SUFFIXES, by_class, folders_in, images_below
from vicinal.data.readers.table import read_columns
from vicinal.errors import DataError, InputError
from vicinal.index.columns import BUILT_IN, LARGEST, plain_value
from vicinal.index.item import Id, Item
from vicinal.index.metadata_columns import as_columns
from vicinal.index.where import Value
from vicinal.reading import printable, read_text

__all__ = ["Source", "as_source", "described"]

NOT_METADATA = {"path", "label", "id"}
DIGITS = 20  # of the longest number of 64 bits, with its sign
WHOLE = re.compile(r"0|-?[1-9][0-9]*")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?")


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
            DataError: If its file has a name that cannot be stored.
        """
        path = self.paths[place] if self.paths else None
        if path is None:
            return self._item(place, None, None, _content(self.inputs, place))
        return self._item(place, path, _stamp(path), digest(path).hex())

    def with_stamp(self, place: int) -> Item:
        """The same, but the hash is left out: the content is not read.

        Raises:
            OSError: If its file is not there.
            DataError: If its file has a name that cannot be stored.
        """
        path = self.paths[place] if self.paths else None
        if path is None:
            return self.item(place)
        return self._item(place, path, _stamp(path), None)

    def _item(self, place: int, path: str | None, stamp: str | None, content: str | None) -> Item:
        if path is not None and path != printable(path):
            raise DataError("its name is not valid Unicode; rename it")
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
    metadata: Any = None,
) -> Source:
    """List what is to be put into an index, without opening files.

    Args:
        data: A folder of images, of class folders, or of train, test, ... with these; a list of paths (.txt, a label
            may follow a tab); a table (.csv, .parquet) with a column `path`; the name or path of any other dataset; a
            Dataset; one path or image; or a sequence of paths, images or vectors.
        ids: In place of the absolute paths of files; needed for images and vectors in memory.
        labels: In place of those that the data has.
        metadata: Further values: a dict of columns, a list of dicts, or a table of pandas or pyarrow.
    """
    source = _listed(data)
    further = as_columns(metadata)
    given = {
        "ids": ids,
        "labels": labels,
        **{f"metadata {name!r}": column for name, column in further.items()},
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
            {**source.metadata, **further},
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
    name = printable(os.path.abspath(path))
    if path.is_dir() and recognise(path) == "folder":
        inside = [entry for entry in folders_in(path) if not entry.name.startswith(".")]
        if any(entry.suffix.lower() in SUFFIXES for entry in inside):
            paths, labels = list(images_below(path)), []
        else:
            parts = [entry for entry in inside if entry.is_dir()]
            by_role = bool(parts) and all(part.name in ROLES for part in parts)
            listing = by_class(parts if by_role else [path])
            paths, labels = listing.paths, listing.classes
        if not paths:
            raise DataError(f"{path} has no images in it.", hint="Give a folder of images or of folders of images.")
        return _of_files(paths, labels, name=name)
    if path.is_file() and path.suffix == ".txt":
        rows = [line.split("\t") for line in read_text(path).splitlines() if line.strip()]
        if len({len(row) for row in rows}) != 1 or len(rows[0]) > 2:
            raise DataError(f"{path} must have a path in every line, and a label after a tab in every line or in none.")
        labels = [row[1].strip() for row in rows] if len(rows[0]) == 2 else []
        return _of_files([str(path.parent / row[0].strip()) for row in rows], labels, name=name)
    if path.is_file() and path.suffix in (".csv", ".parquet"):
        columns: dict[str, Sequence[Any]] = dict(read_columns(path))
        if path.suffix == ".csv":  # of which all cells are texts
            columns = {column: _typed(column, cells) for column, cells in columns.items()}
        if "path" in columns:
            files = [str(path.parent / str(file)) for file in columns["path"]]
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
    return Source(files, list(map(printable, files)) if ids is None else ids, files, labels, metadata or {}, name)


def _of_dataset(data: Dataset, name: str) -> Source:
    need_one_label(data, "An index")
    labels = [data.class_names[label] for label in data.labels.tolist()]
    metadata: dict[str, Sequence[Any]] = {} if data.roles is None else {"role": data.roles.tolist()}
    if isinstance(data.items, tuple):
        files = [os.path.abspath(path) for path in data.items]
        ids = list(map(printable, files))
        if data.boxes is not None:  # several boxes of one photograph are several items
            corners = [",".join(f"{edge:g}" for edge in box) for box in data.boxes.tolist()]
            ids = [f"{file}#{corner}" for file, corner in zip(ids, corners, strict=True)]
        return Source(data, ids, files, labels, metadata, name)
    return Source(data, [f"{data.name}/{place}" for place in range(len(data))], (), labels, metadata, name)


def _typed(column: str, cells: Sequence[str]) -> Sequence[Any]:
    """The cells of a column of a CSV file, as numbers if all of them are.

    A number is what a program writes for one: 007, 1_000, +1 and twenty digits are names, and stay as they are. So do
    paths and labels; ids are whole numbers or texts.
    """
    if column in ("path", "label"):
        return cells
    texts = [cell.strip() or None for cell in cells]
    missing = (None,) if column == "id" else (None, "nan", "NaN")
    numbers = [text for text in texts if text not in missing and text is not None]
    kind: type[int] | type[float]
    if numbers and all(map(_is_whole, numbers)):
        kind = int
    elif numbers and column != "id" and all(map(_is_number, numbers)):
        kind = float
    else:
        return texts
    return [None if text is None or text in missing else kind(text) for text in texts]


def _is_whole(text: str) -> bool:
    return WHOLE.fullmatch(text) is not None and len(text) <= DIGITS and -LARGEST <= int(text) < LARGEST


def _is_number(text: str) -> bool:
    if WHOLE.fullmatch(text) is not None:
        return _is_whole(text)  # a longer one would lose digits
    return NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


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
