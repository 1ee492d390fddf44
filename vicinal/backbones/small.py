"""Networks without pretrained weights: a small convolutional network and a linear map."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import channels_last, conv_norm, initialise
from vicinal.errors import InputError

__all__ = ["convnet", "linear"]


def convnet(in_channels: int = 1, widths: Sequence[int] = (32, 64, 128, 256), size: int = 32) -> ConvNet:
    """Build a small network: 3x3 convolution, batch norm, ReLU and halving, once per width.

    Since the width doubles where the side halves, every block takes the same work; the default takes
    14 million multiplications for a grey 32 x 32 image.

    Args:
        in_channels: Number of channels: 1 for grey images, 3 for colour.
        widths: Number of channels of each block; the last is the number of features.
        size: Side in pixels that images are resized to; at least 2 ** blocks.
    """
    return ConvNet(in_channels, widths, size)


class ConvNet(Backbone):
    """Blocks of convolution, batch norm, ReLU and max pooling, for training from scratch on small images."""

    def __init__(self, in_channels: int, widths: Sequence[int], size: int) -> None:
        super().__init__()
        smallest = 2 ** len(widths)
        if in_channels not in (1, 3) or not widths or min(widths) < 1 or size < smallest:
            raise InputError(
                f"convnet needs in_channels 1 or 3, positive widths and a size of at least {smallest} "
                f"(each block halves it); got in_channels={in_channels}, widths={tuple(widths)}, size={size}."
            )
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after))
                for before, after in pairwise([in_channels, *widths])
            )
        )
        initialise(self)
        self.channels = widths[-1]
        self.input = Input("grey" if in_channels == 1 else "unit", in_channels, size)
        self.stages = {f"block{i}": (f"blocks.{i}",) for i in range(len(widths))}

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the feature maps of the last block."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the output of a stage, given the output of the previous one."""
        for name in self.stages[stage]:
            conv, norm = self.get_submodule(name).children()
            # With this memory format a training step takes two thirds of the time.
            normed = conv_norm(conv, norm, channels_last(maps))  # type: ignore[arg-type]
            maps = F.relu_(F.max_pool2d(normed, 2))  # pooling before ReLU: the same result for a quarter of the work
        return maps


# Feature vectors: a backbone that leaves all work to the head.


def linear(features: int) -> Linear:
    """Build the backbone for feature vectors; together with the head's linear map, the embedder is linear.

    Args:
        features: Length of the vectors.
    """
    return Linear(features)


class Linear(Backbone):
    """Return vectors unchanged after checking their length; the head is the linear map."""

    def __init__(self, features: int) -> None:
        super().__init__()
        if features < 1:
            raise InputError(f"The linear backbone needs vectors of at least 1 feature; got features={features}.")
        self.channels = features
        self.input = Input(None, channels=features)
        self.stages = {}

    def forward(self, vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return the vectors."""
        if vectors.shape[1] != self.channels:
            raise InputError(f"This embedder takes vectors of {self.channels} features; got {vectors.shape[1]}.")
        return vectors
