"""Duplicate images by their bytes, near-duplicates by perceptual hashes and a second check, and leaks in splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, final

import imagehash
import numpy as np
from jaxtyping import Float64, UInt8
from numpy.typing import NDArray
from PIL import Image

from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS, Version, Watch, digest, map_files, open_header, read_bytes, version_of
from vicinal.data.splits import Split

__all__ = [
    "MOST",
    "THUMBNAIL",
    "Lookalikes",
    "crop_correlation",
    "find_leaks",
    "find_lookalikes",
    "leak_note",
    "look_at",
    "lookalike_files",
]


# Correlation of small grey images: is one the same as another, or as a slight crop of it?

THUMBNAIL = 64  # side in pixels of the images that are compared
COMPARED = 32  # side in pixels to which crops of them are reduced
KEPT = (1.0, 0.975, 0.95, 0.925, 0.9)  # share of each side that a crop keeps
SHIFTS = (0.0, 0.5, 1.0)  # share of the removed margin that is on the left or at the top


def crop_correlation(one: UInt8[np.ndarray, "s s"], other: UInt8[np.ndarray, "s s"]) -> float:
    """Return the highest correlation of two images, where one of them may be slightly cropped.

    Correlations ignore brightness and contrast.

    Example:
        >>> picture = np.random.default_rng(0).integers(0, 256, (8, 8)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
        >>> crop_correlation(picture, picture // 2) > 0.999
        True
    """
    first, second = crops(one), crops(other)
    return float(max((first @ second[0]).max(), (second @ first[0]).max()))


def crops(picture: UInt8[np.ndarray, "s s"]) -> Float64[np.ndarray, "c p"]:
    """Return the whole image, followed by its slight crops.

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
    """Return only the first of `crops`, the whole image."""
    values = np.asarray(Image.fromarray(picture).resize((COMPARED, COMPARED), Image.Resampling.BILINEAR)).ravel()
    centred = values - values.mean()
    length = float(np.linalg.norm(centred))
    return centred / length if length else centred


def _boxes(side: int) -> Iterator[tuple[float, float, float, float]]:
    for share in KEPT:
        size, room = share * side, (1 - share) * side
        shifts = SHIFTS if room else (0.0,)
        yield from ((room * x, room * y, room * x + size, room * y + size) for x in shifts for y in shifts)


SIDE = 8
FLAT = 24  # grey levels: images with less contrast than this all look alike
CLOSE = 6  # bits of 128 in which near-duplicates may differ
MAYBE = 12  # bits of 64 of the coarse hash in which images may differ to be worth a second check
ALIKE = 0.93  # correlation of two images, one of them possibly cropped, from which the second check accepts them
MOST = 20_000  # maximum number of images that are compared by perceptual hashes, each with each
ROWS = 512
NOT_COMPARED = (
    "Pictures were compared by their bytes alone, not by their looks: each with each, which takes long beyond "
    f"{MOST:,} of them."
)


@final
@dataclass(frozen=True)
class Lookalikes:
    """Images that are in a dataset more than once.

    Args:
        same: Positions of files with the same bytes.
        near: Pairs of positions of files that differ but look the same.
        compared: Whether images were compared by perceptual hashes; for more than `MOST` images it would take long.
    """

    same: tuple[tuple[int, ...], ...]
    near: tuple[tuple[int, int], ...]
    compared: bool


def find_lookalikes(data: Dataset, watch: Watch | None = None) -> Lookalikes:
    """Find duplicates and near-duplicates among image files; arrays and vectors have none.

    Each image is reduced to 9 x 9 grey levels; 128 bits record where it gets brighter to the right and downwards
    (imagehash's difference hashes). Size, format and compression hardly change them. Images that are close by a coarse
    hash (imagehash's pHash, of cosines) are compared again, as thumbnails that may be slightly cropped.

    Args:
        data: Dataset to search.
        watch: Callback, called after every file with the number of files done and the total.
    """
    return lookalike_files(data.items, watch) if isinstance(data.items, tuple) else Lookalikes((), (), False)


def lookalike_files(paths: Sequence[str], watch: Watch | None = None) -> Lookalikes:
    """Find duplicates and near-duplicates among files; see `find_lookalikes`.

    Args:
        paths: Paths of image files; unreadable ones have no near-duplicates.
        watch: Callback, called after every file with the number of files done and the total.
    """
    if len(paths) <= MOST:
        map_files(look_at, paths, watch)  # reads each file once, for its perceptual hashes and its digest
    groups = defaultdict(list)
    for position, content in enumerate(map_files(_content, paths, None if len(paths) <= MOST else watch)):
        groups[content or str(position).encode()].append(position)
    same = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    if len(groups) > MOST:
        return Lookalikes(same, (), False)
    firsts = np.array([group[0] for group in groups.values()])
    looks = map_files(look_at, [paths[position] for position in firsts])
    seen = [(int(position), look) for position, look in zip(firsts, looks, strict=True) if look is not None]
    if len(seen) < 2:
        return Lookalikes(same, (), True)
    pairs = _close({paths[position]: look for position, look in seen}, watch)
    return Lookalikes(same, tuple((seen[first][0], seen[second][0]) for first, second in pairs), True)


def _content(path: str) -> bytes | None:
    try:
        return digest(path)
    except OSError:  # an index may list files that no longer exist
        return None


class Look(NamedTuple):
    """Perceptual hashes of an image: where it gets brighter, a coarse hash, and a small grey copy."""

    brighter: NDArray[np.uint64]
    coarse: np.uint64
    small: NDArray[np.uint8]


# Cached by version: a comparison computes the hashes of images when it opens them, and compares them later.
_LOOKS: dict[Version, Look | None] = {}


def look_at(path: str, content: bytes | None = None) -> Look | None:
    """Return the perceptual hashes of an image, cached while the file does not change; None if blank or unreadable.

    The file is read once for these hashes and for its `digest`.

    Args:
        path: Path of the file.
        content: Bytes of the file, if it was just read.
    """
    try:
        version = version_of(path)
        if version not in _LOOKS:
            content = read_bytes(path) if content is None else content
            digest(path, content)
            _LOOKS[version] = _looks(content)
    except OSError:  # an index may list files that no longer exist
        return None
    return _LOOKS[version]


def _looks(content: bytes) -> Look | None:
    try:
        image = open_header(content)
        image.draft("L", (THUMBNAIL, THUMBNAIL))
        grey = image.convert("L")
    except IMAGE_ERRORS:
        return None
    if np.ptp(np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.int16)) < FLAT:
        return None
    hashes = (imagehash.dhash(grey, SIDE), imagehash.dhash_vertical(grey, SIDE), imagehash.phash(grey, SIDE))
    right, down, coarse = (np.packbits(bits.hash).view(np.uint64)[0] for bits in hashes)
    small = np.asarray(grey.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX))
    return Look(np.array([right, down]), coarse, small)


