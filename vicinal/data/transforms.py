"""Transforms from an image to the input tensor of a network; all randomness comes from the generator passed in.

A transform is any callable `(image, rng) -> float tensor [c, h, w]`. The image may not be decoded yet:
the transforms here tell the JPEG decoder which size is enough, and scale only the part they keep.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vicinal.data.images import FILTERS, PIXELS, Source, cut, draw_part, open_image, scaled_size, to_tensor
from vicinal.errors import InputError, look_up

Transform = Callable[[Any, np.random.Generator], Tensor]


@final
@dataclass(frozen=True)
class CentreCrop:
    """Scale the short side to `short_side` and crop the centre square of `size`.

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
    """Scale the short side to `short_side`, crop a random square of `size`, and flip it at random."""

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
    """Crop a random part of the image, scale it to a square of `size`, and flip it at random.

    Args:
        size: Height and width of the result.
        area: Minimum and maximum share of the image's area.
        ratio: Minimum and maximum width / height of the crop.
        flip: Probability of a horizontal flip.
        short_side: Short side to scale the image to first, so that small crops are as blurred as in
            the reality check; None crops from the full image.
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
    """Scale the whole image to a square of `size`."""

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
    """Scale a small image to a square of `size`, then rotate, shear, scale and shift it slightly.

    Args:
        size: Height and width of the result.
        degrees: Maximum rotation and maximum shear, in both directions.
        scale: Minimum and maximum factor.
        shift: Maximum shift, as a share of `size`.
        pixels: Name in `PIXELS`.
    """

    size: int = 32
    degrees: float = 10.0
    scale: tuple[float, float] = (0.9, 1.1)
    shift: float = 0.08
    pixels: str = "grey"

    def __call__(self, image: Source, rng: np.random.Generator) -> Float[Tensor, "c h w"]:
        """Transform one image; areas outside the image are filled with the colour of the corners."""
        opened = open_image(image)
        small = cut(opened, (0, 0, *opened.size), (self.size, self.size), _mode(self.pixels))
        # Python numbers: numpy scalars would make the arithmetic below slower than the image transform.
        turn, shear = np.radians(rng.uniform(-self.degrees, self.degrees, size=2)).tolist()
        factor = 1 / rng.uniform(*self.scale)
        x, y = (self.size / 2 + self.size * move for move in rng.uniform(-self.shift, self.shift, size=2).tolist())
        a, b = factor * math.cos(turn), factor * (math.sin(turn) + math.tan(shear))
        d, e = -factor * math.sin(turn), factor * math.cos(turn)
        # Pillow maps each position of the result back to its position in the image.
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
    corners = [image.getpixel(position) for position in ((0, 0), (right, 0), (0, bottom), (right, bottom))]
    channels = zip(*((c if isinstance(c, tuple) else (c,)) for c in corners), strict=True)
    return tuple(sorted(channel)[1] for channel in channels)


# Pipelines (pairs of transforms for training and testing), other callables, and transforms as plain data.

TRANSFORMS: dict[str, Callable[..., Transform]] = {
    "CentreCrop": CentreCrop,
    "Fit": Fit,
    "RandomAffine": RandomAffine,
    "RandomCrop": RandomCrop,
    "RandomResizedCrop": RandomResizedCrop,
}


class Pipeline(NamedTuple):
    """Transforms for training and testing."""

    train: Transform
    test: Transform


PIPELINES: dict[str, Pipeline] = {
    "reality-check": Pipeline(RandomResizedCrop(227, area=(0.16, 1.0), short_side=256), CentreCrop(227)),
    "thesis": Pipeline(RandomResizedCrop(224), CentreCrop(224)),
    "raw": Pipeline(RandomCrop(227), CentreCrop(227)),
    "plain": Pipeline(CentreCrop(224), CentreCrop(224)),
    "small": Pipeline(RandomAffine(32), Fit(32)),
}


def pipeline(name: str, *, size: int | None = None, pixels: str | None = None) -> Pipeline:
    """Return the two transforms of a pipeline, optionally for another size or other pixels.

    - "reality-check" (Musgrave et al. 2020): short side 256, 16-100 % of the area to 227; centre 227.
    - "thesis": 8-100 % of the area to 224; short side 256, centre 224.
    - "raw": short side 256, any 227 x 227; centre 227.
    - "plain": short side 256, centre 224, in training too: for heads on frozen features.
    - "small": for drawings and digits of 28-64 pixels; a slight random affine map to 32; unchanged.

    Args:
        name: Name in `PIPELINES`.
        size: Height and width of the result; a short side changes in proportion.
        pixels: Name in `PIXELS`.

    Example:
        >>> pipeline("thesis", size=112).test
        CentreCrop(size=112, short_side=128, pixels='imagenet', resampling='bilinear')
    """
    train, test = look_up("pipeline", name, PIPELINES)
    return Pipeline(_changed(train, size, pixels), _changed(test, size, pixels))


def _changed(transform: Any, size: int | None, pixels: str | None) -> Transform:
    changes: dict[str, Any] = {}
    if size is not None:
        changes["size"] = size
        if getattr(transform, "short_side", None):
            changes["short_side"] = round(transform.short_side * size / transform.size)
    if pixels is not None:
        changes["pixels"] = pixels
    return replace(transform, **changes)


@final
@dataclass(frozen=True)
class Seeded:
    """A callable of one image, run with torch's and Python's generators seeded, and restored afterwards."""

    function: Callable[[Image.Image], Tensor]

    def __call__(self, image: Source, rng: np.random.Generator) -> Tensor:
        """Call the function on the image in RGB."""
        seed = int(rng.integers(2**63))
        before = random.getstate()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            try:
                return self.function(open_image(image).convert("RGB"))
            finally:
                random.setstate(before)


def as_transform(function: Callable[..., Tensor]) -> Transform:
    """Turn any callable into a transform.

    A callable with two required arguments is called with the item and a `numpy.random.Generator`; one with
    a single required argument (as in torchvision) with the image in RGB, and its draws from torch's or
    Python's global generator do not depend on the number of workers.
    """
    if type(function) in (*TRANSFORMS.values(), Seeded):
        return function
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return Seeded(function)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [a for a in arguments if a.kind in positional and a.default is inspect.Parameter.empty]
    return function if len(needed) >= 2 else Seeded(function)


def describe(transform: Transform) -> dict[str, Any]:
    """Return a transform as plain data for JSON; `restore` is the inverse.

    Example:
        >>> describe(Fit(28))
        {'name': 'Fit', 'size': 28, 'pixels': 'grey'}
    """
    kind = type(transform)
    if kind not in TRANSFORMS.values():
        raise InputError(f"a transform of type {kind.__name__} cannot be described; only {', '.join(TRANSFORMS)} can.")
    values = asdict(transform)  # type: ignore[call-overload]
    if values.get("resampling") == "bilinear":  # keeps descriptions from before there were other filters valid
        del values["resampling"]
    return {"name": kind.__name__, **values}


def restore(description: dict[str, Any]) -> Transform:
    """Return the transform of a description from `describe`.

    Example:
        >>> restore({"name": "Fit", "size": 28})
        Fit(size=28, pixels='grey', resampling='bilinear')
    """
    kind = look_up("transform", description.get("name", ""), TRANSFORMS)
    fields = {key: value for key, value in description.items() if key != "name"}
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
