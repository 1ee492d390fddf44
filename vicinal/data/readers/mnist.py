"""MNIST (LeCun et al. 1998), and other datasets in its file format: 28 x 28 pixels, ten classes."""

from __future__ import annotations

import gzip
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal._util.reading import read_content, reading
from vicinal.data.dataset import Dataset
from vicinal.errors import DataError

PARTS = {"train": "train", "test": "t10k"}
LARGEST = 1 << 30  # largest size of a decompressed file in bytes


def mnist(root: str | Path, *, merge: bool = True) -> Dataset:
    """Read MNIST from its four idx files, compressed (.gz) or not.

    Args:
        root: Folder with `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the two of `t10k`.
        merge: Whether to merge the two published parts, so that `split` divides the classes. False gives items the role
            "train" or "test" of their part, for classification: every class is then in both, and `split` rejects it.

    Reference:
        LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998.
    """
    images, labels, roles = [], [], []
    for role, part in PARTS.items():
        images.append(_idx(Path(root), f"{part}-images-idx3-ubyte", axes=3))
        labels.append(_idx(Path(root), f"{part}-labels-idx1-ubyte", axes=1))
        if len(images[-1]) != len(labels[-1]):
            raise DataError(f"{root} has {len(images[-1])} {role} images but {len(labels[-1])} labels.")
        roles += [role] * len(labels[-1])
    digits = np.concatenate(labels).astype(np.int64)
    names = tuple(map(str, range(int(digits.max()) + 1)))
    return Dataset(np.concatenate(images), digits, names, name="mnist", roles=None if merge else np.array(roles))


def _idx(root: Path, name: str, axes: int) -> npt.NDArray[Any]:
    """Read one file: two zero bytes, the data type (8: bytes), the number of axes, their lengths, the data."""
    path = next((root / file for file in (name, f"{name}.gz") if (root / file).is_file()), None)
    if path is None:
        raise DataError(f"{root} has no {name} or {name}.gz.", hint="Pass the folder with MNIST's four idx files.")
    content = read_content(path)
    if path.suffix == ".gz":
        with reading(path, "a packed idx file"), gzip.open(path) as file:
            content = file.read(LARGEST + 1)
    lengths = [int.from_bytes(content[start : start + 4], "big") for start in range(4, 4 + 4 * axes, 4)]
    whole = 4 + 4 * axes + prod(lengths)
    if content[:4] != bytes((0, 0, 8, axes)) or len(content) > LARGEST or len(content) != whole:
        raise DataError(f"{path} is not a complete idx file of bytes with {axes} axes; download it again.")
    return np.frombuffer(content[4 + 4 * axes :], dtype=np.uint8).reshape(lengths).copy()
