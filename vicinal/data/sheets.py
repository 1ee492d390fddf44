"""Contact sheets: a row of images per class, or rows of captioned images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS, decoding
from vicinal.data.images import open_image
from vicinal.errors import InputError, VicinalError

__all__ = ["BLUE", "GAP", "GREY", "RED", "SIZE", "Cell", "draw_rows", "thumbnail"]


def contact_sheet(dataset: Dataset, *, rows: int = 12, columns: int = 12, size: int = 96) -> Image.Image:
    """Draw one row of images for each of `rows` classes, spread evenly over all classes.

    Args:
        dataset: Dataset of images.
        rows: Maximum number of classes.
        columns: Maximum number of images per class.
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
            position = (column * size + (size - small.width) // 2, row * size + (size - small.height) // 2)
            sheet.paste(small, position)
    return sheet


# Rows of captioned thumbnails as one image.

SIZE = 128  # side of a thumbnail in pixels
GAP, LINE = 8, 13
INK, GREY, BLUE, RED = "#1b1b1b", "#8a8a8a", "#2f6fb0", "#b03a2f"


class Cell(NamedTuple):
    """One image of a row.

    Attributes:
        image: Path or image; None for an item without one.
        words: Lines of the caption.
        frame: Colour of a frame around it, if any.
    """

    image: Any
    words: Sequence[str] = ()
    frame: str | None = None


def draw_rows(rows: Sequence[Sequence[Cell]]) -> Image.Image:
    """Draw rows of images with their captions.

    Args:
        rows: Images of each row; rows may differ in length.
    """
    across = max((len(row) for row in rows), default=1)
    lines = max((len(cell.words) for row in rows for cell in row), default=0)
    wide, high = SIZE + GAP, SIZE + lines * LINE + GAP
    page = Image.new("RGB", (across * wide + GAP, len(rows) * high + GAP), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(11)
    for number, row in enumerate(rows):
        for column, cell in enumerate(row):
            left, top = GAP + column * wide, GAP + number * high
            _put(page, pen, font, (left, top), cell)
            if cell.frame is not None:
                pen.rectangle((left - 2, top - 2, left + SIZE + 1, top + SIZE + 1), outline=cell.frame, width=2)
    return page


def _put(page: Image.Image, pen: ImageDraw.ImageDraw, font: Any, corner: tuple[int, int], cell: Cell) -> None:
    left, top = corner
    small = thumbnail(cell.image)
    if small is None:
        pen.rectangle((left, top, left + SIZE - 1, top + SIZE - 1), outline=GREY)
        pen.text((left + SIZE // 2, top + SIZE // 2), "no picture", fill=GREY, font=font, anchor="mm")
    else:
        page.paste(small, (left + (SIZE - small.width) // 2, top + (SIZE - small.height) // 2))
    for line, text in enumerate(cell.words):
        while pen.textlength(text, font=font) > SIZE and len(text) > 2:
            text = text[:-2] + "…"
        pen.text((left, top + SIZE + 2 + line * LINE), text, fill=INK, font=font)


def thumbnail(image: Any) -> Image.Image | None:
    """Return a thumbnail of a path or an image; None if there is none, or it cannot be read."""
    try:
        opened = image if isinstance(image, Image.Image) else None if image is None else open_image(Path(image))
        return None if opened is None else ImageOps.contain(opened.convert("RGB"), (SIZE, SIZE))
    except (VicinalError, *IMAGE_ERRORS):
        return None
