"""Whether a small grey picture is another one, or what is left of it when a little is cut off."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, UInt8
from PIL import Image

__all__ = ["THUMBNAIL", "crop_correlation", "crops", "whole"]

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
    mine, theirs = crops(one), crops(other)
    return float(max((mine @ theirs[0]).max(), (theirs @ mine[0]).max()))


def crops(picture: UInt8[np.ndarray, "s s"]) -> Float64[np.ndarray, "c p"]:
    """Return the whole picture, and then all that is left of it when a little is cut off.

    Each is reduced to a few pixels and has mean 0 and length 1 (0 if it is blank), so that inner products are
    correlations.

    Example:
        >>> crops(np.eye(64, dtype=np.uint8) * 255).shape
        (37, 1024)
    """
    image = Image.fromarray(picture)
    parts = [image.resize((COMPARED, COMPARED), Image.Resampling.BILINEAR, box=box) for box in _boxes(len(picture))]
    values = np.stack([np.asarray(part) for part in parts]).reshape(len(parts), -1).astype(np.float64)
    values -= values.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)


def whole(picture: UInt8[np.ndarray, "s s"]) -> Float64[np.ndarray, " p"]:
    """Return the first of `crops` alone."""
    values = np.asarray(Image.fromarray(picture).resize((COMPARED, COMPARED), Image.Resampling.BILINEAR)).ravel()
    centred = values - values.mean()
    length = float(np.linalg.norm(centred))
    return centred / length if length else centred


def _boxes(side: int) -> Iterator[tuple[float, float, float, float]]:
    for kept in KEPT:
        size, room = kept * side, (1 - kept) * side
        shifts = SHIFTS if room else (0.0,)
        yield from ((room * x, room * y, room * x + size, room * y + size) for x in shifts for y in shifts)
