"""Rows of small pictures with words under them, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont, ImageOps

from vicinal.data.cutting import open_image
from vicinal.data.files import IMAGE_ERRORS
from vicinal.errors import VicinalError

__all__ = ["BLUE", "GAP", "GREY", "RED", "SIZE", "Cell", "draw_rows", "thumbnail"]

SIZE = 128  # of one picture
GAP, LINE = 8, 13
INK, GREY, BLUE, RED = "#1b1b1b", "#8a8a8a", "#2f6fb0", "#b03a2f"


class Cell(NamedTuple):
    """One picture of a row.

    Attributes:
        image: A path or an image; None for what has none.
        words: Lines under it.
        frame: A colour to draw round it, if any.
    """

    image: Any
    words: Sequence[str] = ()
    frame: str | None = None


def draw_rows(rows: Sequence[Sequence[Cell]]) -> Image.Image:
    """Draw one row of pictures under the other, each with its words.

    Args:
        rows: They may differ in length.
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
    """Return a small picture of a path or an image; None where there is none, or none that can be read."""
    try:
        opened = image if isinstance(image, Image.Image) else None if image is None else open_image(Path(image))
        return None if opened is None else ImageOps.contain(opened.convert("RGB"), (SIZE, SIZE))
    except (VicinalError, *IMAGE_ERRORS):
        return None
