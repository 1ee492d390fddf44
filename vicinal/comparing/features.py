"""Features of frozen networks, computed once for all runs, and how long that takes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from vicinal.data import Dataset
from vicinal.embedder import Embedder
from vicinal.runs._train import fit
from vicinal.runs.build import build_embedder, train_transform
from vicinal.runs.recipe import Recipe
from vicinal.training.feature_cache import missing_features, usual_precision
from vicinal.training.frozen import FrozenEmbedder
from vicinal.training.state import Hook, TrainingState

__all__ = ["compute_features", "feature_seconds", "runs_seconds"]


# Frozen features, computed before the runs that share them start.


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


STEPS, SECONDS = 20, 3.0  # that are measured, whichever comes first, of all ways together
MOST = 6  # ways that are measured; others are taken to be as fast as these on average
IMAGES = 16


def feature_seconds(recipe: Recipe, data: Dataset, cache: Path | None) -> float:
    """Return how long the features of a frozen network take that are not kept yet; 0 for what is not frozen.

    Args:
        recipe: Of any run with that network.
        data: All that is compared on.
        cache: Where features are kept.
    """
    embedder = build_embedder(recipe, data)
    transform = train_transform(recipe, embedder)
    if not recipe.freeze or transform is None:
        return 0.0
    train, stages = recipe.split(data).train, 0 if recipe.freeze is True else recipe.train_stages or 0
    kept: dict[str, Any] = {"cache": cache, "train_stages": stages, "precision": usual_precision(stages)}
    missing = missing_features(embedder, data, embedder.transform, **kept)
    missing += missing_features(embedder, train, transform, copies=recipe.copies, **kept)
    return missing * _seconds_per_image(embedder, data) if missing else 0.0


def runs_seconds(
    recipes: Sequence[Recipe], data: Dataset, cache: Path | None, later: int = 0, *, jobs: int, threads: int
) -> float:
    """Return about how long runs take, some of them at a time: a few steps of each way are taken.

    Args:
        recipes: Of the runs.
        data: All that is compared on.
        cache: Where frozen features are kept; they should be there.
        later: How many more there will be.
        jobs: Runs at a time.
        threads: Of each.
    """
    import lightning_fabric  # noqa: F401  (takes seconds, which are no part of a run)

    ways = {_way(recipe): recipe for recipe in recipes}
    measured = list(ways.items())[:MOST]
    former = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        lasts = {way: _run_seconds(recipe, data, cache, SECONDS / len(measured)) for way, recipe in measured}
    finally:
        torch.set_num_threads(former)
    usual = sum(lasts.values()) / len(lasts)
    each = [lasts.get(_way(recipe), usual) for recipe in recipes] + [usual] * later
    return sum(each) / len(each) * math.ceil(len(each) / jobs)


def _way(recipe: Recipe) -> tuple[object, ...]:
    """What runs of about the same length have in common."""
    return recipe.method, recipe.batch, recipe.backbone, recipe.dim, recipe.training.steps


def _run_seconds(recipe: Recipe, data: Dataset, cache: Path | None, most: float) -> float:
    """Return about how long one run takes: a few of its steps are taken, and a few images embedded."""
    split, clock = recipe.split(data), _Clock()
    # Chance-constrained proxies need scores to move on by; a few steps of the loss alone take about as long.
    short = recipe.changed(steps=STEPS, seconds=most, evaluate_every=0, log_every=STEPS, ccp=None)
    view = replace(split.without_test(), validation=None)
    began = time.perf_counter()
    embedder = fit(view, short, hooks=[clock], cache=cache, progress=False)
    setting_up = time.perf_counter() - began - clock.seconds
    training = recipe.training
    if training.steps is None:
        return setting_up + (training.seconds or 0.0)
    seconds = training.steps * clock.seconds_per_step
    if not recipe.freeze and split.test is not None:
        evaluations = training.steps // training.evaluate_every if training.evaluate_every else 1
        scored = 0 if split.chooser is None else evaluations * len(split.chooser)
        seconds += (scored + len(split.test)) * _seconds_per_image(embedder, split.test)
    return setting_up + (seconds if training.seconds is None else min(seconds, training.seconds))


def _seconds_per_image(embedder: Embedder, data: Dataset) -> float:
    some = data.subset(np.linspace(0, len(data) - 1, min(IMAGES, len(data))).round().astype(np.int64))
    embedder.encode(some, engine="folded")  # the first time is no measure
    began = time.perf_counter()
    embedder.encode(some, engine="folded")
    return (time.perf_counter() - began) / len(some)


@final
class _Clock(Hook):
    """Notes when steps are taken."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def start(self, state: TrainingState) -> None:
        """Note when training begins."""
        self._times = [time.perf_counter()]

    def before_step(self, state: TrainingState) -> None:
        """Note a step."""
        self._times.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return self._times[-1] - self._times[0]

    @property
    def seconds_per_step(self) -> float:
        """The median; the first step, which is no measure, counts only where it is alone."""
        lasted = np.diff(self._times)
        return float(np.median(lasted[1:] if len(lasted) > 1 else lasted))
