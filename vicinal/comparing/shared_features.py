"""Frozen features, computed before the trials that share them start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vicinal.build import build_embedder, train_transform
from vicinal.data import Dataset
from vicinal.results import Trial
from vicinal.training.frozen_features import frozen_features

__all__ = ["compute_features"]


def compute_features(
    trials: Sequence[Trial], data: Dataset, *, cache: Path | None, workers: int, progress: bool
) -> None:
    """Put the features that trials with a frozen backbone need in the cache, once for all of them."""
    for trial in {trial.recipe.backbone: trial for trial in trials if trial.recipe.freeze}.values():
        embedder = build_embedder(trial.recipe, data)
        transform = train_transform(trial.recipe, embedder)
        if transform is None:
            continue
        split = trial.split(data)
        learnt = {*split.train.class_names, *(split.validation.class_names if split.validation else ())}
        pool = data.of_classes([at for at, name in enumerate(data.class_names) if name in learnt])
        frozen_features(
            embedder, pool, transform, copies=trial.recipe.copies, cache=cache, workers=workers, progress=progress
        )
        frozen_features(embedder, data, embedder.transform, cache=cache, workers=workers, progress=progress)
