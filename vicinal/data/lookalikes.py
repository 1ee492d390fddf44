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
from PIL import Image, ImageFilter, ImageOps

from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS, Version, Watch, digest, map_files, open_header, read_bytes, version_of
from vicinal.data.splits import Split

__all__ = [
    "MOST",
    "THUMBNAIL",
    "Agreement",
    "Lookalikes",
    "agreement",
    "crop_correlation",
    "find_leaks",
    "find_lookalikes",
    "leak_note",
    "look_at",
    "lookalike_files",
]


# First look: correlation of small grey images. Is one the same as another, or as a slight crop of it?

THUMBNAIL = 64  # side in pixels of the images that are compared
COMPARED = 32  # side in pixels to which crops of them are reduced
KEPT = (1.0, 0.975, 0.95, 0.925, 0.9)  # share of each side that a crop keeps
SHIFTS = (0.0, 0.5, 1.0)  # share of the removed margin that is on the left or at the top

Thumbnail = UInt8[np.ndarray, "s s 3"]
Box = tuple[float, float, float, float]


def crop_correlation(one: Thumbnail, other: Thumbnail) -> float:
    """Return the highest correlation of the grey levels of two images, where one of them may be slightly cropped.

    Correlations ignore brightness and contrast.

    Example:
        >>> picture = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
        >>> crop_correlation(picture, picture // 2) > 0.999
        True
    """
    first, second = crops(one), crops(other)
    return float(max((first @ second[0]).max(), (second @ first[0]).max()))


def crops(picture: Thumbnail) -> Float64[np.ndarray, "c p"]:
    """Return the grey levels of the whole image, followed by those of its slight crops.

    Each is reduced to a few pixels and has mean 0 and length 1 (0 if it is blank), so that inner products are
    correlations.

    Example:
        >>> crops(np.eye(64, dtype=np.uint8)[:, :, None].repeat(3, axis=2) * 255).shape
        (37, 1024)
    """
    image = Image.fromarray(picture).convert("L")
    parts = [image.resize((COMPARED, COMPARED), Image.Resampling.BILINEAR, box=box) for box in _boxes(len(picture))]
    return _standardised(np.stack([np.asarray(part) for part in parts]).reshape(len(parts), -1))


def whole(picture: Thumbnail) -> Float64[np.ndarray, " p"]:
    """Return only the first of `crops`, the whole image."""
    grey = Image.fromarray(picture).convert("L").resize((COMPARED, COMPARED), Image.Resampling.BILINEAR)
    return _standardised(np.asarray(grey).reshape(1, -1))[0]


def _standardised(values: UInt8[np.ndarray, "c p"]) -> Float64[np.ndarray, "c p"]:
    centred = values - values.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0)


def _boxes(side: int) -> Iterator[Box]:
    for share in KEPT:
        size, room = share * side, (1 - share) * side
        shifts = SHIFTS if room else (0.0,)
        yield from ((room * x, room * y, room * x + size, room * y + size) for x in shifts for y in shifts)


# Second look: do the details and the colours agree wherever there are any? A white background says nothing, and an
# outline against it says little: details are what is left without the coarse shapes, with their strength bounded.

BLOCK = 8  # side in pixels of the blocks of a thumbnail whose details are compared
BLUR = 2.0  # standard deviation in pixels of what is a coarse shape
STRONG = 8.0  # grey levels from which a detail counts no more
DETAIL = 1.5  # standard deviation, in grey levels, from which a block has details
FEWEST = 6  # fewest blocks with details that can confirm anything
WHITE, BRIGHT = 250, 190  # mean grey levels: a bright block may be white, without details, in a brighter copy
NUDGES = (-1, 0, 1)  # shifts in pixels, either way, that are tried for each block


class Agreement(NamedTuple):
    """How well two aligned images agree, in nine tenths of the blocks that have details.

    Attributes:
        structure: Smallest correlation of the details, each block shifted by at most a pixel; 0 if few have any.
        colour: Largest difference of the two colour channels, at equal brightness.
    """

    structure: float
    colour: float


