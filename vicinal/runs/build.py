"""Builders of the embedder, the criterion and the sampler of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._util.code import is_code
from vicinal.criterion import Criterion, Learned, is_number
from vicinal.data import PIPELINES, Dataset, pipeline
from vicinal.distributed import world_size
from vicinal.embedder import Embedder
from vicinal.embedder.lora import add_lora
from vicinal.errors import InputError, look_up
from vicinal.mining import find_miner
from vicinal.objectives import find_objective
from vicinal.references import Batch, Cover, Hierarchy, Memory, OneHot, Proxies
from vicinal.runs.recipe import Recipe
from vicinal.sampling import SAMPLERS, Sampler, batch_that_fits

__all__ = [
    "build_criterion",
    "build_embedder",
    "build_sampler",
    "groups_that_fit",
    "train_transform",
    "with_fitting_batches",
]

SMALLEST_PHOTOGRAPH = 128  # pixels: smaller images get a light affine map instead of random crops


def build_embedder(recipe: Recipe, data: Dataset) -> Embedder:
    """Return an untrained embedder for the items of a dataset, frozen as the recipe says."""
    options = dict(recipe.backbone_options)
    if is_code(recipe.backbone):
        if data.kind == "images":
            options["input"] = {"size": int(data.items.shape[1]), **options.get("input", {})}  # type: ignore[union-attr]
    elif data.kind == "vectors":
        if recipe.backbone != "linear":
            raise InputError(
                f"{data.name} holds feature vectors; backbone {recipe.backbone!r} takes images: use backbone='linear'."
            )
        options.setdefault("features", data.items.shape[1])  # type: ignore[union-attr]
    elif recipe.backbone == "linear":
        raise InputError(
            f"{data.name} holds images, and backbone 'linear' takes feature vectors: use 'convnet' or another."
        )
    on_simplex = recipe.traits.usual == "one_hot"  # such losses take class probabilities
    torch.manual_seed(recipe.training.seed)
    embedder = Embedder(
        recipe.backbone,
        dim=len(data.classes) if on_simplex else recipe.dim,
        pooling=recipe.pooling,
        normalisation="softmax" if on_simplex else recipe.normalisation or "none",
        bias=recipe.head_bias,
        weights=recipe.weights,
        options=options,
        allow_code=recipe.trust.sources,
    )
    embedder.random_head = False  # it is about to be trained
    if recipe.start is not None:
        former = Embedder.load(recipe.start, allow_code=recipe.trust.sources)
        try:
            embedder.load_state_dict(former.state_dict())
        except RuntimeError:
            raise InputError(
                f"The embedder in {recipe.start} is a {former.name} with {former.dim} dimensions, which does not fit a "
                f"{recipe.backbone} with {embedder.dim}: use the same backbone, dim and pooling."
            ) from None
    stages = 0 if recipe.freeze is True else recipe.train_stages
    if recipe.freeze == "trunk":
        names = list(embedder.backbone.stages)
        if embedder.backbone.input.pixels is None:
            raise InputError(
                "freeze = 'trunk' is for networks of images; feature vectors have no stages before the head."
            )
        if stages is None or not 0 < stages < len(names):
            raise InputError(
                f"freeze = 'trunk' needs train_stages, the number of last stages to train, 1 to {len(names) - 1} "
                f"of {', '.join(names)}; got {recipe.train_stages}. To train only the head use freeze = true, "
                "to train the whole network freeze = false."
            )
    embedder.freeze(train_stages=stages, batch_norm=recipe.freeze_batch_norm)
    if recipe.lora_rank is not None:
        if recipe.freeze:
            raise InputError("lora_rank trains the network and freeze does not: use only one of them.")
        add_lora(embedder.backbone, recipe.lora_rank)
    return embedder


def build_criterion(recipe: Recipe, data: Dataset, dim: int) -> Criterion:
    """Return the loss of a recipe, with references for the dataset's classes."""
    traits = recipe.traits
    references: list[nn.Module | tuple[nn.Module, float]] = [Batch()]
    if recipe.ccp is not None:
        references = [
            Proxies(
                len(data.classes),
                dim,
                per_class=recipe.ccp.proxies_per_class,
                learning_rate_multiplier=recipe.ccp.proxy_multiplier,
                seed=recipe.training.seed,
            )
        ]
        if recipe.ccp.pair_weight and "batch" in traits.references:
            references.append((Batch(), recipe.ccp.pair_weight))
    elif traits.usual == "proxies":
        references = [
            Proxies(
                len(data.classes),
                dim,
                per_class=recipe.proxies_per_class,
                learning_rate_multiplier=recipe.proxy_multiplier,
                seed=recipe.training.seed,
            )
        ]
    elif traits.usual == "one_hot":
        references = [OneHot(len(data.classes))]
    if recipe.hierarchy:
        references.append((_hierarchy(recipe, references[0]), recipe.hierarchy_weight))
    if recipe.cover:
        references.append(Cover(len(data.classes), dim, per_class=recipe.cover))
    memory = Memory(recipe.memory, dim, start=recipe.memory_start) if recipe.memory else None
    if memory is not None and "memory" in traits.references:
        references.append(memory)
    lengths: dict[str, Any] = {}
    if recipe.normalisation != "sphere":
        # Lengths matter here, and cosines ignore them.
        geometry = "dot" if traits.geometry == "cosine" else traits.geometry
        lengths = {"normalise": recipe.normalisation or "none", "geometry": geometry}
    criterion = Criterion(
        find_objective(recipe.loss, recipe.trust),
        references=references,
        mining=None if recipe.mining is None else find_miner(recipe.mining, recipe.trust),
        mining_options=recipe.mining_options,
        past_anchors=None if "memory" in traits.references else memory,
        prefixes=recipe.prefixes,
        seed=recipe.training.seed,
        **lengths,
        **{name: _option(name, value, len(data.classes)) for name, value in recipe.loss_options.items()},
    )
    if data.has_sets:
        if recipe.ccp is not None or recipe.cover:
            raise InputError(
                "ccp and cover select points of each class and need one label per item; got sets of labels."
            )
        criterion.check_takes_sets()
    return criterion


