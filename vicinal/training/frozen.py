"""An embedder with a frozen backbone or trunk: the frozen part is run once, and the rest is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from vicinal.backbones import channels_last, cut
from vicinal.data import Dataset
from vicinal.embedder import Embedder, Head
from vicinal.embedder.encode import BatchOptions, embed_in_batches
from vicinal.embedder.engines import EngineName
from vicinal.embedder.head import principal_axes
from vicinal.errors import InputError
from vicinal.training.feature_cache import Features, OneOf, Precision, frozen_features, usual_precision, with_features

__all__ = ["FrozenEmbedder", "Trainee", "TrainingItems", "start_at_principal_axes", "training_items"]


ROWS = 8192  # features that go through the head at a time


@final
@dataclass(frozen=True)
class _Source:
    """Source of the features of a frozen embedder. It is not a module, so that its embedder is not trained.

    Attributes:
        embedder: Complete embedder.
        train_stages: Number of its last stages that are trained; the features are their input.
        cache: Folder of cached features, by default the user's cache folder.
        workers: Number of processes that decode images.
        precision: Precision of the cached features.
        progress: Whether to show a bar while features are computed.
    """

    embedder: Embedder
    train_stages: int
    cache: Path | None
    workers: int
    precision: Precision
    progress: bool

    def features(self, data: Dataset, transform: Callable[..., Tensor] | None, copies: int = 1) -> Features:
        return frozen_features(
            self.embedder,
            data,
            transform,
            copies=copies,
            train_stages=self.train_stages,
            cache=self.cache,
            workers=self.workers,
            precision=self.precision,
            progress=self.progress,
        )


@final
class FrozenEmbedder(nn.Module):
    """An embedder that takes the cached output of its frozen part as input.

    Args:
        embedder: Embedder whose frozen first stages are the frozen part. The other stages and the head are part of this
            module, and trained in place.
        cache: Folder of cached features, by default the user's cache folder.
        workers: Number of processes that decode images.
        precision: Precision of the cached features; by default float32 for vectors and float16 for maps.
        progress: Whether to show a bar while features are computed.
        known: Function that returns the features of items if they are already computed.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        cache: Path | None = None,
        workers: int = 0,
        precision: Precision | None = None,
        progress: bool = True,
        known: Callable[[Dataset], Features] | None = None,
    ) -> None:
        super().__init__()
        self.train_stages = _trained_stages(embedder)
        precision = precision or usual_precision(self.train_stages)
        self._source = _Source(embedder, self.train_stages, cache, workers, precision, progress)
        self.rest = cut(embedder.backbone, self.train_stages)[1] if self.train_stages else nn.Identity()
        self.head = embedder.head
        self._known = known
        self._plain: WeakKeyDictionary[Dataset, Features] = WeakKeyDictionary()
        self.train(embedder.training)

    @property
    def distance(self) -> str:
        """Distance between its embeddings."""
        return self._source.embedder.distance

    @property
    def device(self) -> torch.device:
        """Device of the trained part."""
        return self._source.embedder.device

    def train(self, mode: bool = True) -> FrozenEmbedder:
        """Set training or evaluation mode, except for frozen parts."""
        super().train(mode)
        self._source.embedder.train(mode)
        return self

    def forward(self, features: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Return the embeddings of features [n, c] or maps [n, c, h, w]."""
        return self.head(self.rest(channels_last(features)))

    def unnormalised(self, features: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Return the embeddings before normalisation."""
        return self.head.unnormalised(self.rest(channels_last(features)))

    def encode(self, data: Dataset, *, engine: EngineName = "auto") -> Float32[np.ndarray, "n d"]:
        """Embed items by their features, in evaluation mode and without gradients.

        Args:
            data: Items to embed.
            engine: Engine of the trained stages, as in `Embedder.encode`; a head alone is one matrix product.
        """
        return self._embedded(data, self.head, engine)

    def pooled(self, data: Dataset, *, engine: EngineName = "auto") -> Float32[np.ndarray, "n c"]:
        """Return the pooled features of items, the input of the head."""
        channels = self._source.embedder.backbone.channels
        return self._embedded(data, Head(channels, None, pooling=self.head.pooling, normalisation="none"), engine)

    def features_of(self, data: Dataset, transform: Callable[..., Tensor] | None, copies: int) -> tuple[Dataset, OneOf]:
        """Return a dataset with the features of several versions of each item, and a transform that picks one."""
        features = self._source.features(data, transform, copies)
        return with_features(data, features), OneOf(copies, features.shape[2:])

    def _embedded(self, data: Dataset, head: Head, engine: EngineName) -> Float32[np.ndarray, "n d"]:
        if data not in self._plain:  # every evaluation needs the same features, and a lookup reads every item
            self._plain[data] = self._features(data)
        features = self._plain[data]
        parts = embed_in_batches(
            nn.Sequential(self.rest, head),
            len(features),
            lambda positions: torch.from_numpy(np.array(features[positions.start : positions.stop])).float(),
            options=BatchOptions(engine=engine)
            if self.train_stages
            else BatchOptions(batch_size=ROWS, workers=0, engine="eager"),
        )
        return np.concatenate([rows for _, rows in parts])

    def _features(self, data: Dataset) -> Features:
        if self._known is not None:
            return self._known(data)
        return self._source.features(data, self._source.embedder.transform)[:, 0]


def _trained_stages(embedder: Embedder) -> int:
    """Return the number of stages from the first that is not completely frozen."""
    stages = list(embedder.backbone.stages.values())
    for standing, names in enumerate(stages):
        if not set(names) <= set(embedder.frozen):
            if standing == 0:
                raise InputError("No stage of this embedder is frozen: call embedder.freeze(train_stages=...) first.")
            return len(stages) - standing
    return 0


Trainee = Embedder | FrozenEmbedder


class TrainingItems(NamedTuple):
    """Input of training: items, and the transform that turns an item into a tensor (None for vectors)."""

    data: Dataset
    transform: Callable[..., Tensor] | None


def training_items(
    model: Trainee, data: Dataset, transform: Callable[..., Tensor] | None, copies: int = 1
) -> TrainingItems:
    """Return the input of training: the items and their transform, or their features and a choice of copies."""
    if isinstance(model, FrozenEmbedder):
        return TrainingItems(*model.features_of(data, transform, copies))
    return TrainingItems(data, transform)


# Initialisation of the head: random, or the principal axes of its input features.


def start_at_principal_axes(model: Trainee, data: Dataset) -> None:
    """Initialise the head of a model with the mean and principal axes of features, so that training starts from PCA.

    Args:
        model: Model whose head has a linear map with a bias.
        data: Training items.
    """
    linear = model.head.linear
    if linear is None or linear.bias is None or linear.out_features > linear.in_features:
        size = "none" if linear is None else f"{linear.in_features} to {linear.out_features}"
        bias = "" if linear is None or linear.bias is not None else " without a bias"
        instead = "head_bias = true" if bias else "a smaller dim"
        raise InputError(
            "A head that starts at principal axes needs at most as many outputs as features, and a bias that centres "
            f"them; got {size}{bias}: use {instead}, or head_start = 'random'."
        )
    if isinstance(model, FrozenEmbedder):
        features = model.pooled(data, engine="folded")
    else:
        pooling, transform = model.head.pooling, model.transform
        bare = Embedder(model.backbone, dim=None, pooling=pooling, normalisation="none", transform=transform)
        features = bare.encode(data, engine="folded")
    principal = principal_axes(features, linear.out_features)
    axes = torch.from_numpy(principal.axes)
    with torch.no_grad():
        linear.weight.copy_(axes)
        linear.bias.copy_(-axes @ torch.from_numpy(principal.mean))
