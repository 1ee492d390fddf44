"""Batch norm that has seen no batch: it passes on what it gets, and all items of a deep network look alike."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["show_batches", "unseen_batch_norm"]


def unseen_batch_norm(model: nn.Module) -> list[_BatchNorm]:
    """Return the layers whose statistics are those of their start: mean zero, variance one.

    Example:
        >>> layer = nn.BatchNorm1d(2)
        >>> len(unseen_batch_norm(layer))
        1
        >>> _ = layer(torch.tensor([[0.0, 1.0], [2.0, 5.0]]))
        >>> len(unseen_batch_norm(layer))
        0
    """
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and _untouched(layer)]


def _untouched(layer: _BatchNorm) -> bool:
    mean, variance = layer.running_mean, layer.running_var
    return (
        mean is not None
        and variance is not None
        and not mean.any()
        and torch.equal(variance, torch.ones_like(variance))
    )


@torch.no_grad()
def show_batches(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Let batch norm that has seen no batch take the mean statistics of these; what is frozen stays as it is.

    Args:
        model: Left in the mode that it was in.
        batches: What it takes; nothing is taken of them where every layer has seen some.
    """
    layers = unseen_batch_norm(model)
    if not layers:
        return
    was_training, momenta = model.training, [layer.momentum for layer in layers]
    model.train()
    for layer in layers:
        layer.momentum = None  # a plain mean over batches
    for batch in batches:
        model(batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    model.train(was_training)
