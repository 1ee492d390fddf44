"""Images: crop and resize, convert to tensors, decode into memory, and detect the kind of images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS, open_header, read_bytes, upright
from vicinal.errors import DataError, InputError, look_up

__all__ = ["Looks", "looks_of"]


Source = Image.Image | str | Path
Number = int | float
Box = tuple[Number, Number, Number, Number]
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def open_image(source: Source) -> Image.Image:
    """Return the image itself, or the one at a path, not yet decoded."""
    return source if isinstance(source, Image.Image) else upright(open_header(read_bytes(str(source))))


def scaled_size(size: tuple[int, int], short_side: int | None) -> tuple[int, int, float]:
    """Return width and height after the short side is scaled to `short_side`, and the factor; None changes nothing.

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
    """Draw left, top, width and height of a crop with a random share of the area and a random aspect ratio.

    After ten draws that do not fit, return the largest centre crop with an allowed aspect ratio.
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
    """Return the crop `box` (in pixels of the whole image) scaled to `size`, in `mode`, by a filter of `FILTERS`.

    A JPEG that is not yet decoded is decoded at 1/2, 1/4 or 1/8 of its size if that is still at
    least as large as needed; the rest is scaled in one step, from the pixels of the box only.
    """
    whole = image.size
    wanted = (
        math.ceil(whole[0] * size[0] / (box[2] - box[0])),
        math.ceil(whole[1] * size[1] / (box[3] - box[1])),
    )
    image.draft(mode, wanted)
    across, down = image.width / whole[0], image.height / whole[1]
    # Rounding must not move the box slightly outside the image.
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


# Convert Pillow images to the value range that a network was trained on.

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@final
@dataclass(frozen=True)
class Pixels:
    """Conversion of bytes to numbers: `byte * scale + offset`, per channel of the result.

    Args:
        mode: Pillow mode: "RGB" for three channels, "L" for grey.
        scale: One factor per channel.
        offset: One summand per channel.
        bgr: Whether the channels are in the order blue, green, red.
    """

    mode: Literal["RGB", "L"]
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    bgr: bool = False


PIXELS = {
    "imagenet": Pixels(
        "RGB",
        tuple(1 / (255 * std) for std in IMAGENET_STD),
        tuple(-mean / std for mean, std in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)),
    ),
    # The weights come from Caffe: BGR, 0..255, minus the mean of the mean image.
    "bn_inception": Pixels("RGB", (1.0, 1.0, 1.0), (-104.0, -117.0, -128.0), bgr=True),
    "lite": Pixels("RGB", (1 / 128,) * 3, (-127 / 128,) * 3),
    "unit": Pixels("RGB", (1 / 255,) * 3, (0.0,) * 3),
    "grey": Pixels("L", (1 / 255,), (0.0,)),
    "ink": Pixels("L", (-1 / 255,), (1.0,)),  # dark strokes on white paper become bright on 0
}


def to_tensor(image: Image.Image, pixels: str) -> Float[Tensor, "c h w"]:
    """Convert an image by the preset `pixels`, a name in `PIXELS`.

    Example:
        >>> to_tensor(Image.new("L", (2, 2), 255), "grey").tolist()
        [[[1.0, 1.0], [1.0, 1.0]]]
    """
    how = look_up("pixel preset", pixels, PIXELS)
    converted = image if image.mode == how.mode else image.convert(how.mode)
    bands = (converted,) if how.mode == "L" else converted.split()  # split() would copy it
    # Band by band is faster than transposing height x width x channel, and numpy is faster than torch's threads.
    values = np.empty((len(bands), image.height, image.width), dtype=np.float32)
    for channel, band in enumerate(reversed(bands) if how.bgr else bands):
        np.multiply(np.asarray(band), np.float32(how.scale[channel]), out=values[channel])
        values[channel] += np.float32(how.offset[channel])
    return torch.from_numpy(values)


# Kind of images, from a few of them: coloured or grey, large or small, photographs or drawings.

GREY = ("1", "L", "LA", "I", "I;16", "F")  # PIL's modes without colour
LOOKED_AT = 16
SMALL = 64  # short side in pixels up to which a small network is enough
NEAR = 0.1  # share of the grey range from its ends within which a pixel counts as ink or paper
SHADED = 0.5  # share of pixels that are neither, from which an image is a photograph


class Looks(NamedTuple):
    """Whether images have colours, their median short side in pixels, and whether grey ones have shades.

    Shades distinguish a grey photograph from a drawing; they are not checked for small images.
    """

    colour: bool
    side: int
    shaded: bool = False

    @property
    def photographs(self) -> bool:
        """Whether they are too large for small networks, and not drawings in one ink."""
        return self.large and (self.colour or self.shaded)

    @property
    def large(self) -> bool:
        """Whether they are too large for small networks."""
        return self.side > SMALL


def looks_of(data: Dataset) -> Looks | None:
    """Inspect a few images, spread over the dataset; None for feature vectors.

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
        except IMAGE_ERRORS:  # reported by the reader or the training
            continue
        modes.append(image.mode)
        sides.append(min(image.size))
    if not sides:
        return None
    return Looks(any(mode not in GREY for mode in modes), int(np.median(sides)), float(np.mean(shades)) > 0.5)


