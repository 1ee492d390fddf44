"""Inputs of an embedder, opened one item at a time: files, images, arrays, tensors, a Dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from vicinal._util.reading import printable
from vicinal.backbones.backbone import Input
from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS, check_pixels, fault_of_image
from vicinal.data.foreign import as_dataset, is_foreign
from vicinal.data.images import open_image
from vicinal.data.transforms import CentreCrop, Fit, describe, restore
from vicinal.errors import DataError, InputError, look_up

__all__ = ["Inputs", "Item", "default_transform", "describe_transform", "prepare", "reader", "restore_transform"]


Item = str | os.PathLike[str] | Image.Image | npt.NDArray[Any] | Tensor
Inputs = Item | Sequence[Item] | Dataset | torch.utils.data.Dataset[Any] | torch.utils.data.DataLoader[Any]


def reader(inputs: Inputs, expects: Input) -> tuple[int, Callable[[int], Item]]:
    """Return the number of items, and a function that returns an item by its position.

    A single path, image or vector counts as one item. An array [n, d] holds n vectors; for an
    image backbone, [n, h, w, c] and [n, h, w] hold n images, [h, w] and [h, w, 1 or 3] one.
    """
    items: Any = as_dataset(inputs) if is_foreign(inputs) else inputs
    if isinstance(items, Dataset):
        return len(items), items.item if items.boxes is None else partial(_boxed, items)
    if isinstance(items, str | os.PathLike | Image.Image):
        return 1, lambda _: items
    if isinstance(items, np.ndarray | Tensor) and _is_one(items, expects):
        return 1, lambda _: items
    return len(items), items.__getitem__


def _boxed(dataset: Dataset, index: int) -> Image.Image:
    try:
        image = dataset.open(index)
        image.load()
    except IMAGE_ERRORS as error:
        raise _unreadable(dataset.item(index), error) from None
    return image


def _is_one(array: npt.NDArray[Any] | Tensor, expects: Input) -> bool:
    if expects.pixels is None:
        return array.ndim == 1
    if isinstance(array, Tensor):
        return array.ndim == 3
    return array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3))


def prepare(item: Item, expects: Input, transform: Callable[[Image.Image], Tensor] | None) -> Tensor:
    """Convert one item to an input of the backbone; a tensor is assumed to be one already.

    A custom transform gets the image in RGB; vicinal's transforms decode only what they need.
    """
    if isinstance(item, Tensor):
        return item.float()
    if expects.pixels is None:
        return _vector(item, expects)
    if transform is None:
        raise InputError("embedder.transform is None: give it a transform, or pass tensors of the right size.")
    try:
        image = _image(item)
        if isinstance(transform, CentreCrop | Fit):
            return transform(image)
        image = image.convert("RGB")
    except InputError:
        raise
    except IMAGE_ERRORS as error:
        raise _unreadable(item, error) from None
    return transform(image)


def _vector(item: Item, expects: Input) -> Tensor:
    if not isinstance(item, np.ndarray) or item.shape != (expects.channels,) or item.dtype.kind not in "fiu":
        got = f"{item.dtype} {list(item.shape)}" if isinstance(item, np.ndarray) else _name(item)
        raise InputError(f"This embedder takes vectors of {expects.channels} numbers; got {got}.")
    return torch.from_numpy(item.astype(np.float32))


def _image(item: Item) -> Image.Image:
    if isinstance(item, str | os.PathLike):
        return open_image(Path(item))
    if isinstance(item, Image.Image):
        check_pixels(item)
        return item
    if not isinstance(item, np.ndarray):
        raise InputError(f"An item must be a path, a PIL image, an array or a tensor; got {_name(item)}.")
    if item.dtype != np.uint8 or not (item.ndim == 2 or (item.ndim == 3 and item.shape[2] in (1, 3))):
        raise InputError(
            "An image array must be uint8 [h, w] or [h, w, 1 or 3], values 0 to 255; "
            f"got {item.dtype} {list(item.shape)}."
        )
    return Image.fromarray(item.squeeze(2) if item.shape[2:] == (1,) else item)


def _unreadable(item: Any, error: Exception) -> DataError:
    return DataError(
        f"{printable(_name(item))} cannot be read as an image: {fault_of_image(error)}.",
        hint="Mend it or leave it out.",
    )


def _name(item: Any) -> str:
    return os.fspath(item) if isinstance(item, str | os.PathLike) else f"an item of type {type(item).__name__}"


# Test-time transforms of an embedder: the backbone's default, and those that can be saved.

SAVED = {"CentreCrop": CentreCrop, "Fit": Fit}


def default_transform(expects: Input) -> CentreCrop | Fit | None:
    """Return the default test-time transform of a backbone; None for feature vectors.

    Example:
        >>> default_transform(Input("imagenet", 3, size=224, short_side=256))
        CentreCrop(size=224, short_side=256, pixels='imagenet', resampling='bilinear')
    """
    if expects.pixels is None:
        return None
    if expects.short_side is None:
        return Fit(expects.size, pixels=expects.pixels, resampling=expects.resampling)
    return CentreCrop(expects.size, expects.short_side, pixels=expects.pixels, resampling=expects.resampling)


def describe_transform(transform: object) -> dict[str, Any] | None:
    """Return a transform as a name and numbers.

    Example:
        >>> describe_transform(Fit(32, pixels="grey"))
        {'name': 'Fit', 'size': 32, 'pixels': 'grey'}
    """
    if transform is None:
        return None
    if not isinstance(transform, CentreCrop | Fit):
        raise InputError(
            f"The transform {transform!r} cannot be saved; only those of the types "
            f"{' and '.join(SAVED)} can. Set embedder.transform to one of them before you save or export."
        )
    return describe(transform)


def restore_transform(description: dict[str, Any] | None) -> CentreCrop | Fit | None:
    """Return the transform that `describe_transform` described."""
    if description is None:
        return None
    look_up("transform", str(description.get("name")), SAVED)
    try:
        transform = restore(description)
    except TypeError as error:
        raise InputError(f"Cannot build a transform from {description}: {error}.") from None
    return transform if isinstance(transform, CentreCrop | Fit) else None
