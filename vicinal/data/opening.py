"""Open data by the name of a known set or by a path."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vicinal.data import readers
from vicinal.data.dataset import Dataset
from vicinal.errors import DataError, InputError, look_up

READERS: dict[str, Callable[..., Dataset]] = {
    "arrays": readers.arrays,
    "cars196": readers.cars196,
    "cub": readers.cub,
    "digits": readers.digits,
    "folder": readers.folder,
    "glyphs": readers.glyphs,
    "inshop": readers.inshop,
    "omniglot": readers.omniglot,
    "sop": readers.sop,
    "table": readers.table,
}

# Where each published set lies below $VICINAL_DATA, and what a folder that holds it is known by.
PUBLISHED = {
    "cub": ("CUB_200_2011", ["images.txt"]),
    "cars196": ("cars196", ["cars_annos.mat", "devkit/cars_meta.mat"]),
    "sop": ("Stanford_Online_Products", ["Ebay_train.txt", "Info_Files/Ebay_train.txt"]),
    "inshop": (
        "In-shop Clothes Retrieval Benchmark",
        ["Eval/list_eval_partition.txt", "list_eval_partition.txt"],
    ),
    "omniglot": ("omniglot", ["images_background", "images_background.zip"]),
}
SUFFIXES = {".csv": "table", ".parquet": "table", ".npz": "arrays"}


def load(name_or_path: str | Path, *, skip_bad: bool = False, **options: Any) -> Dataset:
    """Open a known set by its name, or whatever lies at a path.

    Args:
        name_or_path: A name in `READERS`, a folder (a published layout is recognised), or a `.csv`,
            `.parquet` or `.npz` file. A published set named without `root` is looked for in the
            folder that the environment variable VICINAL_DATA names.
        skip_bad: Leave out what cannot be read, with a warning, instead of raising; sets that are part of vicinal
            have nothing bad in them.
        options: Passed on to the reader (`root`, `check`, ...).

    Example:
        >>> load("digits")
        Dataset('digits': 1,797 images, 10 classes)
    """
    name = str(name_or_path)
    if name in PUBLISHED and "root" not in options:
        options["root"] = _customary_root(name)
    if name in READERS:
        return _read(name, (), options, skip_bad)
    path = Path(name_or_path)
    if not os.path.exists(path):
        if os.sep in name or path.suffix:
            raise DataError(f"{path} does not exist.", hint="Give a folder, a table, or the name of a known set.")
        look_up("dataset", name, READERS)
    return _read(recognise(path), (path,), options, skip_bad)


def recognise(path: str | Path) -> str:
    """The name of the reader for what lies at a path, by its suffix or the files in it.

    Example:
        >>> recognise("items.csv")
        'table'
    """
    path = Path(path)
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    for name, (_, marks) in PUBLISHED.items():
        if any((path / mark).exists() for mark in marks):
            return name
    return "folder"


def _read(name: str, arguments: tuple[Path, ...], options: dict[str, Any], skip_bad: bool) -> Dataset:
    reader = READERS[name]
    accepted = inspect.signature(reader).parameters
    if unknown := sorted(set(options) - set(accepted)):
        raise InputError(f"{name} has no option {', '.join(unknown)}; it has {', '.join(accepted)}.")
    if skip_bad and "skip_bad" in accepted:
        options["skip_bad"] = True
    return reader(*arguments, **options)


def _customary_root(name: str) -> Path:
    place = os.environ.get("VICINAL_DATA")
    if not place:
        raise DataError(
            f"{name} is not part of vicinal; it needs to know where its files are.",
            hint=f"Pass root= (--root), or set VICINAL_DATA to a folder that holds {PUBLISHED[name][0]}.",
        )
    return Path(place, PUBLISHED[name][0])
