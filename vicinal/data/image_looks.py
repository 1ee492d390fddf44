"""What images look like, from the headers of a few: coloured or grey, large or small."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS

__all__ = ["Looks", "looks_of"]

GREY = ("1", "L", "LA", "I", "I;16", "F")  # PIL's modes without colour
LOOKED_AT = 16
SMALL = 64  # pixels of the short side, up to which a small network sees what there is


class Looks(NamedTuple):
    """Whether images have colours, and the pixels of their shorter side (the median)."""

    colour: bool
    side: int

    @property
    def photographs(self) -> bool:
        """Whether they are coloured and larger than what small networks take."""
        return self.colour and self.side > SMALL


def looks_of(data: Dataset) -> Looks | None:
    """Look at a few images, spread over the dataset; None for feature vectors.

    Example:
        >>> from vicinal.data import digits
        >>> looks_of(digits())
        Looks(colour=False, side=8)
    """
    if data.kind == "vectors" or not len(data):
        return None
    if not isinstance(data.items, tuple):
        return Looks(data.items.ndim == 4, min(data.items.shape[1:3]))
    modes, sides = [], []
    for index in np.linspace(0, len(data) - 1, min(LOOKED_AT, len(data))).round().astype(int):
        try:
            image = data.open(int(index))
        except IMAGE_ERRORS:  # which the reader or the training reports
            continue
        modes.append(image.mode)
        sides.append(min(image.size))
    return Looks(any(mode not in GREY for mode in modes), int(np.median(sides))) if sides else None
