"""What images look like, from a few of them: coloured or grey, large or small, photographs or drawings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS

__all__ = ["Looks", "looks_of"]

GREY = ("1", "L", "LA", "I", "I;16", "F")  # PIL's modes without colour
LOOKED_AT = 16
SMALL = 64  # pixels of the short side, up to which a small network sees what there is
NEAR = 0.1  # of the range of greys, within which a pixel is ink or paper
SHADED = 0.5  # of the pixels of a photograph are neither


class Looks(NamedTuple):
    """Whether images have colours, the pixels of their shorter side (the median), and whether grey ones have shades.

    Shades tell a grey photograph from a drawing; of small ones nobody asks.
    """

    colour: bool
    side: int
    shaded: bool = False

    @property
    def photographs(self) -> bool:
        """Whether they are larger than what small networks take, and not drawn with one ink."""
        return self.side > SMALL and (self.colour or self.shaded)


def looks_of(data: Dataset) -> Looks | None:
    """Look at a few images, spread over the dataset; None for feature vectors.

    Example:
        >>> from vicinal.data import digits
        >>> looks_of(digits())
        Looks(colour=False, side=8, shaded=False)
    """
    if data.kind == "vectors" or not len(data):
        return None
    if not isinstance(data.items, tuple) and (data.items.ndim == 4 or min(data.items.shape[1:3]) <= SMALL):
        return Looks(data.items.ndim == 4, min(data.items.shape[1:3]))
    modes, sides, shades = [], [], []
    for index in np.linspace(0, len(data) - 1, min(LOOKED_AT, len(data))).round().astype(int):
        try:
            image = data.open(int(index))
            shades.append(min(image.size) > SMALL and image.mode in GREY and _is_shaded(image))
        except IMAGE_ERRORS:  # which the reader or the training reports
            continue
        modes.append(image.mode)
        sides.append(min(image.size))
    if not sides:
        return None
    return Looks(any(mode not in GREY for mode in modes), int(np.median(sides)), float(np.mean(shades)) > 0.5)


def _is_shaded(image: Image.Image) -> bool:
    """Whether most pixels are neither about as dark nor about as bright as any: those of a drawing are ink or paper."""
    pixels = np.asarray(image if image.mode != "LA" else image.convert("L"), dtype=np.float32)
    darkest, brightest = float(pixels.min()), float(pixels.max())
    near = NEAR * (brightest - darkest)
    return bool(((pixels > darkest + near) & (pixels < brightest - near)).mean() > SHADED)