def _is_shaded(image: Image.Image) -> bool:
    """Return whether most pixels are neither near the darkest nor the brightest; in a drawing they are ink or paper."""
    pixels = np.asarray(image if image.mode != "LA" else image.convert("L"), dtype=np.float32)
    darkest, brightest = float(pixels.min()), float(pixels.max())
    near = NEAR * (brightest - darkest)
    return bool(((pixels > darkest + near) & (pixels < brightest - near)).mean() > SHADED)


# Decode small images once, so that training does not decode them again in every epoch.

_DECODED: WeakKeyDictionary[Dataset, dict[tuple[int, str], Dataset]] = WeakKeyDictionary()


def in_memory(dataset: Dataset, size: int, *, mode: str = "L") -> Dataset:
    """Return the same data as uint8 images of `size` x `size` in memory.

    Omniglot's 32,460 drawings at 32 x 32 take 33 MB and load more than twice as fast as from the zip.

    Args:
        dataset: Image files or images.
        size: Height and width; the aspect ratio is not preserved.
        mode: Pillow mode, "L" for grey or "RGB".

    Example:
        >>> from vicinal.data import digits
        >>> in_memory(digits(), 16).items.shape
        (1797, 16, 16)
    """
    if dataset.kind == "vectors" or mode not in ("L", "RGB"):
        raise InputError(f"images and mode 'L' or 'RGB' are needed; got {dataset.kind} and mode {mode!r}.")
    images = np.empty((len(dataset), size, size) + ((3,) if mode == "RGB" else ()), dtype=np.uint8)
    bad = []
    for i in range(len(dataset)):
        try:
            image = dataset.open(i)
            images[i] = np.asarray(cut(image, (0, 0, *image.size), (size, size), mode))
        except IMAGE_ERRORS as error:
            bad.append(f"{dataset.item(i)}: {type(error).__name__}: {error}")
    if bad:
        raise DataError(
            f"{dataset.name}: {len(bad)} of {len(dataset)} images cannot be read.",
            bad,
            "Fix them, or skip them with skip_bad=True (--skip-bad).",
        )
    return replace(dataset, items=images, boxes=None)


def in_memory_once(dataset: Dataset, size: int, *, mode: str = "L") -> Dataset:
    """Return the result of `in_memory`, cached as long as this dataset object exists."""
    cached = _DECODED.setdefault(dataset, {})
    if (size, mode) not in cached:
        cached[size, mode] = in_memory(dataset, size, mode=mode)
    return cached[size, mode]
