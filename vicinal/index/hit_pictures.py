"""Queries and what was found for them, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont, ImageOps

from vicinal.data.cutting import open_image
from vicinal.data.files import IMAGE_ERRORS
from vicinal.errors import VicinalError
from vicinal.index.hits import Hits

__all__ = ["draw_hits"]

SIZE = 128  # of one picture
GAP, LINE = 8, 13
INK, GREY, FRAME = "#1b1b1b", "#8a8a8a", "#2f6fb0"


def draw_hits(queries: Sequence[tuple[str, Any]], answers: Sequence[Hits]) -> Image.Image:
    """Draw one row per query: the query, then what was found, with similarity and label under each.

    Args:
        queries: A caption, and a path or an image or None for what has none.
        answers: One for each query.
    """
    across = 1 + max((len(hits) for hits in answers), default=0)
    wide, high = SIZE + GAP, SIZE + 2 * LINE + GAP
    page = Image.new("RGB", (across * wide + GAP, len(answers) * high + GAP), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(11)
    for row, ((caption, image), hits) in enumerate(zip(queries, answers, strict=True)):
        top = GAP + row * high
        _put(page, pen, font, (GAP, top), image, ["query", caption])
        pen.rectangle((GAP - 2, top - 2, GAP + SIZE + 1, top + SIZE + 1), outline=FRAME, width=2)
        for column, hit in enumerate(hits, start=1):
            label = "" if hit.label is None else str(hit.label)
            words = [f"{hit.similarity:.4f}", label or Path(str(hit.id)).name]
            _put(page, pen, font, (GAP + column * wide, top), hit.path, words)
    return page


def _put(
    page: Image.Image, pen: ImageDraw.ImageDraw, font: Any, corner: tuple[int, int], image: Any, words: Sequence[str]
) -> None:
    left, top = corner
    small = _small(image)
    if small is None:
        pen.rectangle((left, top, left + SIZE - 1, top + SIZE - 1), outline=GREY)
        pen.text((left + SIZE // 2, top + SIZE // 2), "no picture", fill=GREY, font=font, anchor="mm")
    else:
        page.paste(small, (left + (SIZE - small.width) // 2, top + (SIZE - small.height) // 2))
    for line, text in enumerate(words):
        while pen.textlength(text, font=font) > SIZE and len(text) > 2:
            text = text[:-2] + "…"
        pen.text((left, top + SIZE + 2 + line * LINE), text, fill=INK, font=font)


def _small(image: Any) -> Image.Image | None:
    try:
        opened = image if isinstance(image, Image.Image) else None if image is None else open_image(Path(image))
        return None if opened is None else ImageOps.contain(opened.convert("RGB"), (SIZE, SIZE))
    except (VicinalError, *IMAGE_ERRORS):
        return None
