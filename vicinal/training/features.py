"""Frozen features: computed once, kept on disk by content, so that heads train on them in seconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from vicinal.cache import cache_folder
from vicinal.data import Dataset, batches, describe
from vicinal.embedder import Embedder
from vicinal.errors import DataError
from vicinal.training.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["OneOf", "cache_folder", "frozen_features", "with_features"]


def frozen_features(
    embedder: Embedder,
    data: Dataset,
    transform: Callable[..., Tensor] | None,
    *,
    copies: int = 1,
    cache: Path | None = None,
    batch_size: int = 32,
    workers: int = 0,
    progress: bool = True,
) -> npt.NDArray[np.float32]:
    """Return the pooled features of every item, several times where the transform is random.

    The features of a class are a file named by the hash of all that they depend on (items, weights, transform,
    pooling), written when it is complete: an interrupted run goes on with the class it was at, and every loss, seed
    and split of the same data finds them.

    Args:
        embedder: Its backbone and pooling are used, its head is not.
        data: The items.
        transform: From an item to a tensor.
        copies: How many random versions of each item.
        cache: Where to keep them, by default `cache_folder()`.
        batch_size: Items per forward pass.
        workers: Processes that decode.
        progress: Whether to show a bar.

    Returns:
        Features of shape [items, copies, channels].
    """
    folder = (cache or cache_folder()) / "features"
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "backbone": [embedder.name, embedder.options],
        "weights": _hash_of_weights(embedder.backbone),
        "transform": None if transform is None else describe(transform),  # type: ignore[arg-type]
        "pooling": embedder.head.pooling,
    }
    found = np.empty((len(data), copies, embedder.backbone.channels), dtype=np.float32)
    shown = track(data.classes, f"features of {data.name}", console=Console(stderr=True), disable=not progress)
    for label in shown:
        items = data.of_classes([int(label)])
        for copy in range(copies):
            key = json.dumps({**about, "items": items.hash(), "copy": copy})
            path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"
            try:
                features = load_checkpoint(path)["features"]
            except DataError:  # not there yet, or damaged
                features = _compute(embedder, items, transform, batch_size, workers, copy)
                save_checkpoint(path, {"features": features})
            found[data.labels == label, copy] = features.numpy()
    return found


def with_features(data: Dataset, features: npt.NDArray[np.float32]) -> Dataset:
    """Return the dataset with the items replaced by their features, all copies of an item side by side."""
    return replace(data, items=features.reshape(len(features), -1), boxes=None)


@final
@dataclass(frozen=True)
class OneOf:
    """Picks one of an item's copies at random: the transform of a dataset made by `with_features`."""

    copies: int

    def __call__(self, vector: npt.NDArray[np.float32], rng: np.random.Generator) -> Tensor:
        """Return one copy."""
        return self.rows(vector[None], rng)[0]

    def rows(self, vectors: npt.NDArray[np.float32], rng: np.random.Generator) -> Tensor:
        """Return one copy of each of several items."""
        chosen = rng.integers(self.copies, size=len(vectors))
        return torch.from_numpy(vectors.reshape(len(vectors), self.copies, -1)[np.arange(len(vectors)), chosen])


@torch.inference_mode()
def _compute(
    embedder: Embedder,
    items: Dataset,
    transform: Callable[..., Tensor] | None,
    batch_size: int,
    workers: int,
    seed: int,
) -> Tensor:
    plan = [np.arange(first, min(first + batch_size, len(items))) for first in range(0, len(items), batch_size)]
    was_training = embedder.training
    embedder.eval()
    found = torch.empty(len(items), embedder.backbone.channels)
    for batch in batches(items, transform, plan, workers=workers, seed=seed):
        found[batch.indices] = embedder.features(batch.images.to(embedder.device)).float().cpu()
    embedder.train(was_training)
    return found


def _hash_of_weights(module: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
