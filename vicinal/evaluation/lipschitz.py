"""How much a chain of layers can stretch a distance."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from vicinal.errors import InputError

__all__ = ["lipschitz_constant"]


def lipschitz_constant(layers: Iterable[nn.Module]) -> float:
    """Bound by how much a chain of layers can stretch a distance, in evaluation mode.

    Formula:
        The product over layers of sqrt(largest row sum x largest column sum) of absolute weights (Schur's test), which
        bounds the spectral norm. A bound on the row sums alone, as the paper's Lemma 4.1 has it, is not enough.

    Args:
        layers: Linear maps, convolutions, batch norms, and layers that stretch nothing (ReLU, pooling without overlap,
            dropout); sequences of those.

    Reference:
        Gurbuz, Can and Alatan (2024), Deep metric learning with chance constraints, Lemma 4.1.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
        >>> lipschitz_constant([layer, nn.ReLU()])
        3.0
    """
    return math.prod(_stretch(layer) for layer in layers)


def _stretch(layer: nn.Module) -> float:
    if isinstance(layer, nn.Sequential):
        return lipschitz_constant(layer)
    if isinstance(layer, nn.Linear):
        absolute = layer.weight.detach().abs()
        return float((absolute.sum(1).max() * absolute.sum(0).max()).sqrt())
    if isinstance(layer, nn.Conv2d):
        absolute = layer.weight.detach().abs().sum(dim=(2, 3)).view(layer.groups, -1, layer.weight.shape[1])
        return float((absolute.sum(2).max() * absolute.sum(1).max()).sqrt())
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.running_var is not None:
        scale = torch.ones_like(layer.running_var) if layer.weight is None else layer.weight.detach().abs()
        return float((scale / (layer.running_var + layer.eps).sqrt()).max())
    pools = isinstance(layer, nn.MaxPool2d | nn.AvgPool2d) and layer.kernel_size == layer.stride
    if pools or isinstance(layer, nn.ReLU | nn.Identity | nn.Flatten | nn.Dropout | nn.AdaptiveAvgPool2d):
        return 1.0
    raise InputError(
        f"No bound is known here for a layer of type {type(layer).__name__}; give linear maps, convolutions, batch "
        "norms, ReLU and pooling without overlap, one after the other."
    )
