"""GoogLeNet with batch norm, with torchvision's parameter names."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import conv_norm, initialise, renormalise

__all__ = ["GoogLeNet", "googlenet"]

# block: channels in, 1x1, (reduce, 3x3), (reduce, "5x5"), after the pool
BLOCKS = {
    "inception3a": (192, 64, (96, 128), (16, 32), 32),
    "inception3b": (256, 128, (128, 192), (32, 96), 64),
    "inception4a": (480, 192, (96, 208), (16, 48), 64),
    "inception4b": (512, 160, (112, 224), (24, 64), 64),
    "inception4c": (512, 128, (128, 256), (24, 64), 64),
    "inception4d": (512, 112, (144, 288), (32, 64), 64),
    "inception4e": (528, 256, (160, 320), (32, 128), 128),
    "inception5a": (832, 256, (160, 320), (32, 128), 128),
    "inception5b": (832, 384, (192, 384), (48, 128), 128),
}


def googlenet() -> GoogLeNet:
    """Build GoogLeNet (Inception v1 with batch norm), 1024 channels.

    Reference:
        Szegedy et al., Going deeper with convolutions, CVPR 2015.
    """
    return GoogLeNet()


class ConvNorm(nn.Module):
    """A convolution, batch norm and ReLU."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(channels_out, eps=0.001)

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the activated maps."""
        return F.relu_(conv_norm(self.conv, self.bn, maps))


class Inception(nn.Module):
    """Four branches side by side, their channels joined.

    The branch that the paper draws with 5x5 kernels has 3x3 here: so it is in the published weights.
    """

    def __init__(
        self, channels_in: int, plain: int, three: tuple[int, int], five: tuple[int, int], pooled: int
    ) -> None:
        super().__init__()
        self.branch1 = ConvNorm(channels_in, plain, 1)
        self.branch2 = nn.Sequential(ConvNorm(channels_in, three[0], 1), ConvNorm(*three, kernel=3))
        self.branch3 = nn.Sequential(ConvNorm(channels_in, five[0], 1), ConvNorm(*five, kernel=3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), ConvNorm(channels_in, pooled, 1))

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h w"]:
        """Return the joined branches."""
        return torch.cat([self.branch1(maps), self.branch2(maps), self.branch3(maps), self.branch4(maps)], 1)


class GoogLeNet(Backbone):
    """GoogLeNet without its classifiers; feature maps are 1/32 of the image's side.

    The published weights want pixels in [-1, 1]; images arrive in ImageNet's scaling like those of
    every other network, and the stem mends the difference.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = ConvNorm(3, 64, 7, stride=2)
        self.conv2 = ConvNorm(64, 64, 1)
        self.conv3 = ConvNorm(64, 192, 3)
        for name, widths in BLOCKS.items():
            self.add_module(name, Inception(*widths))
        initialise(self)
        self.channels = 1024
        self.input = Input("imagenet", channels=3, size=224, short_side=256)
        self.stages = {"stem": ("conv1", "conv2", "conv3")} | {
            f"inception{i}": tuple(name for name in BLOCKS if name.startswith(f"inception{i}")) for i in (3, 4, 5)
        }

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1024 i j"]:
        """Return the feature maps of the last block."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return what a stage makes of the output of the one before it; all but the last end in pooling."""
        if stage == "stem":
            maps = renormalise(maps, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
            maps = F.max_pool2d(self.conv1(maps), 3, stride=2, ceil_mode=True)
            return F.max_pool2d(self.conv3(self.conv2(maps)), 3, stride=2, ceil_mode=True)
        for block in self.stages[stage]:
            maps = self.get_submodule(block)(maps)
        pooled = {"inception3": 3, "inception4": 2}.get(stage)
        return maps if pooled is None else F.max_pool2d(maps, pooled, stride=2, ceil_mode=True)
