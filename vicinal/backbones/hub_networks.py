"""Networks of the Hugging Face hub by short names, with what one wants to know before fetching one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HUB_NETWORKS", "HubNetwork"]


@dataclass(frozen=True)
class HubNetwork:
    """A network that the backbone "transformers" fetches by a short name.

    Attributes:
        repository: Where it is on the hub.
        licence: Of its weights. "DINOv3" has to be accepted on its page before the hub hands them out.
        size: Height and width of the images that it takes.
        features: Length of its feature vectors.
        millions: Of parameters, of the part that sees images.
    """

    repository: str
    licence: str
    size: int
    features: int
    millions: int


HUB_NETWORKS: dict[str, HubNetwork] = {
    "dinov2-small": HubNetwork("facebook/dinov2-small", "Apache-2.0", 224, 384, 22),
    "dinov2-base": HubNetwork("facebook/dinov2-base", "Apache-2.0", 224, 768, 87),
    "dinov2-large": HubNetwork("facebook/dinov2-large", "Apache-2.0", 224, 1024, 304),
    "dinov3-small": HubNetwork("facebook/dinov3-vits16-pretrain-lvd1689m", "DINOv3", 224, 384, 22),
    "dinov3-base": HubNetwork("facebook/dinov3-vitb16-pretrain-lvd1689m", "DINOv3", 224, 768, 86),
    "dinov3-convnext-tiny": HubNetwork("facebook/dinov3-convnext-tiny-pretrain-lvd1689m", "DINOv3", 224, 768, 28),
    "siglip-base": HubNetwork("google/siglip-base-patch16-224", "Apache-2.0", 224, 768, 93),
    "siglip-so400m": HubNetwork("google/siglip-so400m-patch14-384", "Apache-2.0", 384, 1152, 428),
    "siglip2-base": HubNetwork("google/siglip2-base-patch16-224", "Apache-2.0", 224, 768, 93),
    "vit-base": HubNetwork("google/vit-base-patch16-224-in21k", "Apache-2.0", 224, 768, 86),
    "convnext-tiny": HubNetwork("facebook/convnext-tiny-224", "Apache-2.0", 224, 768, 28),
}