def _close(looks_of: Mapping[str, Look], watch: Watch | None) -> list[tuple[int, int]]:
    """Return pairs of indices of images that look the same: by fine hashes, or by coarse ones and a second check."""
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
        for target, mask in ((pairs, near), (unsure, maybe)):
            indices = zip(*(axis.tolist() for axis in np.nonzero(mask)), strict=True)
            target += [(start + row, column) for row, column in indices if start + row < column]
    return sorted(pairs + _same_at_a_second_look(looks_of, unsure, watch))


def _same_at_a_second_look(
    looks_of: Mapping[str, Look], pairs: Sequence[tuple[int, int]], watch: Watch | None
) -> list[tuple[int, int]]:
    """Return the pairs of indices whose images correlate, where one of the two may be slightly cropped.

    The crops of an image are computed once, for all images that it is compared with, and are not stored: those of
    20,000 images would not fit into memory.
    """
    others: dict[int, list[int]] = defaultdict(list)
    for first, second in pairs:
        others[first].append(second)
        others[second].append(first)
    paths = list(looks_of)
    indices = {paths[index]: index for index in sorted(others)}
    wholes = {index: whole(looks_of[path].small) for path, index in indices.items()}

    def greatest(path: str) -> dict[int, float]:
        compared = others[indices[path]]
        values = crops(looks_of[path].small) @ np.stack([wholes[index] for index in compared], axis=1)
        return dict(zip(compared, values.max(axis=0).tolist(), strict=True))

    best = dict(zip(indices.values(), map_files(greatest, list(indices), watch), strict=True))
    return [(first, second) for first, second in pairs if max(best[first][second], best[second][first]) >= ALIKE]


