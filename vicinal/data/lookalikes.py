"""The same picture twice, by its bytes, and nearly the same picture, by perceptual hashes and a second look."""

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


# Whether a small grey picture is another one, or what is left of it when a little is cut off.

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


def find_lookalikes(data: Dataset, watch: Watch | None = None) -> Lookalikes:
    """Find the same and nearly the same pictures among image files; arrays and vectors have none.

    Each picture is reduced to 9 x 9 grey levels, of which 128 bits say where it gets brighter to the right and
    downwards (imagehash's difference hashes); size, format and compression hardly change them. Those that are near by
    coarser looks (its hash of cosines) are compared once more, as small pictures, of which a little may be cut off.

    Args:
        data: The data.
        watch: Callback, called after every file with the number of files that are done, and of all.
    """
    return lookalike_files(data.items, watch) if isinstance(data.items, tuple) else Lookalikes((), (), False)


def lookalike_files(paths: Sequence[str], watch: Watch | None = None) -> Lookalikes:
    """Find the same and nearly the same pictures among files; see `find_lookalikes`.

    Args:
        paths: Paths of image files; those that cannot be read look like nothing.
        watch: Callback, called after every file with the number of files that are done, and of all.
    """
    if len(paths) <= MOST:
        map_files(look_at, paths, watch)  # reads each file once, for its looks and for its bytes
    places = defaultdict(list)
    for position, content in enumerate(map_files(_content, paths, None if len(paths) <= MOST else watch)):
        places[content or str(position).encode()].append(position)
    same = tuple(tuple(group) for group in places.values() if len(group) > 1)
    if len(places) > MOST:
        return Lookalikes(same, (), False)
    firsts = np.array([group[0] for group in places.values()])
    looks = map_files(look_at, [paths[position] for position in firsts])
    seen = [(int(position), look) for position, look in zip(firsts, looks, strict=True) if look is not None]
    if len(seen) < 2:
        return Lookalikes(same, (), True)
    pairs = _close({paths[position]: look for position, look in seen}, watch)
    return Lookalikes(same, tuple((seen[one][0], seen[other][0]) for one, other in pairs), True)


def _content(path: str) -> bytes | None:
    try:
        return digest(path)
    except OSError:  # an index may list files that have gone
        return None


class Look(NamedTuple):
    """What remains of a picture: where it gets brighter, its coarse looks, and a small grey copy."""

    brighter: NDArray[np.uint64]
    coarse: np.uint64
    small: NDArray[np.uint8]


# Looks by version: a comparison looks at its pictures when it opens them, and compares them later.
_LOOKS: dict[Version, Look | None] = {}


def look_at(path: str, content: bytes | None = None) -> Look | None:
    """The looks of a picture, remembered while the file does not change; None for one that is blank or unreadable.

    The file is read once for its looks and for its `digest`.

    Args:
        path: Of the file.
        content: Bytes of the file, where it was just read.
    """
    try:
        version = version_of(path)
        if version not in _LOOKS:
            content = read_bytes(path) if content is None else content
            digest(path, content)
            _LOOKS[version] = _looks(content)
    except OSError:  # an index may list files that have gone
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
    return sorted(pairs + _same_at_a_second_look(looks_of, unsure, watch))


def _same_at_a_second_look(
    looks_of: Mapping[str, Look], pairs: Sequence[tuple[int, int]], watch: Watch | None
) -> list[tuple[int, int]]:
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

    best = dict(zip(places.values(), map_files(greatest, list(places), watch), strict=True))
    return [(one, other) for one, other in pairs if max(best[one][other], best[other][one]) >= ALIKE]


# Items on both sides of a split: what was trained on, or nearly, is then asked for.

TELLING = 8  # different numbers in an item in memory: blank images and rows of a few yes and no are alike by chance


def find_leaks(split: Split) -> list[tuple[str, ...]]:
    """Return groups of items that are the same, or look it, and are on several sides of a split.

    Args:
        split: Of image files, of which only the bytes are compared beyond 20,000 different ones; or of images in memory
            and vectors, which are the same where all their numbers are, and are named by side and place.
    """
    return _leaks_and_whether_looked_at(split)[0]


def leak_note(split: Split, known: tuple[Dataset, Lookalikes] | None = None) -> str | None:
    """Say that pictures are on both sides of a split, or that it was not looked at them; None if there is neither.

    Args:
        split: See `find_leaks`.
        known: The data that was split, and the pictures that are in it twice, where these were looked for already.
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
    named = (tuple(paths[place] for place in group) for group in (*alike.same, *alike.near))
    groups = [tuple(path for path in group if path in sides) for group in named]
    return [group for group in groups if len({sides[path] for path in group}) > 1], alike.compared


def _same_rows(views: Mapping[str, NDArray[Any]]) -> list[tuple[str, ...]]:
    places = defaultdict(list)
    for side, items in views.items():
        for place, item in enumerate(items):
            if len(np.unique(item)) >= TELLING:
                places[blake2b(np.ascontiguousarray(item).tobytes(), digest_size=16).digest()].append((side, place))
    leaks = [group for group in places.values() if len({side for side, _ in group}) > 1]
    return [tuple(f"item {place} of {side}" for side, place in group) for group in leaks]
