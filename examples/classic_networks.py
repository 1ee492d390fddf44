"""LeNet-5 and AlexNet: two networks of your own, as `--backbone` takes them from a file.

vicinal train digits --backbone examples/classic_networks.py:LeNet --out runs/lenet
python examples/classic_networks.py                            # layers and parameters of both

A subclass of `Backbone` says what images it takes and which stages it has, so that it can be frozen or cut stage by
stage. A plain `torch.nn.Module` works too; see docs/extend.md.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones import Backbone, Input
from vicinal.backbones.layers import initialise

# Channels in and out, kernel, stride, padding, and whether pooling follows.
CONVOLUTIONS = (
    (3, 64, 11, 4, 2, True),
    (64, 192, 5, 1, 2, True),
    (192, 384, 3, 1, 1, False),
    (384, 256, 3, 1, 1, False),
    (256, 256, 3, 1, 1, True),
)


class LeNet(Backbone):
    """LeNet-5 for grey images of 32 pixels, without its classifier: 84 features, and five layers with a head.

    Reference:
        LeCun et al., Gradient-based learning applied to document recognition, Proceedings of the IEEE 1998.
    """

    def __init__(self) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 5)
        self.c3 = nn.Conv2d(6, 16, 5)
        self.c5 = nn.Conv2d(16, 120, 5)  # on maps of 5 x 5: a full layer
        self.f6 = nn.Conv2d(120, 84, 1)
        self.channels = 84
        self.input = Input("grey", channels=1, size=32)
        self.stages = {name: (name,) for name in ("c1", "c3", "c5", "f6")}

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the features, as maps of one pixel for images of 32."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the output of a stage from that of the one before it."""
        active = torch.tanh(self.get_submodule(stage)(maps))
        return F.avg_pool2d(active, 2) if stage in ("c1", "c3") else active


class AlexNet(Backbone):
    """AlexNet's five convolutions with torchvision's parameter names: maps of 256 x 6 x 6 for images of 224 pixels.

    Reference:
        Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014: the form with one path, of
        Krizhevsky, Sutskever and Hinton, NIPS 2012.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self.stages = {}
        for number, (before, after, kernel, stride, padding, pooled) in enumerate(CONVOLUTIONS, start=1):
            first = len(layers)
            layers += [nn.Conv2d(before, after, kernel, stride, padding), nn.ReLU(inplace=True)]
            if pooled:
                layers.append(nn.MaxPool2d(3, 2))
            self.stages[f"conv{number}"] = tuple(f"features.{index}" for index in range(first, len(layers)))
        self.features = nn.Sequential(*layers)
        initialise(self)
        self.channels = 256
        self.input = Input("imagenet", channels=3, size=224, short_side=256)

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the feature maps of the last convolution."""
        maps = images
        for stage in self.stages:
            maps = self.run_stage(stage, maps)
        return maps

    def run_stage(self, stage: str, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Return the output of a stage from that of the one before it."""
        for name in self.stages[stage]:
            maps = self.get_submodule(name)(maps)
        return maps


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for network in (LeNet(), AlexNet()):
        parameters = sum(parameter.numel() for parameter in network.parameters())
        print(f"{type(network).__name__}: {', '.join(network.stages)}; {parameters:,} parameters")


if __name__ == "__main__":
    main()
