"""MobileNetV2, with torchvision's parameter names."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import conv_norm, initialise, relu6

__all__ = ["MobileNetV2", "mobilenet_v2"]

# the rows of the paper's Table 2: expansion, channels, blocks, stride of the first block
ROWS = (
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
    """A convolution, batch norm and ReLU6; a sequence, as its parameters are named by their places."""

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
        for row, (expansion, channels, depth, stride) in enumerate(ROWS, start=1):
            stages[f"row{row}"] = tuple(f"features.{len(layers) + i}" for i in range(depth))
            for i in range(depth):
                layers.append(InvertedResidual(width, channels, stride if i == 0 else 1, expansion))
                width = channels
        stages[f"row{len(ROWS)}"] += (f"features.{len(layers)}",)
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
        """Return what a stage makes of the output of the one before it."""
        for layer in self.stages[stage]:
            maps = self.get_submodule(layer)(maps)
        return maps
