"""Whether a small grey picture is another one, or what is left of it when a little is cut off."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray
from PIL import Image

__all__ = ["THUMBNAIL", "crop_correlation"]

THUMBNAIL = 64  # pixels of a side of the pictures that are compared
COMPARED = 32  # pixels to which parts of them are reduced
KEPT = (1.0, 0.975, 0.95, 0.925, 0.9)  # of each side, when a little is cut off
SHIFTS = (0.0, 0.5, 1.0)  # of what is cut off, on the left or at the top


def crop_correlation(one: UInt8[np.ndarray, "s s"], other: UInt8[np.ndarray, "s s"]) -> float:
    """Return the greatest correlation of one picture with the other, either whole or cut a little at its edges.

    Correlations do not see how bright a picture is, nor how strong its contrast.

    Example:
        >>> picture = np.random.default_rng(0).integers(0, 256, (8, 8)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
        >>> crop_correlation(picture, picture // 2) > 0.999
        True
    """
    best = -1.0
    for whole, cut in ((one, other), (other, one)):
        target = _standardised(Image.fromarray(whole), None)
        source = Image.fromarray(cut)
        best = max(best, *(float(target @ _standardised(source, box)) for box in _boxes(len(cut))))
    return best


def _boxes(side: int) -> Iterator[tuple[float, float, float, float]]:
    for kept in KEPT:
        size, room = kept * side, (1 - kept) * side
        shifts = SHIFTS if room else (0.0,)
        yield from ((room * x, room * y, room * x + size, room * y + size) for x in shifts for y in shifts)


def _standardised(image: Image.Image, box: tuple[float, float, float, float] | None) -> NDArray[np.float64]:
    """A part of a picture as numbers of mean 0 and length 1, so that inner products are correlations."""
    part = image.resize((COMPARED, COMPARED), Image.Resampling.BILINEAR, box=box)
    values = np.asarray(part, dtype=np.float64).ravel()
    values -= values.mean()
    length = float(np.linalg.norm(values))
    return values / length if length else values
