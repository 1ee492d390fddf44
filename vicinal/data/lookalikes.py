"""The same picture twice, by its bytes, and nearly the same picture, by a perceptual hash."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import final

import imagehash
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS, digest, map_files, open_header, read_bytes

__all__ = ["Lookalikes", "find_lookalikes", "lookalike_files"]

SIDE = 8
FLAT = 24  # grey levels: a picture with less contrast than this looks like any other
CLOSE = 6  # bits of 128 in which nearly identical pictures may differ
MOST = 20_000  # pictures that are compared by eye, each with each
ROWS = 512
NOT_COMPARED = (
    "Pictures were compared by their bytes alone, not by their looks: each with each, which takes long beyond "
    f"{MOST:,} of them."
)


@final
@dataclass(frozen=True)
class Lookalikes:
    """Pictures that are in a dataset more than once.

    Args:
        same: Positions of files with the same bytes.
        near: Pairs of files that differ and look the same.
        compared: Whether pictures were compared by eye; beyond `MOST` of them that would take long.
    """

    same: tuple[tuple[int, ...], ...]
    near: tuple[tuple[int, int], ...]
    compared: bool


def find_lookalikes(data: Dataset) -> Lookalikes:
    """Find the same and nearly the same pictures among image files; arrays and vectors have none.

    Each picture is reduced to 9 x 9 grey levels, of which 128 bits say where it gets brighter to the right and
    downwards (imagehash's difference hashes); size, format and compression hardly change them.
    """
    return lookalike_files(data.items) if isinstance(data.items, tuple) else Lookalikes((), (), False)


def lookalike_files(paths: Sequence[str]) -> Lookalikes:
    """Find the same and nearly the same pictures among files; see `find_lookalikes`.

    Args:
        paths: Of image files; those that cannot be read look like nothing.
    """
    places = defaultdict(list)
    for position, content in enumerate(map_files(_content, paths)):
        places[content or str(position).encode()].append(position)
    same = tuple(tuple(group) for group in places.values() if len(group) > 1)
    if len(places) > MOST:
        return Lookalikes(same, (), False)
    firsts = np.array([group[0] for group in places.values()])
    hashes = map_files(_looks_now, [paths[position] for position in firsts])
    seen = np.array([position for position, looks in enumerate(hashes) if looks is not None], dtype=np.int64)
    if len(seen) < 2:
        return Lookalikes(same, (), True)
    pairs = _close(np.stack([looks for looks in hashes if looks is not None]))
    near = tuple((int(firsts[seen[one]]), int(firsts[seen[other]])) for one, other in pairs)
    return Lookalikes(same, near, True)


def _content(path: str) -> bytes | None:
    try:
        return digest(path)
    except OSError:  # an index may list files that have gone
        return None


def _looks_now(path: str) -> NDArray[np.uint64] | None:
    content = _content(path)
    return None if content is None else _looks(path, content)


@cache
def _looks(path: str, content: bytes) -> NDArray[np.uint64] | None:
    """The hash of a picture, remembered while its content is the same; None for one that is blank or unreadable."""
    try:
        image = open_header(read_bytes(path))
        image.draft("L", (4 * SIDE, 4 * SIDE))
        grey = image.convert("L")
    except IMAGE_ERRORS:
        return None
    if np.ptp(np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.int16)) < FLAT:
        return None
    brighter = (imagehash.dhash(grey, SIDE), imagehash.dhash_vertical(grey, SIDE))
    return np.concatenate([np.packbits(bits.hash).view(np.uint64) for bits in brighter])


def _close(hashes: NDArray[np.uint64]) -> list[tuple[int, int]]:
    pairs = []
    for start in range(0, len(hashes), ROWS):
        block = hashes[start : start + ROWS]
        apart = np.bitwise_count(block[:, None, 0] ^ hashes[None, :, 0]).astype(np.int16)
        apart += np.bitwise_count(block[:, None, 1] ^ hashes[None, :, 1])
        ones, others = np.nonzero(apart <= CLOSE)
        pairs += [(start + one, other) for one, other in zip(ones.tolist(), others.tolist(), strict=True)]
    return [(one, other) for one, other in pairs if one < other]
