"""Features of frozen networks, computed once before the runs that share them, with an estimate of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vicinal.comparing.baselines import UntrainedNetworks
from vicinal.comparing.plan import Splits
from vicinal.comparing.progress import features_in_words
from vicinal.data import Dataset, describe
from vicinal.embedder import Embedder
from vicinal.runs.build import train_transform
from vicinal.runs.recipe import Recipe
from vicinal.training.feature_cache import frozen_features, missing_features, usual_precision
from vicinal.training.frozen import FrozenEmbedder

__all__ = ["compute_features", "feature_seconds"]


def compute_features(
    recipes: Sequence[Recipe],
    data: Dataset,
    networks: UntrainedNetworks,
    splits: Splits,
    *,
    cache: Path | None,
    workers: int,
    say: Callable[[str], None] | None,
) -> None:
    """Compute the features that runs with a frozen backbone need, and cache them for all runs.

    Args:
        recipes: Recipes of the runs.
        data: The whole dataset.
        networks: Untrained networks that the runs start from.
        splits: Splits of all seeds and folds.
        cache: Folder of cached features.
        workers: Number of processes that decode images.
        say: Callback that receives the time estimate; None shows no progress.
    """
    for recipe in {recipe.network: recipe for recipe in reversed(recipes) if recipe.freeze}.values():
        network = networks.of(recipe)
        transform = train_transform(recipe, network.embedder)
        if transform is None:
            continue
        split = splits.of(recipe)
        learnt = {*split.train.class_names, *(split.validation.class_names if split.validation else ())}
        pool = data.of_classes([label for label, name in enumerate(data.class_names) if name in learnt])
        frozen = FrozenEmbedder(network.plain, cache=cache, workers=workers, progress=say is not None)
        if say is not None and (seconds := feature_seconds(network.plain, data, pool, transform, recipe, cache)):
            say(features_in_words(seconds))
        frozen.features_of(pool, transform, recipe.copies)
        frozen.features_of(data, network.plain.transform, 1)


TIMED = 64  # fewest images to time


def feature_seconds(
    embedder: Embedder,
    data: Dataset,
    pool: Dataset,
    transform: Callable[..., Tensor],
    recipe: Recipe,
    cache: Path | None,
) -> float:
    """Estimate the time to compute the uncached features of a frozen network; 0 if few or none are missing.

    The first features are computed, cached and timed, so that no image is read only for the estimate.

    Args:
        embedder: Network, frozen as in the recipe.
        data: Whole dataset, which goes through the embedder's own transform.
        pool: Items of the training classes.
        transform: Transform of training images.
        recipe: Recipe of any run with that network.
        cache: Folder of cached features.
    """
    stages = 0 if recipe.freeze is True else recipe.train_stages or 0
    settings: dict[str, Any] = {"cache": cache, "train_stages": stages, "precision": usual_precision(stages)}
    plain = embedder.transform
    absent = np.unique(data.labels[missing_features(embedder, data, plain, **settings)]).tolist()
    first, timed = absent[:1], _with_items(data, absent[1:], TIMED)
    if not timed:
        return 0.0
    missing = len(data.of_classes(absent))
    if recipe.copies > 1 or describe(transform) != describe(plain):  # type: ignore[arg-type]
        missing += len(missing_features(embedder, pool, transform, copies=recipe.copies, **settings))
    seconds = 0.0
    for classes in (first, timed):  # the first pass is a warm-up
        began = time.perf_counter()
        frozen_features(embedder, data.of_classes(classes), plain, progress=False, **settings)
        seconds = time.perf_counter() - began
    done, measured = len(data.of_classes([*first, *timed])), len(data.of_classes(timed))
    return (missing - done) * seconds / measured


def _with_items(data: Dataset, classes: Sequence[int], items: int) -> list[int]:
    """Return the first classes that together have at least `items` items."""
    sizes = np.cumsum([len(data.members(label)) for label in classes])
    return list(classes[: int(np.searchsorted(sizes, items)) + 1])