def agreement(one: Thumbnail, other: Thumbnail) -> Agreement:
    """Compare two aligned images block by block; blocks that are flat in both are ignored.

    Example:
        >>> picture = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8).repeat(4, 0).repeat(4, 1)
        >>> agreement(picture, picture)
        Agreement(structure=1.0, colour=0.0)
        >>> agreement(picture, np.full_like(picture, 255)).structure
        0.0
    """
    (first, first_means), (second, second_means) = _details(one), _details(other)
    blocks = _blocks(first)
    lengths = np.linalg.norm(blocks, axis=1)
    longest = np.maximum(lengths, np.linalg.norm(_blocks(second), axis=1))
    brightness = np.stack([first_means[:, 0], second_means[:, 0]])
    overexposed = (brightness.max(axis=0) >= WHITE) & (brightness.min(axis=0) >= BRIGHT)
    detailed = (longest >= DETAIL * BLOCK) & ~overexposed
    if detailed.sum() < FEWEST:
        return Agreement(0.0, 0.0)
    best = np.full(len(blocks), -1.0)
    for down in NUDGES:
        for right in NUDGES:
            shifted = _blocks(np.roll(second, (down, right), axis=(0, 1)))
            products = lengths * np.linalg.norm(shifted, axis=1)
            values = np.divide((blocks * shifted).sum(axis=1), products, out=np.zeros(len(blocks)), where=products > 0)
            best = np.maximum(best, values)
    first_means, second_means = first_means[detailed], second_means[detailed]
    gain = first_means[:, 0].sum() / max(second_means[:, 0].sum(), 1.0)
    apart = np.abs(first_means[:, 1:] - 128 - gain * (second_means[:, 1:] - 128)).max(axis=1)
    return Agreement(round(float(np.quantile(best[detailed], 0.1)), 6), round(float(np.quantile(apart, 0.9)), 6))


def _details(picture: Thumbnail) -> tuple[Float64[np.ndarray, "s s"], Float64[np.ndarray, "b 3"]]:
    """Return the details of an image's brightness, and the mean brightness and colours of its blocks."""
    image = Image.fromarray(picture).convert("YCbCr")
    grey = image.getchannel(0)
    rough = np.asarray(grey.filter(ImageFilter.GaussianBlur(BLUR)), dtype=np.float64)
    return STRONG * np.tanh((np.asarray(grey) - rough) / STRONG), _block_means(np.asarray(image, dtype=np.float64))


def _blocks(grey: Float64[np.ndarray, "s s"]) -> Float64[np.ndarray, "b p"]:
    """Return the blocks of an image, each with mean 0."""
    count = len(grey) // BLOCK
    parts = grey.reshape(count, BLOCK, count, BLOCK).swapaxes(1, 2).reshape(count * count, BLOCK * BLOCK)
    return parts - parts.mean(axis=1, keepdims=True)


def _block_means(channels: Float64[np.ndarray, "s s c"]) -> Float64[np.ndarray, "b c"]:
    count = len(channels) // BLOCK
    return channels.reshape(count, BLOCK, count, BLOCK, -1).mean(axis=(1, 3)).reshape(count * count, -1)


