"""Any network of the timm library, which is an extra."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, Input
from vicinal.backbones.layers import renormalise
from vicinal.errors import InputError, MissingExtra

__all__ = ["Timm", "timm"]


def timm(model: str, pretrained: bool = False) -> Timm:
    """Build a network of the timm library without its classifier.

    Args:
        model: timm's name of it, such as "vit_small_patch16_224".
        pretrained: Whether timm downloads its weights for it.
    """
    try:
        import timm as library
    except ImportError:
        raise MissingExtra("timm", f"The backbone timm:{model}") from None
    if ":" in model and not pretrained:  # timm would fetch its description
        raise InputError(f"timm's {model!r} lies on the hub: it is fetched with pretrained=True only.")
    try:
        network = library.create_model(model, pretrained=pretrained, num_classes=0)
    except RuntimeError as error:
        raise InputError(f"timm could not build {model!r}: {error}. timm.list_models() names what it has.") from None
    return Timm(network, library.data.resolve_model_data_config(network))


class Timm(Backbone):
    """A timm network, pooled by its own rule: images to vectors.

    Transformers and convolutional networks of timm arrange their features differently, so pooling
    is left to timm and the head receives vectors.
    """

    def __init__(self, network: Any, settings: dict[str, Any]) -> None:
        super().__init__()
        self.network: nn.Module = network
        self.mean: tuple[float, ...] = tuple(settings["mean"])
        self.std: tuple[float, ...] = tuple(settings["std"])
        self.channels = int(getattr(network, "head_hidden_size", network.num_features))
        side = int(settings["input_size"][-1])
        self.input = Input("imagenet", 3, size=side, short_side=round(side / settings["crop_pct"]))
        self.stages = {
            name: (f"network.{name}",)
            for name, child in network.named_children()
            if any(True for _ in child.parameters())
        }

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        """Return the pooled features."""
        return self.network(renormalise(images, self.mean, self.std))
