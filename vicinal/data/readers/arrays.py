"""Arrays in memory or in an .npz file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal._util.reading import read_arrays
from vicinal._util.warnings import warn_caller
from vicinal.data.dataset import Dataset
from vicinal.errors import DataError, InputError


def arrays(
    items: npt.ArrayLike | str | Path,
    labels: npt.ArrayLike | None = None,
    *,
    roles: Sequence[str] | npt.NDArray[Any] | None = None,
    name: str = "arrays",
    skip_bad: bool = False,
) -> Dataset:
    """Create a Dataset from feature vectors or images in memory.

    Args:
        items: Vectors [n, d] of any numbers, or uint8 images [n, h, w] or [n, h, w, 3]; or the path
            of an `.npz` file with arrays `X` and `y` (and optionally `roles`), or of a file from `vicinal embed`.
        labels: Label of each item, numbers or strings; classes come in sorted order. Or sets of labels, booleans
            [n, classes]: class names are the column numbers.
        roles: Role of each item ("train", "test", ...), if there is an official split.
        name: Name of the data.
        skip_bad: Whether to leave out vectors that are not finite, with a warning, instead of raising.

    Example:
        >>> data = arrays([[0.0, 1.0], [1.0, 0.0], [1.0, 0.1]], ["b", "a", "a"])
        >>> data.class_names, data.labels.tolist()
        (('a', 'b'), [1, 0, 0])
    """
    if isinstance(items, str | Path):
        return _from_npz(Path(items), skip_bad)
    values, targets = np.asarray(items), np.asarray(labels)
    sets = targets.ndim == 2 and targets.dtype == np.bool_
    if values.ndim == 0 or not (targets.ndim == 1 or sets) or len(targets) != len(values):
        raise InputError(
            f"labels must be one per item; got items {values.shape} and labels {targets.shape}. "
            "Sets of labels must be rows of booleans."
        )
    if not (values.ndim == 2 or (values.ndim in (3, 4) and values.dtype == np.uint8)):
        raise InputError(
            f"items must be vectors [n, d] or uint8 images [n, h, w(, 3)]; got {values.dtype} "
            f"{list(values.shape)}. For images with values in 0..1, pass (images * 255).astype('uint8')."
        )
    if values.dtype.kind not in "fiub" or targets.dtype.kind not in "fiubUS":
        raise InputError(f"items must be numbers and labels numbers or text; got {values.dtype} and {targets.dtype}.")
    if roles is not None and np.shape(roles) != (len(values),):
        raise InputError(f"roles must be one per item; got items {values.shape} and roles {np.shape(roles)}.")
    keep = np.ones(len(values), dtype=bool)
    notes: tuple[str, ...] = ()
    if values.ndim == 2:
        with np.errstate(over="ignore"):  # an overflow becomes infinity, which is reported below
            values = values.astype(np.float32, copy=False)
        keep = np.isfinite(values).all(axis=1)
        problems = [f"row {i} is not finite" for i in np.flatnonzero(~keep)]
        if problems and not (skip_bad and keep.any()):
            raise DataError(
                f"{name}: {len(problems)} of {len(values)} vectors cannot be used.",
                problems,
                "Correct them, or pass skip_bad=True (--skip-bad) to continue without them.",
            )
        if problems:
            notes = (f"skipped {len(problems)} of {len(values)} vectors", *problems)
            warn_caller(f"{name}: {notes[0]}: {problems[0]}")
    names, codes = (np.arange(targets.shape[1]), targets[keep]) if sets else _coded(targets[keep])
    return Dataset(
        items=values[keep],
        labels=codes,
        class_names=tuple(str(n) for n in names.tolist()),
        roles=None if roles is None else np.asarray(roles, dtype=np.str_)[keep],
        name=name,
        notes=notes,
    )


def _coded(targets: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the classes in sorted order, and the index of each label in them."""
    names, codes = np.unique(targets, return_inverse=True)
    return names, codes.astype(np.int64)


def _from_npz(path: Path, skip_bad: bool) -> Dataset:
    content = read_arrays(path)
    items, labels = (content.get(short, content.get(long)) for short, long in (("X", "embeddings"), ("y", "labels")))
    if items is None or labels is None:
        raise DataError(
            f"{path} must hold arrays 'X' and 'y', or 'embeddings' and 'labels'.",
            [f"it holds: {', '.join(sorted(content)) or 'nothing'}"],
            "Write it with numpy.savez(path, X=items, y=labels).",
        )
    if "X" not in content and str(content.get("numbers", "float32")) != "float32":
        raise DataError(
            f"{path} stores its embeddings as {content['numbers']}, which cannot be used for training.",
            hint="Embed the data again with the original model, before its embeddings were compressed.",
        )
    names = content.get("class_names")
    if names is not None and labels.ndim == 1 and labels.dtype.kind in "iu":
        if not len(labels) or labels.min() < 0 or labels.max() >= len(names):
            raise DataError(f"{path}: labels must be positions among the {len(names)} class_names.")
        labels = names[labels]
    try:
        return arrays(items, labels, roles=content.get("roles"), name=path.stem, skip_bad=skip_bad)
    except InputError as error:
        raise DataError(f"{path} cannot be used: {error}") from None
