"""Cut a part out of an image and scale it, decoding no more of the file than that needs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image

from vicinal.data.files import open_header, read_bytes, upright
from vicinal.errors import look_up

Source = Image.Image | str | Path
Number = int | float
Box = tuple[Number, Number, Number, Number]
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def open_image(source: Source) -> Image.Image:
    """The image itself, or the one at a path, not decoded yet."""
    return source if isinstance(source, Image.Image) else upright(open_header(read_bytes(str(source))))


def scaled_size(size: tuple[int, int], short_side: int | None) -> tuple[int, int, float]:
    """Width and height after the short side is scaled to `short_side`, and the factor; None leaves them.

    Example:
        >>> scaled_size((400, 200), 100)
        (200, 100, 0.5)
    """
    width, height = size
    if short_side is None:
        return width, height, 1.0
    scale = short_side / min(size)
    return max(short_side, int(width * scale)), max(short_side, int(height * scale)), scale


def draw_part(
    width: int, height: int, area: tuple[float, float], ratio: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Draw left, top, width and height of a part with a random share of the area and random ratio.

    After ten draws that do not fit it is the largest part in the middle whose ratio is allowed.
    """
    for _ in range(10):
        pixels = width * height * rng.uniform(*area)
        shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1)), w, h
    w = min(width, round(height * ratio[1]))
    h = min(height, round(width / ratio[0]))
    return (width - w) // 2, (height - h) // 2, w, h


def cut(image: Image.Image, box: Box, size: tuple[int, int], mode: str, resampling: str = "bilinear") -> Image.Image:
    """The part `box` (in pixels of the whole image) scaled to `size`, in `mode`, by a filter of `FILTERS`.

    A JPEG that is not decoded yet is decoded at a half, a quarter or an eighth if that is still as
    fine as the result; the rest is scaled in one step, from the pixels of the box only.
    """
    whole = image.size
    wanted = (
        math.ceil(whole[0] * size[0] / (box[2] - box[0])),
        math.ceil(whole[1] * size[1] / (box[3] - box[1])),
    )
    image.draft(mode, wanted)
    across, down = image.width / whole[0], image.height / whole[1]
    # Rounding must not put the box a hair outside the image.
    part = (
        max(0.0, box[0] * across),
        max(0.0, box[1] * down),
        min(float(image.width), box[2] * across),
        min(float(image.height), box[3] * down),
    )
    converted = image if image.mode == mode else image.convert(mode)
    if size == image.size and part == (0, 0, *size):
        return converted
    return converted.resize(size, look_up("resampling", resampling, FILTERS), box=part, reducing_gap=2.0)
