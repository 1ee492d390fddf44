"""From a Pillow image to the numbers that a network was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vicinal.errors import look_up

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@final
@dataclass(frozen=True)
class Pixels:
    """How bytes become numbers: `byte * scale + offset`, per channel of the result.

    Args:
        mode: Pillow mode: "RGB" for three channels, "L" for grey.
        scale: One factor per channel.
        offset: One summand per channel.
        bgr: Whether blue comes first.
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
    # The weights come from Caffe: blue first, 0..255, minus the mean image's mean.
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
    bands = (converted,) if how.mode == "L" else converted.split()  # which would copy it
    # Band by band is faster than transposing height x width x channel, and numpy than torch's threads.
    values = np.empty((len(bands), image.height, image.width), dtype=np.float32)
    for channel, band in enumerate(reversed(bands) if how.bgr else bands):
        np.multiply(np.asarray(band), np.float32(how.scale[channel]), out=values[channel])
        values[channel] += np.float32(how.offset[channel])
    return torch.from_numpy(values)
