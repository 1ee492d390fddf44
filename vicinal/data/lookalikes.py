"""The same picture twice, by its bytes, and nearly the same picture, by perceptual hashes and a second look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, final

import imagehash
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vicinal.data.crop_match import THUMBNAIL, crops, whole
from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS, digest, map_files, open_header, read_bytes

__all__ = ["Lookalikes", "find_lookalikes", "lookalike_files"]

SIDE = 8
FLAT = 24  # grey levels: a picture with less contrast than this looks like any other
CLOSE = 6  # bits of 128 in which nearly identical pictures may differ
MAYBE = 12  # bits of 64, by coarser looks, in which pictures may differ that are worth a second look
ALIKE = 0.93  # correlation of two pictures, one of them cut a little perhaps, that are the same at a second look
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
    downwards (imagehash's difference hashes); size, format and compression hardly change them. Those that are near by
    coarser looks (its hash of cosines) are compared once more, as small pictures, of which a little may be cut off.
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
    looks = map_files(_looks_now, [paths[position] for position in firsts])
    seen = [(int(position), look) for position, look in zip(firsts, looks, strict=True) if look is not None]
    if len(seen) < 2:
        return Lookalikes(same, (), True)
    pairs = _close({paths[position]: look for position, look in seen})
    return Lookalikes(same, tuple((seen[one][0], seen[other][0]) for one, other in pairs), True)


def _content(path: str) -> bytes | None:
    try:
        return digest(path)
    except OSError:  # an index may list files that have gone
        return None


class _Look(NamedTuple):
    """What remains of a picture: where it gets brighter, its coarse looks, and a small grey copy."""

    brighter: NDArray[np.uint64]
    coarse: np.uint64
    small: NDArray[np.uint8]


def _looks_now(path: str) -> _Look | None:
    content = _content(path)
    return None if content is None else _looks(path, content)


@cache
def _looks(path: str, content: bytes) -> _Look | None:
    """The looks of a picture, remembered while its content is the same; None for one that is blank or unreadable."""
    try:
        image = open_header(read_bytes(path))
        image.draft("L", (THUMBNAIL, THUMBNAIL))
        grey = image.convert("L")
    except IMAGE_ERRORS:
        return None
    if np.ptp(np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.int16)) < FLAT:
        return None
    hashes = (imagehash.dhash(grey, SIDE), imagehash.dhash_vertical(grey, SIDE), imagehash.phash(grey, SIDE))
    right, down, coarse = (np.packbits(bits.hash).view(np.uint64)[0] for bits in hashes)
    small = np.asarray(grey.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX))
    return _Look(np.array([right, down]), coarse, small)


def _close(looks_of: Mapping[str, _Look]) -> list[tuple[int, int]]:
    """Pairs of pictures that look the same, by place: by fine hashes, or by coarse ones and a second look."""
    looks = list(looks_of.values())
    brighter, coarse = np.stack([look.brighter for look in looks]), np.array([look.coarse for look in looks])
    pairs: list[tuple[int, int]] = []
    unsure: list[tuple[int, int]] = []
    for start in range(0, len(looks), ROWS):
        here = slice(start, start + ROWS)
        apart = np.bitwise_count(brighter[here, None, 0] ^ brighter[None, :, 0]).astype(np.int16)
        apart += np.bitwise_count(brighter[here, None, 1] ^ brighter[None, :, 1])
        near = apart <= CLOSE
        maybe = ~near & (np.bitwise_count(coarse[here, None] ^ coarse[None, :]) <= MAYBE)
        for told, mask in ((pairs, near), (unsure, maybe)):
            found = zip(*(places.tolist() for places in np.nonzero(mask)), strict=True)
            told += [(start + one, other) for one, other in found if start + one < other]
    return sorted(pairs + _same_at_a_second_look(looks_of, unsure))


def _same_at_a_second_look(looks_of: Mapping[str, _Look], pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs of places whose pictures correlate, either of the two whole or cut a little.

    The parts of a picture are made once, for all pictures that it is compared with, and are not kept: those of 20,000
    pictures would not fit into memory.
    """
    others: dict[int, list[int]] = defaultdict(list)
    for one, other in pairs:
        others[one].append(other)
        others[other].append(one)
    paths = list(looks_of)
    places = {paths[place]: place for place in sorted(others)}
    wholes = {place: whole(looks_of[path].small) for path, place in places.items()}

    def greatest(path: str) -> dict[int, float]:
        compared = others[places[path]]
        values = crops(looks_of[path].small) @ np.stack([wholes[place] for place in compared], axis=1)
        return dict(zip(compared, values.max(axis=0).tolist(), strict=True))

    best = dict(zip(places.values(), map_files(greatest, list(places)), strict=True))
    return [(one, other) for one, other in pairs if max(best[one][other], best[other][one]) >= ALIKE]
