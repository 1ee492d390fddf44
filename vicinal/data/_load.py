"""Open a dataset by name or by path."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vicinal._util.code import NO_TRUST, Trust, find, is_code
from vicinal.data import readers
from vicinal.data.dataset import Dataset, need_one_label
from vicinal.data.files import Watch
from vicinal.data.readers.cifar import holds_pickles
from vicinal.errors import DataError, InputError

READERS: dict[str, Callable[..., Dataset]] = {
    "arrays": readers.arrays,
    "cars196": readers.cars196,
    "cifar": readers.cifar,
    "cub": readers.cub,
    "digits": readers.digits,
    "folder": readers.folder,
    "glyphs": readers.glyphs,
    "inshop": readers.inshop,
    "mnist": readers.mnist,
    "omniglot": readers.omniglot,
    "sop": readers.sop,
    "table": readers.table,
}

# Folder of each published dataset below $VICINAL_DATA, and files by which its layout is recognised.
PUBLISHED = {
    "cub": ("CUB_200_2011", ["images.txt"]),
    "cars196": ("cars196", ["cars_annos.mat", "devkit/cars_meta.mat"]),
    "sop": ("Stanford_Online_Products", ["Ebay_train.txt", "Info_Files/Ebay_train.txt"]),
    "inshop": (
        "In-shop Clothes Retrieval Benchmark",
        ["Eval/list_eval_partition.txt", "list_eval_partition.txt"],
    ),
    "omniglot": ("omniglot", ["images_background", "images_background.zip"]),
    "mnist": ("mnist", ["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"]),
    "cifar": ("cifar", ["data_batch_1.bin", "train.bin"]),
}
SUFFIXES = {".csv": "table", ".parquet": "table", ".npz": "arrays"}


def load(
    name_or_path: str | Path,
    *,
    skip_bad: bool = False,
    watch: Watch | None = None,
    allow_code: Sequence[str] = (),
    **options: Any,
) -> Dataset:
    """Open a known dataset by its name, or the data at a path.

    Args:
        name_or_path: Name in `READERS` or of an installed package's reader, a folder (published layouts are
            recognised), a `.csv`, `.parquet` or `.npz` file, or "my_module:my_reader" if `allow_code` allows it. A
            published dataset without `root` is searched for in the folder of the environment variable VICINAL_DATA.
        skip_bad: Whether to leave out unreadable items with a warning instead of raising an error; has no effect on
            datasets that come with vicinal.
        watch: Callback, called after every image file with the number of files done and the total.
        allow_code: Modules or files whose code the name may refer to.
        options: Options of the reader (`root`, `check`, ...).

    Example:
        >>> load("digits")
        Dataset('digits': 1,797 images, 10 classes)
    """
    name = str(name_or_path)
    if name in PUBLISHED and "root" not in options:
        options["root"] = _customary_root(name)
    path = Path(name_or_path)
    is_named = name in READERS or is_code(name)
    if not is_named and not os.path.exists(path) and (os.sep in name or path.suffix):
        raise DataError(f"{path} does not exist.", hint="Give a folder, a table, or the name of a known set.")
    reader = reader_of(name_or_path, Trust.of(allow_code))
    if watch is not None and "watch" in inspect.signature(reader).parameters:
        options["watch"] = watch
    return _read(name, reader, () if is_named or not os.path.exists(path) else (path,), options, skip_bad)


def reader_of(name_or_path: str | Path, trust: Trust = NO_TRUST) -> Callable[..., Dataset]:
    """Return the function that opens a name or a path."""
    name = str(name_or_path)
    by_path = os.path.exists(name) and name not in READERS and not is_code(name)
    if by_path:
        return READERS[recognise(name)]
    if os.sep in name and not is_code(name):
        raise DataError(f"{name} does not exist.", hint="Give a path that exists, or the name of a dataset.")
    reader: Callable[..., Dataset] = find("dataset", name, READERS, trust)
    return reader


def recognise(path: str | Path) -> str:
    """Return the name of the reader for a path, by its suffix or the files in it.

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
    return "cifar" if holds_pickles(path) else "folder"  # the reader's error says what to download instead


def _read(
    name: str, reader: Callable[..., Dataset], arguments: tuple[Path, ...], options: dict[str, Any], skip_bad: bool
) -> Dataset:
    accepted = inspect.signature(reader).parameters
    if unknown := sorted(set(options) - set(accepted)):
        raise InputError(f"{name} has no option {', '.join(unknown)}; it has {', '.join(accepted)}.")
    if skip_bad and "skip_bad" in accepted:
        options["skip_bad"] = True
    try:
        inspect.signature(reader).bind(*arguments, **options)
    except TypeError as error:
        raise InputError(f"{name} cannot be opened by its name alone: {error}.") from None
    data = reader(*arguments, **options)
    if not isinstance(data, Dataset):
        raise InputError(f"The reader {name!r} must return a vicinal.Dataset; got {type(data).__name__}.")
    need_one_label(data, "What is opened by its name")
    return data


def _customary_root(name: str) -> Path:
    root = os.environ.get("VICINAL_DATA")
    if not root:
        raise DataError(
            f"{name} is not part of vicinal; it needs to know where its files are.",
            hint=f"Pass root= (--root), or set VICINAL_DATA to a folder that holds {PUBLISHED[name][0]}.",
        )
    return Path(root, PUBLISHED[name][0])
