"""Fold batch norm into the convolution before it, where a network's own pass shows that nothing lies between."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

__all__ = ["fold"]


def fold(network: nn.Module, sample: Float[Tensor, "n ..."]) -> nn.Module:
    """Return a copy in evaluation mode whose convolutions do the work of the batch norms behind them.

    A pair is folded if, in one pass of the sample, the batch norm was given the very tensor that the convolution had
    returned and both were called once. Whether that tensor was used elsewhere too cannot be seen from outside: the
    caller compares the outputs, as it does for every engine.

    Args:
        network: Left as it is.
        sample: What it is called with.

    Example:
        >>> layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
        >>> [type(layer).__name__ for layer in fold(layers, torch.zeros(1, 3, 8, 8))]
        ['Conv2d', 'Identity', 'ReLU']
    """
    folded = copy.deepcopy(network).eval()
    for convolution, norm in _adjacent(folded, sample):
        fused = fuse_conv_bn_eval(folded.get_submodule(convolution), folded.get_submodule(norm))  # type: ignore[type-var, arg-type]
        folded.set_submodule(convolution, fused)
        folded.set_submodule(norm, nn.Identity())
    return folded.requires_grad_(False)


def _adjacent(network: nn.Module, sample: Tensor) -> list[tuple[str, str]]:
    """Return the names of the convolutions and batch norms that follow each other."""
    registered = Counter(id(module) for _, module in network.named_modules(remove_duplicate=False))
    names = {
        module: name
        for name, module in network.named_modules()
        if name and registered[id(module)] == 1 and not module._forward_hooks and not module._forward_pre_hooks
    }
    calls: Counter[nn.Module] = Counter()
    # The tensors are held until the end, so that no two of them can have the same identity.
    returned: dict[int, tuple[nn.Module, Tensor]] = {}
    pairs: list[tuple[nn.Module, nn.Module]] = []

    def after_convolution(module: nn.Module, _: Any, output: Tensor) -> None:
        calls[module] += 1
        returned[id(output)] = (module, output)

    def before_norm(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls[module] += 1
        if inputs and id(inputs[0]) in returned:
            pairs.append((returned[id(inputs[0])][0], module))

    # Exact types: a subclass may compute something else.
    handles = [module.register_forward_hook(after_convolution) for module in names if type(module) is nn.Conv2d]
    handles += [
        module.register_forward_pre_hook(before_norm)
        for module in names
        if type(module) is nn.BatchNorm2d and module.running_mean is not None
    ]
    try:
        with torch.no_grad():
            network(sample)
    finally:
        for handle in handles:
            handle.remove()
    return [
        (names[convolution], names[norm])
        for convolution, norm in pairs
        if calls[convolution] == calls[norm] == 1 and sum(first is convolution for first, _ in pairs) == 1
    ]
