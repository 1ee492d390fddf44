"""From an image to the tensor that a network takes; all randomness comes from the generator passed in.

A transform is any callable `(image, rng) -> float tensor [c, h, w]`. The image may not be decoded yet:
the ones here tell the JPEG decoder how small a picture will do, and scale only the part they keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vicinal.data.cutting import FILTERS, Source, cut, draw_part, open_image, scaled_size
from vicinal.data.pixels import PIXELS, to_tensor
from vicinal.errors import InputError, look_up

Transform = Callable[[Any, np.random.Generator], Tensor]


@final
@dataclass(frozen=True)
class CentreCrop:
    """Scale the short side to `short_side` and keep the square of `size` in the middle.

    Example:
        >>> CentreCrop(4, short_side=8, pixels="grey")(Image.new("L", (40, 20))).shape
        torch.Size([1, 4, 4])
    """

    size: int = 224
    short_side: int = 256
    pixels: str = "imagenet"
    resampling: str = "bilinear"

    def __post_init__(self) -> None:
        _check_fits(self.size, self.short_side)
        look_up("resampling", self.resampling, FILTERS)

    def __call__(self, image: Source, rng: np.random.Generator | None = None) -> Float[Tensor, "c h w"]:
        """Transform one image; nothing is random."""
        opened = open_image(image)
        width, height, scale = scaled_size(opened.size, self.short_side)
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        return to_tensor(_square(opened, left, top, self.size, scale, self.pixels, self.resampling), self.pixels)


@final
@dataclass(frozen=True)
class RandomCrop:
    """Scale the short side to `short_side`, keep a square of `size` anywhere, and mirror it by chance."""

    size: int = 227
    short_side: int = 256
    flip: float = 0.5
    pixels: str = "imagenet"

    def __post_init__(self) -> None:
        _check_fits(self.size, self.short_side)

    def __call__(self, image: Source, rng: np.random.Generator) -> Float[Tensor, "c h w"]:
        """Transform one image."""
        opened = open_image(image)
        width, height, scale = scaled_size(opened.size, self.short_side)
        left, top = int(rng.integers(width - self.size + 1)), int(rng.integers(height - self.size + 1))
        part = _square(opened, left, top, self.size, scale, self.pixels)
        return to_tensor(_mirror(part, self.flip, rng), self.pixels)


@final
@dataclass(frozen=True)
class RandomResizedCrop:
    """Keep a random part of the image, scale it to a square of `size`, and mirror it by chance.

    Args:
        size: Height and width of the result.
        area: Least and greatest share of the image's area.
        ratio: Least and greatest width / height of the part.
        flip: Chance of a mirrored result.
        short_side: Scale the image to this short side first, so that a small part comes out as
            blurred as the reality check has it; None cuts from the full image.
        pixels: Name in `PIXELS`.
    """

    size: int = 224
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    short_side: int | None = None
    pixels: str = "imagenet"

    def __post_init__(self) -> None:
        if not (0 < self.area[0] <= self.area[1] <= 1 and 0 < self.ratio[0] <= self.ratio[1]):
            raise InputError(
                f"area must be rising in (0, 1] and ratio rising above 0; got {self.area} and {self.ratio}."
            )

    def __call__(self, image: Source, rng: np.random.Generator) -> Float[Tensor, "c h w"]:
        """Transform one image."""
        opened = open_image(image)
        mode = _mode(self.pixels)
        width, height, scale = scaled_size(opened.size, self.short_side)
        left, top, w, h = draw_part(width, height, self.area, self.ratio, rng)
        box = (left / scale, top / scale, (left + w) / scale, (top + h) / scale)
        square = (self.size, self.size)
        if scale == 1:
            part = cut(opened, box, square, mode)
        else:
            part = cut(opened, box, (w, h), mode).resize(square, Image.Resampling.BILINEAR)
        return to_tensor(_mirror(part, self.flip, rng), self.pixels)


@final
@dataclass(frozen=True)
class Fit:
    """Scale the whole of an image to a square of `size`."""

    size: int = 32
    pixels: str = "grey"
    resampling: str = "bilinear"

    def __post_init__(self) -> None:
        look_up("resampling", self.resampling, FILTERS)

    def __call__(self, image: Source, rng: np.random.Generator | None = None) -> Float[Tensor, "c h w"]:
        """Transform one image; nothing is random."""
        opened = open_image(image)
        side = (self.size, self.size)
        return to_tensor(cut(opened, (0, 0, *opened.size), side, _mode(self.pixels), self.resampling), self.pixels)


@final
@dataclass(frozen=True)
class RandomAffine:
    """Scale a small image to a square of `size`, then turn, shear, scale and shift it a little.

    Args:
        size: Height and width of the result.
        degrees: Greatest turn and greatest shear, either way.
        scale: Least and greatest factor.
        shift: Greatest shift, as a share of `size`.
        pixels: Name in `PIXELS`.
    """

    size: int = 32
    degrees: float = 10.0
    scale: tuple[float, float] = (0.9, 1.1)
    shift: float = 0.08
    pixels: str = "grey"

    def __call__(self, image: Source, rng: np.random.Generator) -> Float[Tensor, "c h w"]:
        """Transform one image; what comes in from outside has the colour of the corners."""
        opened = open_image(image)
        small = cut(opened, (0, 0, *opened.size), (self.size, self.size), _mode(self.pixels))
        # Plain numbers: with numpy's the few sums below would cost more than the picture.
        turn, shear = np.radians(rng.uniform(-self.degrees, self.degrees, size=2)).tolist()
        factor = 1 / rng.uniform(*self.scale)
        x, y = (self.size / 2 + self.size * move for move in rng.uniform(-self.shift, self.shift, size=2).tolist())
        a, b = factor * math.cos(turn), factor * (math.sin(turn) + math.tan(shear))
        d, e = -factor * math.sin(turn), factor * math.cos(turn)
        # Pillow maps each place of the result back to its place in the image.
        matrix: Any = (a, b, self.size / 2 - a * x - b * y, d, e, self.size / 2 - d * x - e * y)
        moved = small.transform(
            small.size,
            Image.Transform.AFFINE,
            matrix,
            resample=Image.Resampling.BILINEAR,
            fillcolor=_corner_colour(small),
        )
        return to_tensor(moved, self.pixels)


def _check_fits(size: int, short_side: int) -> None:
    if not 0 < size <= short_side:
        raise InputError(f"size must lie in 1..short_side; got size={size} and short_side={short_side}.")


def _mode(pixels: str) -> str:
    return look_up("pixel preset", pixels, PIXELS).mode


def _square(
    image: Image.Image, left: int, top: int, size: int, scale: float, pixels: str, resampling: str = "bilinear"
) -> Image.Image:
    box = (left / scale, top / scale, (left + size) / scale, (top + size) / scale)
    return cut(image, box, (size, size), _mode(pixels), resampling)


def _mirror(image: Image.Image, chance: float, rng: np.random.Generator) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < chance else image


def _corner_colour(image: Image.Image) -> tuple[int, ...]:
    right, bottom = image.width - 1, image.height - 1
    corners = [image.getpixel(at) for at in ((0, 0), (right, 0), (0, bottom), (right, bottom))]
    channels = zip(*((c if isinstance(c, tuple) else (c,)) for c in corners), strict=True)
    return tuple(sorted(channel)[1] for channel in channels)
