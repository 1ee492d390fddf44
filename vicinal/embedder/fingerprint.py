"""Tell two states of a network apart: by all that its output can depend on, not by who it is."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["fingerprint", "outline"]

# what torch keeps in every module; parameters, buffers and hooks are looked at one by one
INTERNAL = frozenset(vars(nn.Module()))


def fingerprint(network: nn.Module) -> str:
    """Return a hash of a network's content: types, settings, hooks and every number in it.

    The numbers themselves are read (1 to 2 GB a second): torch's version counters do not see what is written through
    `.data`, through an array that shares the memory, or by an optimiser in a compiled step.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> before = fingerprint(layer)
        >>> layer.weight.data[0, 0] += 1e-7
        >>> fingerprint(layer) == before
        False
    """
    digest = hashlib.sha256()
    for name, module in network.named_modules(remove_duplicate=False):
        digest.update(f"\0{name}\0{type(module).__module__}.{type(module).__qualname__}".encode())
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        settings = {key: value for key, value in vars(module).items() if key not in INTERNAL}
        for key, value in {**module._parameters, **module._buffers, **settings, "hooks": hooks}.items():
            digest.update(f"\0{key}\0".encode())
            digest.update(_content(value))
    return digest.hexdigest()


def _content(value: Any) -> Any:
    if isinstance(value, Tensor):
        kind = f"{value.dtype} {tuple(value.shape)} {value.device}".encode()
        # bytes of any type of number, bfloat16 included, which NumPy does not have
        numbers = value.detach().cpu().contiguous().flatten()
        return hashlib.sha256(numbers.view(torch.uint8).numpy().data).digest() + kind if len(numbers) else kind
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
    return repr(value).encode()  # of an object without a text of its own this is where it lies in memory


def outline(network: nn.Module) -> str:
    """Return a hash of a network's build alone: the same for all weights.

    Example:
        >>> outline(nn.Linear(2, 3)) == outline(nn.Linear(2, 3)), outline(nn.Linear(2, 3)) == outline(nn.Linear(3, 3))
        (True, False)
    """
    lines = [f"{name} {type(module).__qualname__} {module.extra_repr()}" for name, module in network.named_modules()]
    lines += [f"{name} {tuple(parameter.shape)}" for name, parameter in network.named_parameters()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
