"""Frozen features, computed before the runs that share them start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vicinal.build import build_embedder, train_transform
from vicinal.data import Dataset
from vicinal.recipe import Recipe
from vicinal.training.frozen import FrozenEmbedder

__all__ = ["compute_features"]


def compute_features(
    recipes: Sequence[Recipe], data: Dataset, *, cache: Path | None, workers: int, progress: bool
) -> None:
    """Put the features that runs with a frozen backbone need in the cache, once for all of them."""
    for recipe in {recipe.backbone: recipe for recipe in recipes if recipe.freeze}.values():
        embedder = build_embedder(recipe, data)
        transform = train_transform(recipe, embedder)
        if transform is None:
            continue
        split = recipe.split(data)
        learnt = {*split.train.class_names, *(split.validation.class_names if split.validation else ())}
        pool = data.of_classes([label for label, name in enumerate(data.class_names) if name in learnt])
        frozen = FrozenEmbedder(embedder, cache=cache, workers=workers, progress=progress)
        frozen.features_of(pool, transform, recipe.copies)
        frozen.features_of(data, embedder.transform, 1)
