"""Convert datasets of other libraries: torch datasets of (x, y), DataLoaders, Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from vicinal.data.dataset import Dataset
from vicinal.errors import DataError, InputError

__all__ = ["as_dataset", "is_foreign"]

Pair = tuple[Any, Any]
ARRAYS = ("Sequence", "List", "Array2D", "Array3D")  # types of columns that hold numbers


def as_dataset(data: Any, *, size: int | None = None, name: str = "") -> Dataset:
    """Convert another library's dataset to a `Dataset`; all items are loaded into memory.

    Args:
        data: A torch `Dataset` of (x, y), a `DataLoader` of batches of them, a Hugging Face dataset with a column of
            images or vectors and one of labels, or anything that yields (x, y); a `vicinal.Dataset` is returned as it
            is. Each x is a PIL image, a uint8 array [h, w] or [h, w, 3], a float tensor [c, h, w] from 0 to 1, or a
            vector; y is an integer or a name.
        size: Height and width to scale images to; required if they differ in size.
        name: Name of the data; by default the name of its class.

    Raises:
        InputError: If items are neither images nor vectors, or differ in shape.

    Example:
        >>> import torch
        >>> pairs = torch.utils.data.TensorDataset(torch.randn(6, 4), torch.tensor([5, 5, 7, 7, 9, 9]))
        >>> as_dataset(pairs)
        Dataset('TensorDataset': 6 vectors, 3 classes)
    """
    if isinstance(data, Dataset):
        return data
    pairs, names = _pairs(data)
    items, labels = [], []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"Item {number} must be a pair (x, y); got {type(pair).__name__}.")
        items.append(_item(pair[0], size, number))
        labels.append(pair[1].item() if hasattr(pair[1], "item") else pair[1])
    called = name or type(data).__name__
    if not items:
        raise DataError(f"{called} holds no items.")
    shapes = sorted({item.shape for item in items})
    if len(shapes) > 1:
        raise InputError(f"Items differ in shape ({', '.join(map(str, shapes[:4]))}): scale images with size=224.")
    if not all(isinstance(label, int | str) and not isinstance(label, bool) for label in labels):
        raise InputError(f"Labels must be integers or names; got {labels[0]!r}.")
    classes, codes = np.unique(np.array(labels), return_inverse=True)
    class_names = {label: names(label) for label in classes.tolist()}
    return Dataset(np.stack(items), codes.astype(np.int64), tuple(class_names.values()), name=called)


def is_foreign(data: Any) -> bool:
    """Return whether an object is a dataset of torch or Hugging Face, or a loader."""
    from torch.utils.data import DataLoader, IterableDataset
    from torch.utils.data import Dataset as TorchDataset

    return isinstance(data, TorchDataset | DataLoader | IterableDataset) or _has_columns(data)


def _has_columns(data: Any) -> bool:
    return hasattr(data, "features") and hasattr(data, "column_names")


def _pairs(data: Any) -> tuple[Iterator[Pair], Callable[[Any], str]]:
    """Return the pairs of a dataset, and a function from a label to the name of its class."""
    if _has_columns(data):
        return _columns(data)
    if hasattr(data, "batch_size") and hasattr(data, "dataset"):
        classes = getattr(data.dataset, "classes", None)
        return ((x, y) for batch in data for x, y in zip(*batch, strict=True)), _names(classes)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return (data[index] for index in range(len(data))), _names(getattr(data, "classes", None))
    if hasattr(data, "__iter__"):
        return iter(data), _names(None)
    raise InputError(f"Data must be a Dataset, a name, a path, or something that holds pairs (x, y); got {data!r}.")


def _names(classes: Any) -> Callable[[Any], str]:
    """Return a function that names classes: by a list that labels index, as in torchvision; or by the labels."""
    names = classes if isinstance(classes, list | tuple) else ()
    return lambda label: str(names[label]) if isinstance(label, int) and 0 <= label < len(names) else str(label)


def _columns(data: Any) -> tuple[Iterator[Pair], Callable[[Any], str]]:
    """Find the two columns of a Hugging Face dataset: images or numbers, and classes."""
    kinds = {column: type(feature).__name__ for column, feature in data.features.items()}
    labels = [column for column, kind in kinds.items() if kind == "ClassLabel"] or [
        column for column in ("label", "labels", "y", "class") if column in kinds
    ]
    items = [column for column, kind in kinds.items() if kind == "Image"] or [
        column for column, kind in kinds.items() if column not in labels and kind in ARRAYS
    ]
    if len(items) != 1 or len(labels) != 1:
        raise InputError(
            f"A dataset with one column of images or vectors and one of labels is needed; got {kinds}. "
            "data.select_columns([...]) and data.rename_column(...) make one."
        )
    feature = data.features[labels[0]]
    named = feature.int2str if kinds[labels[0]] == "ClassLabel" else str
    return ((row[items[0]], row[labels[0]]) for row in data), named


def _item(value: Any, size: int | None, number: int) -> npt.NDArray[Any]:
    """Return an item as a uint8 image [h, w] or [h, w, 3], or as a float vector."""
    if isinstance(value, Image.Image):
        image = value if value.mode == "L" else value.convert("RGB")
        return np.asarray(image if size is None else image.resize((size, size), Image.Resampling.BILINEAR))
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.ndim == 1 and array.dtype.kind in "fiu":
        return array.astype(np.float32)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):  # torch puts channels first
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype.kind == "f" and array.ndim in (2, 3):
        low, high = float(array.min()), float(array.max())
        if low < 0 or high > 1:
            raise InputError(
                f"Item {number} is an image of numbers from {low:.3g} to {high:.3g}; expected 0 to 1: remove the "
                "normalisation from its transform, since the embedder has its own."
            )
        array = np.round(255 * array).astype(np.uint8)
    if array.dtype != np.uint8 or not (array.ndim == 2 or array.shape[2:] == (3,)):
        raise InputError(f"Item {number} is neither an image nor a vector: {array.dtype} of shape {list(array.shape)}.")
    return array if size is None else _item(Image.fromarray(array), size, number)