SIDE = 8
FLAT = 24  # grey levels: images with less contrast than this all look alike
BORDER = 0.15  # largest share of a side that is removed as a border of one colour
PLAIN = 20  # grey levels that a border's pixels may differ by, after compression
CLOSE = 6  # bits of 128 in which near-duplicates may differ
MAYBE = 12  # bits of 64 of the coarse hash in which images may differ to be worth a comparison
ALIKE = 0.93  # correlation of two images, one of them possibly cropped, from which they look alike
SAME_STRUCTURE = 0.5  # agreement in structure from which images that look alike are copies of one picture
SAME_COLOUR = 8.0  # largest difference in colour of copies
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
        near: Pairs of positions of files that differ but are copies of one picture: re-encoded, resized, slightly
            cropped, mirrored or with a border.
        alike: Pairs of positions of files that look alike but differ in details or colours, such as shots of a series,
            views on a turntable, or objects on a white background.
        compared: Whether images were compared by perceptual hashes; for more than `MOST` images it would take long.
    """

    same: tuple[tuple[int, ...], ...]
    near: tuple[tuple[int, int], ...]
    alike: tuple[tuple[int, int], ...]
    compared: bool


def find_lookalikes(data: Dataset, watch: Watch | None = None) -> Lookalikes:
    """Find duplicates and near-duplicates among image files; arrays and vectors have none.

    Each image is reduced to 9 x 9 grey levels; 128 bits record where it gets brighter to the right and downwards
    (imagehash's difference hashes). Size, format and compression hardly change them. Images that are close by these, or
    by a coarse hash (imagehash's pHash, of cosines) of the image or of its mirror image, are compared as thumbnails
    that may be slightly cropped. Those that look alike are copies if their details and colours agree as well.

    Args:
        data: Dataset to search.
        watch: Callback, called after every file with the number of files done and the total.
    """
    return lookalike_files(data.items, watch) if isinstance(data.items, tuple) else Lookalikes((), (), (), False)


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
        return Lookalikes(same, (), (), False)
    firsts = np.array([group[0] for group in groups.values()])
    looks = map_files(look_at, [paths[position] for position in firsts])
    seen = [(int(position), look) for position, look in zip(firsts, looks, strict=True) if look is not None]
    if len(seen) < 2:
        return Lookalikes(same, (), (), True)
    copies = _close({paths[position]: look for position, look in seen}, watch)
    pairs = {(seen[first][0], seen[second][0]): confirmed for (first, second), confirmed in sorted(copies.items())}
    near = tuple(pair for pair, confirmed in pairs.items() if confirmed)
    return Lookalikes(same, near, tuple(pair for pair in pairs if pair not in set(near)), True)


def _content(path: str) -> bytes | None:
    try:
        return digest(path)
    except OSError:  # an index may list files that no longer exist
        return None


class Look(NamedTuple):
    """Perceptual hashes of an image: where it gets brighter, coarse hashes as it is and mirrored; and a small copy."""

    brighter: NDArray[np.uint64]
    coarse: np.uint64
    mirrored: np.uint64
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
        image.draft("RGB", (THUMBNAIL, THUMBNAIL))
        colour = _without_border(image.convert("RGB"))
    except IMAGE_ERRORS:
        return None
    grey = colour.convert("L")
    if np.ptp(np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.int16)) < FLAT:
        return None
    bits = (
        imagehash.dhash(grey, SIDE),
        imagehash.dhash_vertical(grey, SIDE),
        imagehash.phash(grey, SIDE),
        imagehash.phash(ImageOps.mirror(grey), SIDE),
    )
    right, down, coarse, mirrored = (np.packbits(each.hash).view(np.uint64)[0] for each in bits)
    small = np.asarray(colour.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX))
    return Look(np.array([right, down]), coarse, mirrored, small)


def _without_border(image: Image.Image) -> Image.Image:
    """Return the image without rows and columns of one colour at its edges, up to a share of each side."""
    pixels = np.asarray(image, dtype=np.int16)
    edges = []
    for lines in (pixels, pixels[::-1], pixels.swapaxes(0, 1), pixels.swapaxes(0, 1)[::-1]):
        most = int(BORDER * len(lines))
        plain = (np.abs(lines[:most] - lines[0, 0]) <= PLAIN).all(axis=(1, 2))
        edges.append(most if plain.all() else int(plain.argmin()))
    top, bottom, left, right = edges
    return image.crop((left, top, image.width - right, image.height - bottom))


def _close(looks_of: Mapping[str, Look], watch: Watch | None) -> dict[tuple[int, int], bool]:
    """Return the pairs of indices of images that look alike, and whether the second look confirms them as copies."""
    looks = list(looks_of.values())
    brighter, coarse = np.stack([look.brighter for look in looks]), np.array([look.coarse for look in looks])
    mirrored = np.array([look.mirrored for look in looks])
    pairs: list[Candidate] = []
    for start in range(0, len(looks), ROWS):
        here = slice(start, start + ROWS)
        apart = np.bitwise_count(brighter[here, None, 0] ^ brighter[None, :, 0]).astype(np.int16)
        apart += np.bitwise_count(brighter[here, None, 1] ^ brighter[None, :, 1])
        maybe = (apart <= CLOSE) | (np.bitwise_count(coarse[here, None] ^ coarse[None, :]) <= MAYBE)
        reversed_maybe = np.bitwise_count(mirrored[here, None] ^ coarse[None, :]) <= MAYBE
        for mask, reverse in ((maybe, False), (reversed_maybe, True)):
            indices = zip(*(axis.tolist() for axis in np.nonzero(mask)), strict=True)
            pairs += [Candidate(start + row, column, reverse) for row, column in indices if start + row < column]
    return _looked_at_twice(looks_of, pairs, watch)


class Candidate(NamedTuple):
    """Indices of two images that may be the same, the second possibly mirrored."""

    first: int
    second: int
    mirrored: bool


def _looked_at_twice(
    looks_of: Mapping[str, Look], candidates: Sequence[Candidate], watch: Watch | None
) -> dict[tuple[int, int], bool]:
    """Return the pairs that correlate, where one image may be slightly cropped, and whether their details agree.

    The crops of an image are computed once, for all images that it is compared with, and are not stored: those of
    20,000 images would not fit into memory.
    """
    others: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for first, second, mirrored in candidates:
        others[first].append((second, mirrored))
        others[second].append((first, mirrored))
    paths = list(looks_of)
    indices = {paths[index]: index for index in sorted(others)}
    wholes = {index: whole(looks_of[path].small) for path, index in indices.items()}
    reverses = {index: value.reshape(COMPARED, COMPARED)[:, ::-1].ravel() for index, value in wholes.items()}

    def best_crops(path: str) -> list[tuple[float, int]]:
        compared = others[indices[path]]
        rest = np.stack([(reverses if mirrored else wholes)[index] for index, mirrored in compared], axis=1)
        values = crops(looks_of[path].small) @ rest
        return list(zip(values.max(axis=0).tolist(), values.argmax(axis=0).tolist(), strict=True))

    best: dict[tuple[int, int, bool], tuple[float, int]] = {}
    for index, values in zip(indices.values(), map_files(best_crops, list(indices), watch), strict=True):
        best |= {(index, *other): value for other, value in zip(others[index], values, strict=True)}
    boxes, smalls = list(_boxes(THUMBNAIL)), [look.small for look in looks_of.values()]
    confirmed: dict[tuple[int, int], bool] = {}
    for first, second, mirrored in candidates:
        ways = (best[first, second, mirrored], first, second), (best[second, first, mirrored], second, first)
        (value, box), cropped, entire = max(ways)
        if value >= ALIKE:
            same = _same_picture(smalls[cropped], boxes[box], smalls[entire], mirrored)
            confirmed[first, second] = same or confirmed.get((first, second), False)
    return confirmed


def _same_picture(cropped: Thumbnail, box: Box, entire: Thumbnail, mirrored: bool) -> bool:
    part = Image.fromarray(cropped).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BILINEAR, box=box)
    structure, colour = agreement(np.asarray(part), np.ascontiguousarray(entire[:, ::-1]) if mirrored else entire)
    return structure >= SAME_STRUCTURE and colour <= SAME_COLOUR


# Leaks: items on both sides of a split, so that test items, or nearly the same ones, were trained on.

TELLING = 8  # minimum number of distinct values: blank images and rows of few booleans are equal by chance


class Leaks(NamedTuple):
    """Groups of items on several sides of a split: copies, and those that may be; and whether looks were compared."""

    copies: list[tuple[str, ...]]
    maybe: list[tuple[str, ...]]
    compared: bool


def find_leaks(split: Split) -> list[tuple[str, ...]]:
    """Return groups of items that are the same, or copies of one picture, and are on several sides of a split.

    Args:
        split: Split of image files, of which only the bytes are compared if there are more than 20,000 different ones;
            or of images in memory or vectors, which are the same if all their numbers are, and are named by side and
            index.
    """
    return _leaks(split).copies


def leak_note(split: Split, known: tuple[Dataset, Lookalikes] | None = None) -> str | None:
    """Return a note that items are on both sides of a split, may be, or were only partly checked; None if nothing.

    Args:
        split: Split, as in `find_leaks`.
        known: Data that was split and the duplicates in it, if they were already searched for.
    """
    leaks, maybe, compared = _leaks(split, known)
    alike = ""
    if maybe:
        pairs = "A pair of pictures" if len(maybe) == 1 else f"{len(maybe):,} pairs of pictures"
        alike = (
            f"{pairs} across the split look{'s' if len(maybe) == 1 else ''} alike but differ{'s' * (len(maybe) == 1)} "
            f"in details, so they may or may not be copies; the first: {', '.join(maybe[0])}. "
            "`vicinal duplicates --sheet` shows them side by side."
        )
    if not leaks:
        return alike or (
            None if compared else f"The split was checked for files that are the same alone: {NOT_COMPARED}"
        )
    item = "picture" if isinstance(split.train.items, tuple) else "item"
    many = f"{'a picture' if item == 'picture' else 'an item'} is" if len(leaks) == 1 else f"{len(leaks):,} {item}s are"
    rest = " `vicinal duplicates` lists them all." if item == "picture" else ""
    rest += f" {alike}" if alike else ""
    rest += "" if compared else f" There may be more: {NOT_COMPARED}"
    how = "the same or nearly" if item == "picture" else "the same in every number"
    return (
        f"LEAK: {many} on both sides of the split, {how}, so that scores are too good; "
        f"the first: {', '.join(leaks[0])}.{rest}"
    )


def _leaks(split: Split, known: tuple[Dataset, Lookalikes] | None = None) -> Leaks:
    every = {"train": split.train, "validation": split.validation, "test": split.test}
    views = {side: view.items for side, view in every.items() if view is not None}
    sides = {str(path): side for side, items in views.items() if isinstance(items, tuple) for path in items}
    if not sides:
        rows = {side: items for side, items in views.items() if isinstance(items, np.ndarray)}
        return Leaks(_same_rows(rows), [], True)
    if known is None:
        paths = list(sides)
        alike = lookalike_files(paths)
    else:
        paths, alike = [str(path) for path in known[0].items], known[1]

    def across(groups: Sequence[tuple[int, ...]]) -> list[tuple[str, ...]]:
        named = [tuple(paths[position] for position in group if paths[position] in sides) for group in groups]
        return [group for group in named if len({sides[path] for path in group}) > 1]

    return Leaks(across((*alike.same, *alike.near)), across(alike.alike), alike.compared)


def _same_rows(views: Mapping[str, NDArray[Any]]) -> list[tuple[str, ...]]:
    groups = defaultdict(list)
    for side, items in views.items():
        for index, item in enumerate(items):
            if len(np.unique(item)) >= TELLING:
                groups[blake2b(np.ascontiguousarray(item).tobytes(), digest_size=16).digest()].append((side, index))
    leaks = [group for group in groups.values() if len({side for side, _ in group}) > 1]
    return [tuple(f"item {index} of {side}" for side, index in group) for group in leaks]
