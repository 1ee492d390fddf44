"""An embedder whose backbone stands still: its features are computed once, and only the head is run and trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from vicinal.data import Dataset
from vicinal.embedder import Embedder
from vicinal.embedder.engines import EngineName
from vicinal.training.frozen_features import OneOf, frozen_features, with_features

__all__ = ["FrozenEmbedder", "Trainee", "training_items"]

ROWS = 8192  # features that go through the head at a time


@final
class FrozenEmbedder(nn.Module):
    """Works as an embedder does, on features of its backbone that are kept on disk.

    Args:
        embedder: Its head is the only part that is trained.
        cache: Where features are kept, by default the user's cache folder.
        workers: Processes that decode.
        progress: Whether to show a bar while features are computed.
    """

    def __init__(
        self, embedder: Embedder, *, cache: Path | None = None, workers: int = 0, progress: bool = True
    ) -> None:
        super().__init__()
        self.head = embedder.head
        self._whole = (embedder,)  # in a tuple, so that its backbone is no part of this module
        self._options: dict[str, Any] = {"cache": cache, "workers": workers, "progress": progress}
        self._plain: WeakKeyDictionary[Dataset, npt.NDArray[np.float32]] = WeakKeyDictionary()

    @property
    def distance(self) -> str:
        """How its embeddings are compared."""
        return self._whole[0].distance

    @property
    def device(self) -> torch.device:
        """Where the head is."""
        return self._whole[0].device

    def forward(self, features: Float[Tensor, "n c"]) -> Float[Tensor, "n d"]:
        """Return the embeddings of features."""
        return self.head(features)

    def unnormalised(self, features: Float[Tensor, "n c"]) -> Float[Tensor, "n d"]:
        """Return what `forward` normalises."""
        return self.head.unnormalised(features)

    def encode(self, data: Dataset, *, engine: EngineName = "auto") -> Float32[np.ndarray, "n d"]:
        """Embed items by their features, in evaluation mode and without gradients.

        Args:
            data: The items.
            engine: For an embedder as a whole; what is left here is one product of matrices.
        """
        if data not in self._plain:  # every evaluation asks for the same ones, and looking them up reads every item
            self._plain[data] = frozen_features(self._whole[0], data, self._whole[0].transform, **self._options)[:, 0]
        features = self._plain[data]
        was_training = self.training
        self.eval()
        with torch.inference_mode():
            parts = [
                self.head(torch.from_numpy(np.array(features[first : first + ROWS])).to(self.device)).float().cpu()
                for first in range(0, len(features), ROWS)
            ]
        self.train(was_training)
        return torch.cat(parts).numpy()

    def features_of(self, data: Dataset, transform: Callable[..., Tensor] | None, copies: int) -> Dataset:
        """Return a dataset whose items are the features of several versions of each item."""
        return with_features(data, frozen_features(self._whole[0], data, transform, copies=copies, **self._options))


Trainee = Embedder | FrozenEmbedder


def training_items(
    model: Trainee, data: Dataset, transform: Callable[..., Tensor] | None, copies: int = 1
) -> tuple[Dataset, Callable[..., Tensor] | None]:
    """Return what a model is trained on: the items and their transform, or their features and a choice among copies."""
    if isinstance(model, FrozenEmbedder):
        return model.features_of(data, transform, copies), OneOf(copies)
    return data, transform
