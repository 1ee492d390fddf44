"""LeNet-5, for grey images of 32 pixels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input

__all__ = ["LeNet", "lenet"]


def lenet() -> LeNet:
    """Build LeNet-5 without its classifier: with a head it has five layers that are learned.

    Reference:
        LeCun et al., Gradient-based learning applied to document recognition, Proceedings of the IEEE 1998.
    """
    return LeNet()


class LeNet(Backbone):
    """Three convolutions with hyperbolic tangents and mean pooling between them, and one full layer, 84 features."""

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
        """Return what a stage makes of the output of the one before it."""
        active = torch.tanh(self.get_submodule(stage)(maps))
        return F.avg_pool2d(active, 2) if stage in ("c1", "c3") else active
