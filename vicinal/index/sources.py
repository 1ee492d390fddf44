"""Sources of an index: folders, lists, tables and datasets as ids, paths, labels and metadata."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.reading import printable, read_text
from vicinal.data._load import load, recognise
from vicinal.data.dataset import ROLES, Dataset, need_one_label
from vicinal.data.files import archive_of, digest
from vicinal.data.readers.layout import SUFFIXES, by_class, folders_in, images_below
from vicinal.data.readers.table import read_columns
from vicinal.errors import DataError, InputError, NotFinite
from vicinal.index.filters import BUILT_IN, LARGEST, Value, plain_value
from vicinal.index.item import Id, Item, check_dim
from vicinal.index.stores.store import Store
from vicinal.neighbours.inputs import as_array
from vicinal.neighbours.rounding import as_int8, unpack_rows

__all__ = [
    "Source",
    "add_rows",
    "as_rows",
    "as_source",
    "check_dim",
    "check_directions",
    "checked_rows",
    "described",
    "source_of_rows",
]


# Metadata as columns: from a dict, a list of dicts, or a pandas, pyarrow or polars table.


def as_columns(metadata: Any) -> dict[str, Sequence[Any]]:
    """Return metadata as a dict of columns, with one value per item; None gives no columns.

    Example:
        >>> as_columns([{"year": 1999}, {"year": 2000, "place": "Ulm"}])
        {'year': [1999, 2000], 'place': [None, 'Ulm']}
    """
    if metadata is None:
        return {}
    names, column_of = _names_and_columns(metadata)
    if unnamed := [name for name in names if not isinstance(name, str)]:
        raise InputError(f"Names of columns are texts; got {unnamed[0]!r}.")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"Columns of metadata must have different names; {', '.join(twice)} is repeated.")
    return {name: _column_values(name, column_of(name)) for name in names}


def _names_and_columns(metadata: Any) -> tuple[list[Any], Callable[[Any], Any]]:
    """Return the names of the columns, and a function that returns a column by name."""
    if isinstance(metadata, Mapping):
        return list(metadata), metadata.__getitem__
    if hasattr(metadata, "to_pydict"):  # a pyarrow table, whose cells are not plain values
        return list(metadata.column_names), lambda name: metadata[name].to_pylist()
    if hasattr(metadata, "columns") and hasattr(metadata, "to_dict"):  # a pandas or polars table
        return list(metadata.columns), metadata.__getitem__
    if isinstance(metadata, Sequence) and all(isinstance(row, Mapping) for row in metadata):
        names = dict.fromkeys(name for row in metadata for name in row)
        return list(names), lambda name: [row.get(name) for row in metadata]
    raise InputError(
        "metadata must be a dict of columns, a list of dicts (one per item), or a table of pandas or pyarrow; got "
        f"{type(metadata).__name__}."
    )


def _column_values(name: object, column: Any) -> list[Any]:
    if isinstance(column, str | bytes) or not hasattr(column, "__iter__"):
        raise InputError(f"metadata {name!r} must be a list with one entry per item; got {column!r}.")
    return list(column)


NOT_METADATA = {"path", "label", "id"}
DIGITS = 20  # length of the longest 64-bit integer, with its sign
WHOLE = re.compile(r"0|-?[1-9][0-9]*")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?")


@dataclass(frozen=True)
class Source:
    """Items to put into an index; every list has one entry per item.

    Attributes:
        inputs: Inputs of an embedder: paths, images, vectors, or a Dataset.
        ids: Unique ids.
        paths: Paths of files; empty if there are none.
        labels: Labels; empty if there are none.
        metadata: Additional columns, by name.
        name: Name of the folder, table or dataset that listed the items, so that a later listing can detect removed
            items; None if items are never removed.
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
        """Return an item, with the current stamp and hash of its content.

        Raises:
            OSError: If its file cannot be read.
            DataError: If its file has a name that cannot be stored.
        """
        path = self.paths[place] if self.paths else None
        if path is None:
            return self._item(place, None, None, _content(self.inputs, place))
        return self._item(place, path, _stamp(path), digest(path).hex())

    def with_stamp(self, place: int) -> Item:
        """Return an item with its stamp but without its hash: the content is not read.

        Raises:
            OSError: If its file does not exist.
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
    trust: Trust = NO_TRUST,
) -> Source:
    """List the items to put into an index, without opening files.

    Args:
        data: A folder of images, of class folders, or of train, test, ... with these; a list of paths (.txt, a label
            may follow a tab); a table (.csv, .parquet) with a column `path`; the name or path of any other dataset; a
            Dataset; one path or image; or a sequence of paths, images or vectors.
        ids: Ids that replace the absolute paths of files; required for images and vectors in memory.
        labels: Labels that replace those of the data.
        metadata: Additional columns: a dict of columns, a list of dicts, or a pandas or pyarrow table.
        trust: Code that the name of a dataset may import.
    """
    source = _listed(data, trust)
    further = as_columns(metadata)
    columns = {
        "ids": ids,
        "labels": labels,
        **{f"metadata {name!r}": column for name, column in further.items()},
    }
    for what, values in columns.items():
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
        raise InputError(f"ids must all be different; {repeated!r} is repeated.")
    if clash := sorted({str(name) for name in source.metadata} & set(BUILT_IN)):
        raise InputError(f"Columns of metadata must not be called {', '.join(BUILT_IN)}; got {', '.join(clash)}.")
    if unnamed := [name for name in source.metadata if not isinstance(name, str) or not name or "\0" in name]:
        raise InputError(f"Names of columns are texts; got {unnamed[0]!r}.")
    return Source(source.inputs, ids, source.paths, source.labels, source.metadata, source.name)  # type: ignore[arg-type]


def _listed(data: Any, trust: Trust) -> Source:
    if isinstance(data, Source):
        return data
    if isinstance(data, Dataset):
        return _of_dataset(data, data.name)
    if isinstance(data, str | os.PathLike):
        return _of_path(Path(data), trust)
    if not isinstance(data, Sequence | np.ndarray):
        data = [data]
    if len(data) and all(isinstance(item, str | os.PathLike) for item in data):
        return _of_files([os.fspath(item) for item in data])
    return Source(data, [f"item {position}" for position in range(len(data))])


def _of_path(path: Path, trust: Trust) -> Source:
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
        if path.suffix == ".csv":  # all cells are strings
            columns = {column: _typed(column, cells) for column, cells in columns.items()}
        if "path" in columns:
            files = [str(path.parent / str(file)) for file in columns["path"]]
            metadata = {column: values for column, values in columns.items() if column not in NOT_METADATA}
            return _of_files(files, columns.get("label", []), metadata, name, columns.get("id"))
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return _of_files([str(path)])
    return _of_dataset(load(str(path), allow_code=trust.sources), name if path.exists() else str(path))


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
        if data.boxes is not None:  # each box of a photograph is an item
            corners = [",".join(f"{edge:g}" for edge in box) for box in data.boxes.tolist()]
            ids = [f"{file}#{corner}" for file, corner in zip(ids, corners, strict=True)]
        return Source(data, ids, files, labels, metadata, name)
    return Source(data, [f"{data.name}/{position}" for position in range(len(data))], (), labels, metadata, name)


def _typed(column: str, cells: Sequence[str]) -> Sequence[Any]:
    """Return the cells of a column of a CSV file, converted to numbers if all of them are numbers.

    A number is in the form that programs write: 007, 1_000, +1 and twenty digits are names and stay strings. So do
    paths and labels; ids are integers or strings.
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
        return _is_whole(text)  # a longer one would lose digits as a float
    return NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def _stamp(path: str) -> str:
    """Return size and modification time of a file, or of the archive that contains it."""
    inside = archive_of(path)
    status = os.stat(path if inside is None else inside[0])
    return f"{status.st_size}-{status.st_mtime_ns}"


