"""Feature vectors: the backbone that leaves everything to the head."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from vicinal.backbones.backbone import Backbone, Input
from vicinal.errors import InputError

__all__ = ["Linear", "linear"]


def linear(features: int) -> Linear:
    """Build the backbone for feature vectors; with the head's linear map the embedder is linear.

    Args:
        features: Length of the vectors.
    """
    return Linear(features)


class Linear(Backbone):
    """Pass vectors on unchanged, once their length is checked: the head is the linear map."""

    def __init__(self, features: int) -> None:
        super().__init__()
        if features < 1:
            raise InputError(f"The linear backbone needs vectors of at least 1 feature; got features={features}.")
        self.channels = features
        self.input = Input(None, channels=features)
        self.stages = {}

    def forward(self, vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return the vectors."""
        if vectors.shape[1] != self.channels:
            raise InputError(f"This embedder takes vectors of {self.channels} features; got {vectors.shape[1]}.")
        return vectors