def _option(name: str, value: Any, classes: int) -> Any:
    """Return an option of a loss; a table with a `start` is a learned option, for all classes or per class."""
    if name == "regularisers" or not isinstance(value, Mapping):  # names and weights of added terms
        return value
    start, per_class, multiplier = value.get("start"), value.get("per_class", False), value.get("multiplier", 1.0)
    plain = is_number(start) and is_number(multiplier) and multiplier > 0 and isinstance(per_class, bool)
    if not plain or set(value) - {"start", "per_class", "multiplier"}:
        raise InputError(
            f"{name} must be a number, or a table to learn it: {name} = {{start = 1.2}}, with the options "
            "per_class = true for one value per class, and multiplier for its learning rate over that of the network; "
            f"got {dict(value)}."
        )
    return Learned(float(start), classes=classes if per_class else None, multiplier=float(multiplier))  # type: ignore[arg-type]


def _hierarchy(recipe: Recipe, proxies: Any) -> Hierarchy:
    """Return the groups of a recipe's proxies."""
    if not isinstance(proxies, Proxies):
        raise InputError(
            f"hierarchy groups proxies, and {recipe.loss} has none: use it with proxy_anchor, for example."
        )
    return Hierarchy(proxies, groups_that_fit(recipe.hierarchy, proxies.classes), seed=recipe.training.seed)


def groups_that_fit(wanted: int, classes: int) -> int:
    """Return the number of groups of classes: as many as wanted, but at most half the number of classes.

    Example:
        >>> groups_that_fit(25, classes=100), groups_that_fit(25, classes=5)
        (25, 2)
    """
    return max(2, min(wanted, classes // 2))


def build_sampler(recipe: Recipe, data: Dataset) -> Sampler:
    """Return the sampler of a recipe; each of several processes takes its part of every batch."""
    make = look_up("sampler", recipe.sampler, SAMPLERS)
    rank = torch.distributed.get_rank() if world_size() > 1 else 0
    shared = {"seed": recipe.training.seed, "rank": rank, "world_size": world_size()}
    if recipe.sampler == "random":
        return make(len(data), recipe.classes_per_batch * recipe.samples_per_class, **shared)
    # Every class is used as often as it takes to use about every item once in a pass.
    rounds = max(1, round(len(data) / (len(data.classes) * recipe.samples_per_class)))
    return make(data.labels, recipe.classes_per_batch, recipe.samples_per_class, rounds=rounds, **shared)


def with_fitting_batches(recipe: Recipe, *sets: Dataset) -> Recipe:
    """Return a recipe whose batches all training sets can fill, made smaller if necessary.

    Example:
        >>> from vicinal.data import digits
        >>> small = digits().subset([0, 1, 2, 10, 11, 12])  # three classes of two
        >>> recipe = with_fitting_batches(Recipe(), small)
        >>> recipe.classes_per_batch, recipe.samples_per_class
        (3, 2)
    """
    for data in sets:
        classes, items = recipe.classes_per_batch, recipe.samples_per_class
        if recipe.sampler == "random":
            items = min(items, len(data))
            classes = min(classes, len(data) // max(1, items))
        else:
            classes, items = batch_that_fits(data.labels, classes, items)
        if (classes, items) != (recipe.classes_per_batch, recipe.samples_per_class):
            recipe = recipe.changed(classes_per_batch=classes, samples_per_class=items)
    return recipe


def train_transform(recipe: Recipe, embedder: Embedder) -> Callable[..., Tensor] | None:
    """Return the random transform of training images; None for feature vectors."""
    expects = embedder.backbone.input
    if expects.pixels is None:
        return None
    drawings = expects.short_side is None and expects.size < SMALLEST_PHOTOGRAPH
    name = recipe.images or ("small" if drawings else "thesis")
    look_up("pair of transforms", name, PIPELINES)
    return pipeline(name, size=expects.size, pixels=expects.pixels).train
