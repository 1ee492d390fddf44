"""The two pieces that several backbones share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["initialise", "renormalise"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def initialise(network: nn.Module) -> None:
    """Draw every convolution by He's rule for ReLU (variance kept on the way back), biases zero.

    Reference:
        He et al., Delving deep into rectifiers, ICCV 2015.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def renormalise(
    images: Float[Tensor, "n 3 h w"], mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "n 3 h w"]:
    """Turn images scaled by ImageNet's mean and deviation into images scaled by others.

    For networks whose published weights were trained with a scaling of their own: callers keep to
    one preset, and the network mends the difference.

    Example:
        >>> black = (torch.zeros(3) - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
        >>> renormalise(black.view(1, 3, 1, 1), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)).flatten().round(decimals=4)
        tensor([-1., -1., -1.])
    """

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)

    pixels = images * column(IMAGENET_STD) + column(IMAGENET_MEAN)
    return (pixels - column(mean)) / column(std)
