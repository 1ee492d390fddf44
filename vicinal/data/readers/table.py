"""Tables of labelled images or feature vectors, in CSV or Parquet."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._util.reading import read_csv, read_parquet, reading
from vicinal._util.text import counted
from vicinal.data.checks import Box, Listing, dataset_from, is_number
from vicinal.data.dataset import Dataset
from vicinal.data.files import Watch
from vicinal.data.readers.arrays import arrays
from vicinal.errors import DataError

SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
BOX = ("x_1", "y_1", "x_2", "y_2")
NOT_FEATURES = {"label", "split", "is_query", "is_gallery", "category", *BOX}


def table(
    path: str | Path,
    *,
    root: str | Path | None = None,
    check: str = "header",
    skip_bad: bool = False,
    watch: Watch | None = None,
) -> Dataset:
    """Read a table with the columns of open-metric-learning, or one of feature vectors.

    Columns: `label`, and `path` (relative to `root`); optionally `split` (train, validation, test),
    `is_query` and `is_gallery` for rows outside of training, and the crop box `x_1, y_1, x_2, y_2`.
    Without a column `path` every other column is a feature. In a table without "test" rows the
    "validation" rows are used for testing.

    Args:
        path: A `.csv` or `.parquet` file.
        root: Folder that relative paths start from; by default the folder of the table.
        check: Check of every image: "header" (fast) or "decode" (thorough).
        skip_bad: Whether to skip rows with a problem, with a warning, instead of raising.
        watch: Callback, called after every file with the number of files that are done, and of all.

    Raises:
        MissingExtra: For Parquet, if pyarrow is not installed.
    """
    path = Path(path)
    columns = read_columns(path)
    if "label" not in columns:
        raise DataError(f"{path} has no column 'label'.", [f"columns: {', '.join(columns)}"], "Name it 'label'.")
    roles = _roles(columns, path) if "split" in columns else []
    labels = [str("" if label is None else label).strip() for label in columns["label"]]
    if blank := [f"row {i} has no label" for i, label in enumerate(labels) if not label]:
        raise DataError(f"{path}: {counted(len(blank), 'row')} cannot be used.", blank, "Give every row a label.")
    if "path" not in columns:
        features = _features(columns, path)
        targets = np.array(labels, dtype=np.int64 if all(map(is_number, labels)) else None)
        return arrays(features, targets, roles=roles or None, name=path.stem, skip_bad=skip_bad)
    base = Path(root) if root is not None else path.parent
    listing = Listing(paths=[str(base / str(p)) for p in columns["path"]], classes=labels, roles=roles)
    if set(BOX) <= columns.keys():
        with reading(path, "a table with boxes of numbers"):
            listing.boxes = [_box(*corner) for corner in zip(*(columns[edge] for edge in BOX), strict=True)]
    return dataset_from(listing, path.stem, check=check, skip_bad=skip_bad, watch=watch)


def read_columns(path: Path) -> dict[str, list[Any]]:
    """Read all columns of a `.parquet` or `.csv` file; cells of a `.csv` file are strings."""
    return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def _read_csv(path: Path) -> dict[str, list[Any]]:
    rows = read_csv(path)
    if not rows:
        raise DataError(f"{path} is empty.", hint="The first row must name the columns.")
    header, *body = rows
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"{path} has several columns of the same name.", repeated, "Name each column once.")
    ragged = [f"row {i} has {len(r)} cells" for i, r in enumerate(body, start=2) if r and len(r) != len(header)]
    if ragged:
        raise DataError(f"{path} has {len(header)} columns but:", ragged)
    return {name: [row[j] for row in body if row] for j, name in enumerate(header)}


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    rows = read_parquet(path)
    with reading(path, "a table (.parquet)"):
        return rows.to_pydict()


def _roles(columns: dict[str, list[Any]], path: Path) -> list[str]:
    splits = [str(cell).strip() for cell in columns["split"]]
    if unknown := sorted(set(splits) - set(SPLITS)):
        raise DataError(
            f"{path}: column 'split' holds {', '.join(map(repr, unknown))}.", hint="Use train, validation or test."
        )
    roles = [SPLITS[cell] for cell in splits]
    if "test" not in roles:
        roles = ["test" if role == "validation" else role for role in roles]
    flags = zip(columns.get("is_query", roles), columns.get("is_gallery", roles), strict=True)
    return [
        role if role != "test" or _true(query) == _true(gallery) else "query" if _true(query) else "gallery"
        for role, (query, gallery) in zip(roles, flags, strict=True)
    ]


def _true(cell: Any) -> bool:
    return str(cell).strip().lower() in ("true", "1", "1.0")


def _box(*corner: Any) -> Box:
    left, top, right, bottom = (math.nan if cell in (None, "") else float(cell) for cell in corner)
    return (left, top, right, bottom)


def _features(columns: dict[str, list[Any]], path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    names = [name for name in columns if name not in NOT_FEATURES]
    if not names:
        raise DataError(f"{path} has neither a column 'path' nor features.", hint="Add the column 'path'.")
    problems = []
    values = np.full((len(columns["label"]), len(names)), np.nan, dtype=np.float32)
    for j, name in enumerate(names):
        try:
            with np.errstate(over="ignore"):  # an overflow becomes infinity, which `arrays` reports
                values[:, j] = [float("nan" if cell in (None, "") else cell) for cell in columns[name]]
        except (ValueError, TypeError, OverflowError) as error:
            problems.append(f"column {name!r}: {error}")
    if problems:
        raise DataError(f"{path} has no column 'path', so every column is a feature, but:", problems)
    return values