# Leaks: items on both sides of a split, so that test items, or nearly the same ones, were trained on.

TELLING = 8  # minimum number of distinct values: blank images and rows of few booleans are equal by chance


def find_leaks(split: Split) -> list[tuple[str, ...]]:
    """Return groups of items that are the same, or look the same, and are on several sides of a split.

    Args:
        split: Split of image files, of which only the bytes are compared if there are more than 20,000 different ones;
            or of images in memory or vectors, which are the same if all their numbers are, and are named by side and
            index.
    """
    return _leaks_and_whether_looked_at(split)[0]


def leak_note(split: Split, known: tuple[Dataset, Lookalikes] | None = None) -> str | None:
    """Return a note that items are on both sides of a split, or that it was only partly checked; None if neither.

    Args:
        split: Split, as in `find_leaks`.
        known: Data that was split and the duplicates in it, if they were already searched for.
    """
    leaks, looked_at = _leaks_and_whether_looked_at(split, known)
    if not leaks:
        return None if looked_at else f"The split was checked for files that are the same alone: {NOT_COMPARED}"
    item = "picture" if isinstance(split.train.items, tuple) else "item"
    many = f"{'a picture' if item == 'picture' else 'an item'} is" if len(leaks) == 1 else f"{len(leaks):,} {item}s are"
    rest = " `vicinal duplicates` lists them all." if item == "picture" else ""
    rest += "" if looked_at else f" There may be more: {NOT_COMPARED}"
    how = "the same or nearly" if item == "picture" else "the same in every number"
    return (
        f"LEAK: {many} on both sides of the split, {how}, so that scores are too good; "
        f"the first: {', '.join(leaks[0])}.{rest}"
    )


def _leaks_and_whether_looked_at(
    split: Split, known: tuple[Dataset, Lookalikes] | None = None
) -> tuple[list[tuple[str, ...]], bool]:
    every = {"train": split.train, "validation": split.validation, "test": split.test}
    views = {side: view.items for side, view in every.items() if view is not None}
    sides = {str(path): side for side, items in views.items() if isinstance(items, tuple) for path in items}
    if not sides:
        return _same_rows({side: items for side, items in views.items() if isinstance(items, np.ndarray)}), True
    if known is None:
        paths = list(sides)
        alike = lookalike_files(paths)
    else:
        paths, alike = [str(path) for path in known[0].items], known[1]
    named = (tuple(paths[position] for position in group) for group in (*alike.same, *alike.near))
    groups = [tuple(path for path in group if path in sides) for group in named]
    return [group for group in groups if len({sides[path] for path in group}) > 1], alike.compared


def _same_rows(views: Mapping[str, NDArray[Any]]) -> list[tuple[str, ...]]:
    groups = defaultdict(list)
    for side, items in views.items():
        for index, item in enumerate(items):
            if len(np.unique(item)) >= TELLING:
                groups[blake2b(np.ascontiguousarray(item).tobytes(), digest_size=16).digest()].append((side, index))
    leaks = [group for group in groups.values() if len({side for side, _ in group}) > 1]
    return [tuple(f"item {index} of {side}" for side, index in group) for group in leaks]
