"""Notes on a run's scores: a sentence each, the same in terminal, record and report."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from vicinal._util.text import counted
from vicinal.backbones import BACKBONES, small_images
from vicinal.data import Dataset, Split, looks_of
from vicinal.data.splits import CROSS_VALIDATION, USUAL_SHARE
from vicinal.objectives import OBJECTIVES, options_of
from vicinal.objectives.label_gap import max_classes
from vicinal.runs.paper_settings import paper_batch
from vicinal.runs.recipe import Recipe

__all__ = [
    "batch_note",
    "budget_note",
    "colour_note",
    "foreign_batch",
    "foreign_batch_note",
    "miner_note",
    "proxies_note",
    "random_network_note",
    "share_note",
    "undecided_note",
    "validation_note",
]
ONE_DIRECTION = 0.95  # mean cosine of proxies of different classes above which they hardly differ


def batch_note(requested: Recipe, used: Recipe, train: Dataset) -> str | None:
    """Note that batches are smaller than requested; None if they are not."""
    if (requested.classes_per_batch, requested.samples_per_class) == (used.classes_per_batch, used.samples_per_class):
        return None
    supply = f"{counted(len(train), 'training item')} of {counted(len(train.classes), 'class')}"
    return (
        f"Batches are {used.classes_per_batch} classes x {used.samples_per_class} items instead of "
        f"{requested.classes_per_batch} x {requested.samples_per_class}, because there are only {supply}."
    )


def foreign_batch_note(recipe: Recipe, train: Dataset) -> str | None:
    """Note that batches differ from the paper of the loss; None if they do not, or cannot be closer."""
    own = paper_batch(recipe, len(train.classes))
    if own is None or own[1] == recipe.samples_per_class:
        return None
    wanted = recipe.traits.items_per_class or own[1]
    return foreign_batch(recipe.method, recipe.classes_per_batch, recipe.samples_per_class, wanted)


def foreign_batch(method: str, classes: int, items: int, wanted: int) -> str:
    """Note that a method ran with other items per class than in its paper."""
    return (
        f"{method} ran with batches of {classes} classes x {items} items. Its paper uses {counted(wanted, 'item')} per "
        "class, which scores much better if there are many classes."
    )


def miner_note(recipe: Recipe, chosen: Collection[str]) -> str | None:
    """Note that a loss runs without the miner of its paper; None if it has one, or the user chose not to.

    Args:
        recipe: Recipe of the run.
        chosen: Names of the settings that the user chose.
    """
    usual, option = recipe.traits.miner, recipe.loss_options.get("which", "all")  # an option that mines triplets
    if "loss" not in chosen or "mining" in chosen or recipe.mining or recipe.ccp or usual is None or option != "all":
        return None
    return f"{recipe.loss} uses all pairs; its paper uses the {usual} miner ({recipe.loss}+{usual})."


def validation_note(split: Split) -> str | None:
    """Note that there are too few classes to validate on; None if there are enough, or the protocol has none."""
    if split.usable_validation is not None or split.protocol in ("default", CROSS_VALIDATION):
        return None
    held = 0 if split.validation is None else len(split.validation.classes)
    total = len(split.train.classes) + held
    why = f"{counted(total, 'training class')} are too few to validate on three of them"
    if split.folds is not None:
        why = f"{counted(total, 'training class')} in {split.folds} folds are fewer than three per fold"
    elif held:
        why = f"it needs three classes and there are {held}"
    return f"No validation, because {why}. The last step of each run is reported."


def share_note(recipe: Recipe, split: Split) -> str | None:
    """Note that the requested share of validation classes is not used; None if it is, or is the default."""
    if recipe.validation == USUAL_SHARE:
        return None
    if split.folds is not None:
        why = f"protocol {split.protocol!r} validates on a fold, whose size `folds` sets"
    elif split.protocol == "default":
        why = "protocol 'default' has no validation classes; use 'fixed-validation'"
    elif split.validation is not None and split.validation.roles is not None and "validation" in split.validation.roles:
        why = f"{split.train.name} has its own validation classes"
    else:
        return None
    return f"validation = {recipe.validation:g} is not used: {why}."


def budget_note(images: int, train: Dataset) -> str | None:
    """Note that a run sees less than one epoch; None if it sees more."""
    if images >= len(train):
        return None
    return (
        f"The budget is less than one epoch: {counted(images, 'image')} for {counted(len(train), 'training item')}. "
        "Increase it (--budget) before you trust the order."
    )


def proxies_note(first: Mapping[str, float], instances: Sequence[Mapping[str, float]]) -> str:
    """Describe the course of chance-constrained proxies, and whether their assumptions were met."""
    parts = [f"Chance-constrained proxies completed {counted(len(instances), 'instance')}"]
    if not instances:
        parts.append("so nothing alternated: increase steps, or decrease the patience of ccp")
    parts.append(f"the first proxies had a mean cosine of {first['proxy cosine']:.3f} between classes")
    if first["proxy cosine"] > ONE_DIRECTION:
        parts.append("so they hardly differ: centre the features, or train the network first")
    if instances:
        began, last = instances[0], instances[-1]
        radii = f"covering radius {began['proxy radius']:.3f} and {last['proxy radius']:.3f}"
        ends = "at the end of the first and last instance"
        if math.isnan(began["proxy spread"]):  # of one proxy per class
            parts.append(f"the only proxy of a class had a {radii} {ends}")
        else:
            spreads = f"{began['proxy spread']:.3f} and {last['proxy spread']:.3f} apart"
            parts.append(f"proxies of a class were {spreads} {ends}, their {radii}")
    if len(instances) > 1:
        pull = last["proximal pull"]
        parts.append(
            f"lambda x distance moved was {pull:.2g} in the last instance (distance {last['distance moved']:.3g})"
        )
    return "; ".join(parts) + "."


def random_network_note(recipe: Recipe, data: Dataset) -> str | None:
    """Note that frozen parts of the network have random weights; None if they are pretrained, or trained."""
    if recipe.freeze is True:
        frozen = "The network is"
    elif recipe.lora_rank is not None:
        frozen = "All of the network but its LoRA matrices is"
    elif recipe.train_stages is not None:
        frozen = f"All of the network but its last {counted(recipe.train_stages, 'stage')} is"
    else:
        return None
    own_network = recipe.backbone not in BACKBONES  # a custom network may load its own weights
    if recipe.pretrained or recipe.start is not None or data.kind == "vectors" or own_network:
        return None
    return (
        f"{frozen} frozen with random weights. Give pretrained weights (--weights imagenet, or a file), or train the "
        "whole network."
    )


def undecided_note(recipe: Recipe, train: Dataset) -> str | None:
    """Note that metric_cross_entropy cannot learn this many classes from random weights; None if it can."""
    if recipe.loss != "metric_cross_entropy" or recipe.start is not None:
        return None
    options = options_of(OBJECTIVES[recipe.loss]) | recipe.loss_options
    most, classes = max_classes(options["k"], options["p"], options["smoothing"]), len(train.classes)
    if classes <= most:
        return None
    return (
        f"metric_cross_entropy with k = {options['k']:g} and p = {options['p']:g} can learn at most {most:.0f} classes "
        f"from random weights; with {classes:,} the loss is lowest if all items go to one class. Start from a model "
        f"trained with cross_entropy (-o start=...), or use the options of vicinal.spaces.options_for({classes})."
    )


def colour_note(recipe: Recipe, data: Dataset) -> str | None:
    """Note that a small network sees images in grey and at low resolution; None if it does not."""
    small = small_images(recipe.backbone, recipe.backbone_options)
    seen = looks_of(data) if small is not None and small[1] == 1 else None
    if small is None or seen is None or not (seen.colour or seen.photographs):
        return None
    what = "colour images in grey and" if seen.colour else "grey photographs"
    return (
        f"{recipe.backbone} sees these {what} at {small[0]} x {small[0]} pixels. Without --backbone, photographs use a "
        "network with pretrained weights."
    )
