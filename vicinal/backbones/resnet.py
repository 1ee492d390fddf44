"""ResNet-18 and ResNet-50, with torchvision's parameter names."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import conv_norm, initialise

__all__ = ["ResNet", "resnet18", "resnet50"]


def resnet18() -> ResNet:
    """Build ResNet-18: two-convolution blocks, 512 channels.

    Reference:
        He et al., Deep residual learning for image recognition, CVPR 2016.
    """
    return ResNet(BasicBlock, depths=(2, 2, 2, 2))


def resnet50() -> ResNet:
    """Build ResNet-50: three-convolution bottleneck blocks, 2048 channels.

    The stride is on the 3x3 convolution, as in the published PyTorch weights.

    Reference:
        He et al., Deep residual learning for image recognition, CVPR 2016.
    """
    return ResNet(Bottleneck, depths=(3, 4, 6, 3))


def _conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)


class Projection(nn.Sequential):
    """A convolution and batch norm: the shortcut of a block whose output and input differ in shape."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__(_conv(channels_in, channels_out, 1, stride), nn.BatchNorm2d(channels_out))

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the projected maps."""
        conv, norm = self
        return conv_norm(conv, norm, maps)


def _shortcut(channels_in: int, channels_out: int, stride: int) -> Projection | None:
    """Return the projection that a block needs; None if it needs none."""
    same = stride == 1 and channels_in == channels_out
    return None if same else Projection(channels_in, channels_out, stride)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels_in, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(channels_in, width, stride)

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the block's feature maps."""
        inner = F.relu_(conv_norm(self.conv1, self.bn1, maps))
        inner = conv_norm(self.conv2, self.bn2, inner)
        shortcut = maps if self.downsample is None else self.downsample(maps)
        return F.relu_(inner + shortcut)


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 and a widening 1x1 convolution with a shortcut."""

    expansion = 4

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels_in, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, self.expansion * width, 1)
        self.bn3 = nn.BatchNorm2d(self.expansion * width)
        self.downsample = _shortcut(channels_in, self.expansion * width, stride)

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the block's feature maps."""
        inner = F.relu_(conv_norm(self.conv1, self.bn1, maps))
        inner = F.relu_(conv_norm(self.conv2, self.bn2, inner))
        inner = conv_norm(self.conv3, self.bn3, inner)
        shortcut = maps if self.downsample is None else self.downsample(maps)
        return F.relu_(inner + shortcut)


def _stage(
    block: type[BasicBlock] | type[Bottleneck], channels_in: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    first = block(channels_in, width, stride)
    return nn.Sequential(first, *(block(block.expansion * width, width, 1) for _ in range(depth - 1)))


class ResNet(Backbone):
    """A residual network without its classifier; feature maps are 1/32 of the image's side."""

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], depths: Sequence[int]) -> None:
        super().__init__()
        grow = block.expansion
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, 64 * grow, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 128 * grow, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 256 * grow, 512, depths[3], stride=2)
        initialise(self)
        self.channels = 512 * grow
        self.input = Input("imagenet", channels=3, size=224, short_side=256)
        self.stages = {"stem": ("conv1", "bn1")} | {f"layer{i}": (f"layer{i}",) for i in (1, 2, 3, 4)}

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n c i j"]:
        """Return the feature maps of the last stage."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the output of a stage, given the output of the previous one."""
        if stage != "stem":
            return self.get_submodule(stage)(maps)
        maps = F.relu_(conv_norm(self.conv1, self.bn1, maps))
        return F.max_pool2d(maps, kernel_size=3, stride=2, padding=1)
