"""Functions that several backbones share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["channels_last", "conv_norm", "initialise", "relu6", "renormalise"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def initialise(network: nn.Module) -> None:
    """Initialise convolutions by He's rule for ReLU (fan-out, which preserves the variance of gradients), biases zero.

    Reference:
        He et al., Delving deep into rectifiers, ICCV 2015.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def channels_last(inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    """Return images or maps in the channels-last memory format; vectors unchanged.

    Convolutions on a CPU then need no reordering of memory before and after, and all later layers keep this format. The
    weights keep their format: reordering those is little work, and saved files stay the same.
    """
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


def conv_norm(conv: nn.Module, norm: nn.Module, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
    """Apply a convolution, then batch norm.

    If gradients are needed and batch norm is frozen, it is only a scale and a shift of each channel: they are folded
    into the kernel and the bias, and no maps are stored for it. A training step uses the `channels_last` format, which
    torch does not detect if the input has one channel, since both formats are then the same.

    Formula:
        scale (W * x + b - mean) + shift = (scale W) * x + scale (b - mean) + shift
        scale = weight / sqrt(variance + eps)
    """
    if norm.training:
        return norm(channels_last(conv(maps)))
    if not torch.is_grad_enabled():
        return norm(conv(maps))
    if not isinstance(conv, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):  # already folded by an engine
        return norm(conv(maps))
    assert norm.running_mean is not None
    assert norm.running_var is not None  # holds for all networks of vicinal
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    bias = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
    return conv._conv_forward(maps, conv.weight * scale.view(-1, 1, 1, 1), bias * scale + norm.bias)


def relu6(maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Clamp maps to [0, 6], in place.

    Torch's version stores a copy of the input to know where the gradient is zero; the output is enough for that.
    """
    if not torch.is_grad_enabled() or not maps.requires_grad:
        return F.relu6(maps, inplace=True)
    return _ReLU6.apply(maps)  # type: ignore[no-any-return, no-untyped-call]


class _ReLU6(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> Tensor:
        ctx.mark_dirty(maps)
        maps.clamp_(0, 6)
        ctx.save_for_backward(maps)
        return maps

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return torch.ops.aten.hardtanh_backward(gradient, ctx.saved_tensors[0], 0, 6)


def renormalise(
    images: Float[Tensor, "n 3 h w"], mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "n 3 h w"]:
    """Convert images normalised by ImageNet's mean and deviation to another normalisation.

    For networks whose published weights were trained with a different normalisation: callers use one
    preset, and the network corrects the difference.

    Example:
        >>> black = (torch.zeros(3) - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
        >>> renormalise(black.view(1, 3, 1, 1), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)).flatten().round(decimals=4)
        tensor([-1., -1., -1.])
    """

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)

    pixels = images * column(IMAGENET_STD) + column(IMAGENET_MEAN)
    return (pixels - column(mean)) / column(std)
