"""What every backbone is: a module from images to feature maps, and a few facts about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

__all__ = ["Backbone", "Fetched", "InStages", "Input", "Pixels"]

Pixels = Literal["imagenet", "bn_inception", "lite", "unit", "grey"]


@dataclass(frozen=True)
class Input:
    """What a backbone expects to be given.

    Attributes:
        pixels: How bytes become numbers, a name in `vicinal.data.pixels.PIXELS`; None for feature
            vectors, which are taken as they are.
        channels: Colour channels of an image, or the length of a feature vector.
        size: Height and width of the images; 0 for vectors.
        short_side: What the short side of a test image is scaled to before the middle is cut out;
            None scales the whole image to `size`.
        resampling: How the pixels of a test image are interpolated, as in `vicinal.data.cutting.FILTERS`.
    """

    pixels: Pixels | None
    channels: int
    size: int = 0
    short_side: int | None = None
    resampling: str = "bilinear"


class Backbone(nn.Module):
    """The interface of a backbone: declarations only, nothing is inherited but `torch.nn.Module`.

    `forward` maps images [n, c, h, w] to feature maps [n, channels, i, j], or vectors to vectors.

    Attributes:
        channels: Channels of the feature maps, or length of the vectors.
        input: What the backbone expects to be given.
        stages: The network from input to output in named stages, each a tuple of submodule names;
            together they hold every parameter. The last one is what fine-tuning trains first.
    """

    channels: int
    input: Input
    stages: Mapping[str, tuple[str, ...]]


@runtime_checkable
class Fetched(Protocol):
    """A backbone that came from elsewhere, and knows the options that build it again without going there."""

    options: Mapping[str, Any]


@runtime_checkable
class InStages(Protocol):
    """A backbone whose `forward` runs its stages one after the other, so that it can be cut between two of them."""

    stages: Mapping[str, tuple[str, ...]]

    def run_stage(self, stage: str, maps: Tensor) -> Tensor:
        """Return what a stage makes of the output of the one before it."""
        ...
