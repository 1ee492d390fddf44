"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from the binary version: 32 x 32 colour images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vicinal._util.reading import read_content, read_text
from vicinal.data.dataset import Dataset
from vicinal.errors import DataError

PIXELS = 3 * 32 * 32
# Files of each role, bytes of labels before an image (the last is the class), and the file with the class names.
LAYOUTS = {
    10: (
        {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]},
        1,
        "batches.meta.txt",
    ),
    100: ({"train": ["train.bin"], "test": ["test.bin"]}, 2, "fine_label_names.txt"),
}
# Files that identify the Python versions of CIFAR-10 and CIFAR-100; folders may be called train and test, too.
PICKLED = (("data_batch_1",), ("train", "test"))


def cifar(root: str | Path, *, merge: bool = True) -> Dataset:
    """Read CIFAR-10 or CIFAR-100 from the binary version, which holds plain bytes.

    The Python version is a pickle, which can run arbitrary code when it is opened, and is rejected.

    Args:
        root: Folder with `data_batch_1.bin` to `test_batch.bin`, or with `train.bin` and `test.bin`.
        merge: Whether to merge the two published parts, so that `split` divides the classes. False gives items the role
            "train" or "test" of their part, for classification: every class is then in both, and `split` rejects it.

    Reference:
        Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    folder = Path(root)
    classes = next((count for count, (files, *_) in LAYOUTS.items() if (folder / files["test"][0]).is_file()), None)
    if classes is None:
        raise DataError(
            f"{root} holds the pickles of the Python version, which are never opened."
            if holds_pickles(folder)
            else f"{root} has neither test_batch.bin (CIFAR-10) nor test.bin (CIFAR-100).",
            hint="Download the binary version: cifar-10-binary.tar.gz or cifar-100-binary.tar.gz.",
        )
    files, before, names = LAYOUTS[classes]
    images, labels, roles = [], [], []
    for role, parts in files.items():
        for part in parts:
            rows = _rows(folder / part, before + PIXELS)
            labels.append(rows[:, before - 1].astype(np.int64))
            images.append(rows[:, before:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            roles += [role] * len(rows)
    label = np.concatenate(labels)
    if label.max() >= classes:
        raise DataError(
            f"{root} has a label {label.max()}, but only {classes} classes; the files are damaged: download them again."
        )
    return Dataset(
        np.concatenate(images),
        label,
        _names(folder / names, classes),
        name=f"cifar{classes}",
        roles=None if merge else np.array(roles),
    )


def holds_pickles(folder: Path) -> bool:
    """Return whether a folder holds a Python version of CIFAR, judging by file names; no file is opened."""
    return any(all((folder / name).is_file() for name in names) for names in PICKLED)


def _rows(path: Path, length: int) -> np.ndarray:
    content = np.frombuffer(read_content(path), dtype=np.uint8)
    if not len(content) or len(content) % length:
        raise DataError(
            f"{path} is incomplete: its size of {len(content)} bytes is not a multiple of {length}. Download it again."
        )
    return content.reshape(-1, length)


def _names(path: Path, classes: int) -> tuple[str, ...]:
    names = [line.strip() for line in read_text(path).splitlines() if line.strip()] if path.is_file() else []
    return tuple(names) if len(names) == classes else tuple(map(str, range(classes)))
