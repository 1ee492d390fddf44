"""A contact sheet: some images of some classes on one page."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageOps

from vicinal.data.dataset import Dataset
from vicinal.data.files import decoding
from vicinal.errors import InputError


def contact_sheet(dataset: Dataset, *, rows: int = 12, columns: int = 12, size: int = 96) -> Image.Image:
    """One row of images for each of `rows` classes spread evenly over all.

    Args:
        dataset: Images.
        rows: Classes at most.
        columns: Images of each class at most.
        size: Height and width of each image on the sheet.

    Example:
        >>> from vicinal.data import digits
        >>> contact_sheet(digits(), rows=2, columns=3, size=32).size
        (96, 64)
    """
    if dataset.kind == "vectors" or not len(dataset):
        raise InputError(f"a contact sheet needs images; {dataset.name} has {len(dataset)} {dataset.kind}.")
    classes = dataset.classes
    shown = classes[np.unique(np.linspace(0, len(classes) - 1, rows).round().astype(int))]
    sheet = Image.new("RGB", (columns * size, len(shown) * size), "white")
    for row, label in enumerate(shown.tolist()):
        for column, index in enumerate(dataset.members(label)[:columns].tolist()):
            with decoding(dataset.item(index) if dataset.kind == "paths" else f"image {index}"):
                image = dataset.open(index)
                image.draft("RGB", (size, size))
                small = ImageOps.contain(image.convert("RGB"), (size, size))
            place = (column * size + (size - small.width) // 2, row * size + (size - small.height) // 2)
            sheet.paste(small, place)
    return sheet
