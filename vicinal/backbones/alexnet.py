"""AlexNet, with torchvision's parameter names."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import initialise

__all__ = ["AlexNet", "alexnet"]

# Channels in and out, kernel, stride, padding, and whether pooling follows.
CONVOLUTIONS = (
    (3, 64, 11, 4, 2, True),
    (64, 192, 5, 1, 2, True),
    (192, 384, 3, 1, 1, False),
    (384, 256, 3, 1, 1, False),
    (256, 256, 3, 1, 1, True),
)


def alexnet() -> AlexNet:
    """Build AlexNet's five convolutions, 256 channels; its three full layers, eight in all, were for classification.

    Reference:
        Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014: the form with one path, of
        Krizhevsky, Sutskever and Hinton, NIPS 2012.
    """
    return AlexNet()


class AlexNet(Backbone):
    """AlexNet without its classifier; feature maps of 6 x 6 for images of 224 pixels."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self.stages = {}
        for number, (before, after, kernel, stride, padding, pooled) in enumerate(CONVOLUTIONS, start=1):
            first = len(layers)
            layers += [nn.Conv2d(before, after, kernel, stride, padding), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(3, 2)] * pooled
            self.stages[f"conv{number}"] = tuple(f"features.{place}" for place in range(first, len(layers)))
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
        """Return what a stage makes of the output of the one before it."""
        for name in self.stages[stage]:
            maps = self.get_submodule(name)(maps)
        return maps
