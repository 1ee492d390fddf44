"""GoogLeNet and BN-Inception, with the published parameter names."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import conv_norm, initialise, renormalise

__all__ = ["bn_inception", "googlenet"]


# block: channels in, 1x1, (reduce, 3x3), (reduce, "5x5"), after the pool
GOOGLENET_BLOCKS = {
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
    """Four parallel branches with concatenated channels.

    The branch with 5x5 kernels in the paper has 3x3 kernels here, as in the published weights.
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
        """Return the concatenated branches."""
        return torch.cat([self.branch1(maps), self.branch2(maps), self.branch3(maps), self.branch4(maps)], 1)


class GoogLeNet(Backbone):
    """GoogLeNet without its classifiers; feature maps are 1/32 of the image's side.

    The published weights expect pixels in [-1, 1]; images arrive with ImageNet's normalisation as for
    every other network, and the stem corrects the difference.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = ConvNorm(3, 64, 7, stride=2)
        self.conv2 = ConvNorm(64, 64, 1)
        self.conv3 = ConvNorm(64, 192, 3)
        for name, widths in GOOGLENET_BLOCKS.items():
            self.add_module(name, Inception(*widths))
        initialise(self)
        self.channels = 1024
        self.input = Input("imagenet", channels=3, size=224, short_side=256)
        self.stages = {"stem": ("conv1", "conv2", "conv3")} | {
            f"inception{i}": tuple(name for name in GOOGLENET_BLOCKS if name.startswith(f"inception{i}"))
            for i in (3, 4, 5)
        }

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1024 i j"]:
        """Return the feature maps of the last block."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the output of a stage, given the output of the previous one; all but the last end in pooling."""
        if stage == "stem":
            maps = renormalise(maps, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
            maps = F.max_pool2d(self.conv1(maps), 3, stride=2, ceil_mode=True)
            return F.max_pool2d(self.conv3(self.conv2(maps)), 3, stride=2, ceil_mode=True)
        for block in self.stages[stage]:
            maps = self.get_submodule(block)(maps)
        pooled = {"inception3": 3, "inception4": 2}.get(stage)
        return maps if pooled is None else F.max_pool2d(maps, pooled, stride=2, ceil_mode=True)


# BN-Inception, with the parameter names of the Caffe weights that metric-learning papers start from.

# block: channels in, 1x1, (reduce, 3x3), (reduce, double 3x3), after the pool.
# The two blocks without a 1x1 branch halve the side, and pass on their pooled input unchanged.
BN_INCEPTION_BLOCKS = {
    "3a": (192, 64, (64, 64), (64, 96), 32),
    "3b": (256, 64, (64, 96), (64, 96), 64),
    "3c": (320, 0, (128, 160), (64, 96), 0),
    "4a": (576, 224, (64, 96), (96, 128), 128),
    "4b": (576, 192, (96, 128), (96, 128), 128),
    "4c": (576, 160, (128, 160), (128, 160), 128),
    "4d": (608, 96, (128, 192), (160, 192), 128),
    "4e": (608, 0, (128, 192), (192, 256), 0),
    "5a": (1056, 352, (192, 320), (160, 224), 128),
    "5b": (1024, 352, (192, 320), (192, 224), 128),
}


def bn_inception() -> BNInception:
    """Build BN-Inception, 1024 channels; images are BGR, 0 to 255, minus the channel means.

    Reference:
        Ioffe and Szegedy, Batch normalization, ICML 2015.
    """
    return BNInception()


class BNInception(Backbone):
    """BN-Inception without its classifier; feature maps are 1/32 of the image's side.

    The published file uses flat names for all layers (`inception_3a_1x1`, `inception_3a_1x1_bn`), so the
    layers are direct children here too and are called by name. Batch norm keeps PyTorch's momentum
    of 0.1: the 0.9 in ports of this network is Caffe's decay, which is one minus the momentum.
    """

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, kernel=7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64)
        self._add("conv2_3x3", 64, 192, kernel=3)
        for block, (channels_in, plain, three, double, pooled) in BN_INCEPTION_BLOCKS.items():
            name, stride = f"inception_{block}", 1 if plain else 2
            if plain:
                self._add(f"{name}_1x1", channels_in, plain)
            self._add(f"{name}_3x3_reduce", channels_in, three[0])
            self._add(f"{name}_3x3", *three, kernel=3, stride=stride)
            self._add(f"{name}_double_3x3_reduce", channels_in, double[0])
            self._add(f"{name}_double_3x3_1", *double, kernel=3)
            self._add(f"{name}_double_3x3_2", double[1], double[1], kernel=3, stride=stride)
            if pooled:
                self._add(f"{name}_pool_proj", channels_in, pooled)
        initialise(self)
        self.channels = 1024
        self.input = Input("bn_inception", channels=3, size=227, short_side=256)
        children = [name for name, _ in self.named_children()]
        starts = {"stem": "conv", **{f"inception_{i}": f"inception_{i}" for i in (3, 4, 5)}}
        self.stages = {
            stage: tuple(name for name in children if name.startswith(start)) for stage, start in starts.items()
        }

    def _add(self, name: str, channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(channels_out))

    def _run(self, name: str, maps: Tensor) -> Tensor:
        conv, norm = self.get_submodule(name), self.get_submodule(f"{name}_bn")
        return F.relu_(conv_norm(conv, norm, maps))  # type: ignore[arg-type]

    def _block(self, block: str, maps: Tensor) -> Tensor:
        name = f"inception_{block}"
        halves = BN_INCEPTION_BLOCKS[block][1] == 0
        three = self._run(f"{name}_3x3", self._run(f"{name}_3x3_reduce", maps))
        double = self._run(f"{name}_double_3x3_1", self._run(f"{name}_double_3x3_reduce", maps))
        double = self._run(f"{name}_double_3x3_2", double)
        if halves:
            return torch.cat([three, double, F.max_pool2d(maps, 3, stride=2, ceil_mode=True)], 1)
        pool = F.max_pool2d if block == "5b" else F.avg_pool2d
        pooled = self._run(f"{name}_pool_proj", pool(maps, 3, stride=1, padding=1))
        return torch.cat([self._run(f"{name}_1x1", maps), three, double, pooled], 1)

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1024 i j"]:
        """Return the feature maps of the last block."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the output of a stage, given the output of the previous one."""
        if stage == "stem":
            maps = F.max_pool2d(self._run("conv1_7x7_s2", maps), 3, stride=2, ceil_mode=True)
            maps = self._run("conv2_3x3", self._run("conv2_3x3_reduce", maps))
            return F.max_pool2d(maps, 3, stride=2, ceil_mode=True)
        for block in BN_INCEPTION_BLOCKS:
            if stage == f"inception_{block[0]}":
                maps = self._block(block, maps)
        return maps
