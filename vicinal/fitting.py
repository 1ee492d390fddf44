"""From a split to a trained embedder."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from vicinal.build import build_criterion, build_embedder, build_sampler, train_transform
from vicinal.data import Dataset, Split
from vicinal.embedder import Card, Embedder
from vicinal.errors import InputError, look_up
from vicinal.evaluation import class_distances, covering_radius, evaluate
from vicinal.recipe import Recipe, recipe_from, recipe_toml
from vicinal.training.ccp import ChanceConstrainedProxies
from vicinal.atomic import write_atomically
from vicinal.training.engine import LAST, Outcome, train
from vicinal.training.frozen_features import OneOf, frozen_features, with_features
from vicinal.training.proxy_pool import embed_pool
from vicinal.training.processes import start_processes
from vicinal.training.stream import Stream

__all__ = ["fit"]

METRICS = ("P@1", "P@R", "MAP@R")


def fit(
    split: Split,
    recipe: Recipe | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    workers: int = 0,
    skip_bad: bool = False,
    cache: Path | None = None,
    progress: bool = True,
    tensorboard: bool = False,
    on_score: Callable[[int, dict[str, float]], None] | None = None,
    **changes: Any,
) -> Embedder:
    """Train an embedder on the training classes of a split and choose its best step on the validation classes.

    Args:
        split: Classes to train on and to choose by; without validation classes the last step is kept. The test classes
            are never looked at.
        recipe: What to train, by default a small network with the multi-similarity loss.
        folder: Where the run goes (recipe, log, checkpoints, record, model); None keeps nothing on disk.
        resume: Go on with the run in that folder, bit for bit as if it had never stopped.
        workers: Processes that decode images.
        skip_bad: Leave out images that cannot be read instead of stopping.
        cache: Where frozen features are kept, by default the user's cache folder.
        progress: Whether to show progress.
        tensorboard: Whether to write TensorBoard events.
        on_score: Told the step and its validation scores after every evaluation; what it raises ends the training.
        **changes: Names of a recipe or of its training settings, on top of it: `loss="triplet", dim=64, steps=500`.

    Returns:
        The embedder with its best weights, in evaluation mode.

    Example:
        >>> from vicinal.data import digits
        >>> from vicinal.data.splits import split
        >>> embedder = fit(split(digits(), "fixed-validation", validation=0.4), steps=5, progress=False,
        ...                classes_per_batch=3, evaluate_every=5, dim=8)
        >>> embedder.dim
        8
    """
    recipe = recipe_from(changes, recipe)
    settings = recipe.training
    look_up("metric", settings.metric, dict.fromkeys(METRICS))
    data, validation = split.train, split.validation
    fabric = start_processes(settings)
    embedder = build_embedder(recipe, data).to(fabric.device)
    criterion = build_criterion(recipe, data, embedder.dim)
    sampler = build_sampler(recipe, data)
    transform = train_transform(recipe, embedder)
    run = None if folder is None else Path(folder)
    if run is not None and fabric.is_global_zero:
        _open_run(run, recipe, resume)

    model: nn.Module = embedder
    metric = embedder.distance
    plain_pool = recipe.ccp is not None and recipe.ccp.pool_images == "plain"
    pool_data, pool_transform = data, embedder.transform if plain_pool else transform
    if recipe.freeze and transform is not None:
        kept: dict[str, Any] = {"cache": cache, "workers": workers, "progress": progress}
        with fabric.rank_zero_first(local=True):  # the others find what the first has computed
            augmented = frozen_features(embedder, data, transform, copies=recipe.copies, **kept)
            if validation is not None:
                plain = frozen_features(embedder, validation, embedder.transform, **kept)
                validation = with_features(validation, plain)
            if plain_pool:
                pool_data = with_features(data, frozen_features(embedder, data, embedder.transform, **kept))
        data, transform, model = with_features(data, augmented), OneOf(recipe.copies), embedder.head
        pool_data, pool_transform = (pool_data, None) if plain_pool else (data, transform)
        workers = 0

    def embed(network: nn.Module, items: Dataset) -> npt.NDArray[np.float32]:
        if network is embedder:
            return embedder.encode(items)
        network.eval()
        first_copy = torch.from_numpy(np.array(items.items))[:, : embedder.backbone.channels]
        with torch.inference_mode():
            return network(first_copy.to(embedder.device)).cpu().numpy()

    def score(network: nn.Module, items: Dataset) -> dict[str, float]:
        embeddings = embed(network, items)
        found = evaluate(embeddings, items.labels, full_ranking=False, draws=0, metric=metric)
        scores = {name: found[name] for name in METRICS}
        if recipe.ccp is not None:
            scores["covering radius"] = covering_radius(embeddings, items.labels, metric=metric)
            scores["inter-class distance"] = class_distances(embeddings, items.labels, metric=metric)[0]
        return scores

    stream = Stream(
        data,
        transform,
        sampler,
        workers=workers,
        seed=settings.seed,
        skip_bad=skip_bad,
        embed=lambda network: torch.from_numpy(embed(network, data)),
    )
    ccp = None
    if recipe.ccp is not None:
        size, drawn = recipe.ccp.pool_size, dict[str, Any](workers=workers, skip_bad=skip_bad)
        ccp = ChanceConstrainedProxies(
            recipe.ccp,
            lambda network, instance: embed_pool(
                embedder, network, pool_data, pool_transform, size, seed=(settings.seed, instance), **drawn
            ),
            min_improvement=settings.min_improvement,
        )
    outcome = train(
        model,
        criterion,
        stream,
        settings,
        score=None if validation is None else lambda network: score(network, validation),
        on_score=on_score,
        ccp=ccp,
        folder=run,
        resume=resume,
        progress=progress,
        tensorboard=tensorboard,
        fabric=fabric,
    )
    embedder.eval()
    record = _record(split, recipe, outcome) | ({} if ccp is None else {"instances": ccp.history})
    embedder.card = _card(split, recipe, record)
    if run is not None and fabric.is_global_zero:
        embedder.save(run / "model")
        write_atomically(run / "record.json", json.dumps(record, indent=2) + "\n")
    return embedder


def _open_run(run: Path, recipe: Recipe, resume: bool) -> None:
    """Make the folder of a run; refuse to mix two runs in one."""
    started = (run / "recipe.toml").exists() or (run / LAST).exists()
    if started and not resume:
        raise InputError(f"{run} holds a run already: give --resume to go on with it, or another folder.")
    text = recipe_toml(recipe)
    if started and _text(run / "recipe.toml") != text:
        raise InputError(
            f"{run} was started with another recipe than this one: resume with the same settings (they are in "
            f"{run / 'recipe.toml'}), or start a new run in another folder."
        )
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot make the run's folder {run}: {error.strerror}.") from None
    write_atomically(run / "recipe.toml", text)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _card(split: Split, recipe: Recipe, record: dict[str, Any]) -> Card:
    return Card(
        title=f"{recipe.backbone} trained with {recipe.loss} on {split.train.name}",
        data={
            "dataset": split.train.name,
            "classes": len(split.train.classes),
            "items": len(split.train),
            "protocol": split.protocol,
            "split": record["split"],
        },
        recipe=recipe_toml(recipe),
        scores={f"{name} (validation)": value for name, value in record["validation"].items()},
    )


def _record(split: Split, recipe: Recipe, outcome: Outcome) -> dict[str, Any]:
    return {
        "schema": 1,
        "protocol": split.protocol,
        "seed": split.seed,
        "fold": split.fold,
        "split": split.hash(),
        "recipe": recipe.model_dump(),
        "step": outcome.step,
        "best_step": outcome.best_step,
        "validation": {} if math.isnan(outcome.best_score) else {recipe.training.metric: outcome.best_score},
        "seconds": outcome.seconds,
        "versions": {name: version(name) for name in ("vicinal", "torch", "numpy", "lightning-fabric")}
        | {"python": platform.python_version()},
    }
