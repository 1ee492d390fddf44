"""Custom networks as backbones: any `torch.nn.Module`, with its input inferred from its first layer.

One forward pass determines the size of its output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal._util.code import name_of, works_elsewhere
from vicinal.backbones.backbone import Backbone, Input, Pixels
from vicinal.errors import InputError

__all__ = ["OwnNetwork", "as_backbone", "rebuilt_by"]

SIZES = (224, 128, 96, 64, 32, 28)  # image sizes that are tried in this order if none is given


def as_backbone(network: nn.Module, input: Input | Mapping[str, Any] | None = None) -> Backbone:
    """Return any network as a backbone; a backbone is returned unchanged.

    Args:
        network: Network from images [n, c, h, w] to feature maps or vectors, or from vectors to vectors.
        input: Input that it expects, as `Input` or as a table with some of its fields: `{"size": 64}`. Missing fields
            come from the network's attribute `input`, or from its first layer: images with ImageNet normalisation for
            three channels, grey ones from 0 to 1 for one channel, of the first size that the network accepts.

    Example:
        >>> backbone = as_backbone(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), {"size": 32})
        >>> backbone.channels, backbone.input
        (8, Input(pixels='imagenet', channels=3, size=32, short_side=None, resampling='bilinear'))
    """
    if isinstance(network, Backbone):
        return network
    if not isinstance(network, nn.Module):
        raise InputError(f"A network is a torch.nn.Module, or a function that returns one; got {network!r}.")
    fields = _fields(getattr(network, "input", None)) | _fields(input)
    if {"channels", "pixels"} - fields.keys():
        fields = _first_layer(network) | fields
    if fields["pixels"] is not None and "size" not in fields:
        fields["size"] = _accepted_size(network, fields["channels"])
    return OwnNetwork(network, Input(**fields))


def rebuilt_by(backbone: Backbone) -> tuple[str, dict[str, Any]]:
    """Return the name and options that rebuild a backbone that was passed as an object.

    Raises:
        InputError: If its class cannot be imported, needs arguments, or builds a different network without them.
    """
    network = backbone.network if isinstance(backbone, OwnNetwork) else backbone
    maker = type(network)
    name = name_of("backbone", maker, {})
    shapes = {key: tensor.shape for key, tensor in network.state_dict().items()}
    try:
        with torch.device("meta"):
            same = {key: tensor.shape for key, tensor in maker().state_dict().items()} == shapes
    except Exception:  # most often it needs arguments
        same = False
    if not same or not works_elsewhere(name):
        raise InputError(
            f"This {maker.__name__} was built elsewhere and cannot be built again by its name alone, so that it cannot "
            f"be saved. Define it at the top of a file and pass the class with its options: "
            f"Embedder({maker.__name__}, options={{...}}), or fit(..., backbone={maker.__name__}, "
            "backbone_options={...})."
        )
    return name, {"input": asdict(backbone.input)} if isinstance(backbone, OwnNetwork) else {}


class OwnNetwork(Backbone):
    """A custom network with the attributes of a backbone."""

    def __init__(self, network: nn.Module, expects: Input) -> None:
        super().__init__()
        self.network = network
        self.input = expects
        self.channels = _tried(network, expects.channels, expects.size).shape[1]
        children = {
            name: (f"network.{name}",)
            for name, child in network.named_children()
            if any(True for _ in child.parameters())
        }
        direct = any(
            True for _ in network.parameters(recurse=False)
        )  # parameters in no child, which stages of children would miss
        self.stages = {"network": ("network",)} if direct or not children else children

    def forward(self, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Return the output of the network for images or vectors."""
        return self.network(inputs)


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, Input):
        return asdict(value)
    if not isinstance(value, Mapping):
        return {}
    names = Input.__dataclass_fields__
    whole = all(isinstance(value[name], int) for name in ("channels", "size") if name in value)
    if set(value) - set(names) or not whole or value.get("pixels", "unit") not in (*get_args(Pixels), None):
        raise InputError(
            f"input of a network is a table with some of {', '.join(names)} (pixels: one of "
            f"{', '.join(get_args(Pixels))}); got {dict(value)}."
        )
    return dict(value)


def _first_layer(network: nn.Module) -> dict[str, Any]:
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            return {"pixels": "imagenet" if layer.in_channels == 3 else "grey", "channels": layer.in_channels}
        if isinstance(layer, nn.Linear):
            return {"pixels": None, "channels": layer.in_features}
    raise InputError(
        f"{type(network).__name__} starts with neither a convolution nor a linear layer, so its input is unknown: "
        "give it an attribute such as input = vicinal.backbones.Input('imagenet', channels=3, size=224)."
    )


def _accepted_size(network: nn.Module, channels: int) -> int:
    for size in SIZES:
        try:
            _tried(network, channels, size)
        except InputError:
            continue
        return size
    raise InputError(
        f"{type(network).__name__} accepts none of the image sizes {', '.join(map(str, SIZES))}: set the size in a "
        "recipe with backbone_options = {input = {size = 48}}, or with an attribute of the network."
    )


def _tried(network: nn.Module, channels: int, size: int) -> Tensor:
    """Return the output for two blank items; the network is not changed."""
    parameter = next(network.parameters(), torch.zeros(()))
    shape = (2, channels, size, size) if size else (2, channels)
    modes = {module: module.training for module in network.modules()}
    network.eval()  # batch norm must not learn from them
    try:
        with torch.no_grad():
            output = network(torch.zeros(shape, device=parameter.device, dtype=parameter.dtype))
    except Exception as error:
        raise InputError(
            f"{type(network).__name__} cannot be run on inputs of shape {list(shape)}: {type(error).__name__}: {error}"
        ) from None
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not isinstance(output, Tensor) or output.ndim not in (2, 4) or math.prod(output.shape) == 0:
        got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"{type(network).__name__} must return vectors [n, d] or feature maps [n, c, h, w], one for each input; "
            f"for inputs of shape {list(shape)} it returned {got}."
        )
    return output