def _content(inputs: Any, place: int) -> str | None:
    item = inputs.item(place) if isinstance(inputs, Dataset) else inputs[place]
    if isinstance(item, str | os.PathLike):
        return digest(os.fspath(item)).hex()
    array = np.ascontiguousarray(item)
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()


# Vectors from outside: validation, and storage with their ids, labels and metadata.


def as_rows(values: Any, dim: int) -> tuple[Float32[np.ndarray, "n d"], bool]:
    """Return queries as checked rows of `dim` numbers, and whether they were a single vector."""
    array = as_array(values, "queries")
    single = array.ndim == 1
    rows = checked_rows(array[None] if single else array, "queries")
    check_dim(rows, dim)
    return rows, single


def checked_rows(values: Any, name: str) -> Float32[np.ndarray, "n d"]:
    """Return the values as float32 rows, after checking that they are finite."""
    array = as_array(values.detach().cpu() if hasattr(values, "detach") else values, name)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be a matrix of numbers, one row each; got {array.dtype} {list(array.shape)}.")
    if not array.shape[1]:
        raise InputError(f"{name} have no numbers in them: the shape is {list(array.shape)}.")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(array, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise NotFinite(
            f"{len(bad)} of {len(rows)} rows of {name} hold NaN or infinity (or are too large for float32), the first "
            f"of them row {int(bad[0])}; leave them out."
        )
    return rows


def check_directions(queries: NDArray[np.float32], distance: str) -> None:
    """Refuse zero vectors as queries under the cosine: they have no direction, and all items are equally near."""
    if distance == "cosine" and not queries.any(axis=1).all():
        raise InputError("A vector of zeros has no direction, so its cosine is undefined; leave it out.")


def source_of_rows(
    rows: Float32[np.ndarray, "n d"],
    ids: Sequence[Id] | NDArray[Any] | None,
    labels: Sequence[Any] | None,
    metadata: Any,
) -> Source:
    """Return vectors as a source; the default ids are 0, 1, 2, ..."""
    keys = range(len(rows)) if ids is None else ids
    bare = Source(rows, list(range(len(rows))))
    return as_source(bare, ids=list(keys), labels=None if labels is None else list(labels), metadata=metadata)


def add_rows(
    store: Store,
    source: Source,
    rows: Float32[np.ndarray, "n d"],
    files: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Store vectors with the ids, labels and metadata of a source, in one step.

    Args:
        store: Store to add to.
        source: Ids, labels and metadata, one entry per row.
        rows: The vectors.
        files: Columns about the items' files (path, source, stamp, hash), by name.
    """
    every = {"label": source.labels, **(files or {}), **source.metadata}
    for name, values in every.items():
        if len(values) not in (0, len(rows)):
            raise InputError(f"{name} must have one entry per item: {len(rows)} items, {len(values)} entries.")
    columns = {name: [plain_value(value, name) for value in values] for name, values in every.items() if len(values)}
    items = []
    for key, *values in zip(source.ids, *columns.values(), strict=True):
        present = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        own: dict[str, Any] = {name: present.pop(name) for name in BUILT_IN if name in present}
        items.append(Item(key, metadata=present, **own))
    if store.header.numbers == "int8":  # rounded here, whatever format the store uses
        rows = unpack_rows(as_int8(rows), "int8", rows.shape[1])
    store.add(items, rows)
