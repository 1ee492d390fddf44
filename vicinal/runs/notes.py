"""What a reader of a run's scores has to know: a sentence each, the same in terminal, record and report."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from vicinal._util.text import counted
from vicinal.backbones import BACKBONES, small_images
from vicinal.data import Dataset, Split, looks_of
from vicinal.data.splits import USUAL_SHARE
from vicinal.objectives import OBJECTIVES, options_of
from vicinal.objectives.label_gap import most_classes
from vicinal.runs.paper_settings import own_batch
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
ONE_DIRECTION = 0.95  # mean cosine of proxies of different classes above which there is little to tell them apart by


def batch_note(asked: Recipe, used: Recipe, train: Dataset) -> str | None:
    """That batches are smaller than was asked for; None where they are not."""
    if (asked.classes_per_batch, asked.samples_per_class) == (used.classes_per_batch, used.samples_per_class):
        return None
    supply = f"{counted(len(train), 'training item')} of {counted(len(train.classes), 'class')}"
    return (
        f"Batches hold {used.classes_per_batch} classes x {used.samples_per_class} instead of "
        f"{asked.classes_per_batch} x {asked.samples_per_class}: that is what {supply} can fill."
    )


def foreign_batch_note(recipe: Recipe, train: Dataset) -> str | None:
    """That a loss runs in batches that are not its paper's; None where they are, or as near as the classes allow."""
    own = own_batch(recipe, len(train.classes))
    if own is None or own[1] == recipe.samples_per_class:
        return None
    wanted = recipe.traits.items_per_class or own[1]
    return foreign_batch(recipe.method, recipe.classes_per_batch, recipe.samples_per_class, wanted)


def foreign_batch(method: str, classes: int, items: int, wanted: int) -> str:
    """That a method ran in batches of so many items of each class, and its paper wants others."""
    return (
        f"{method} ran in batches of {classes} classes x {items}; its paper has {counted(wanted, 'item')} per class, "
        "and where classes are many it does far better so."
    )


def miner_note(recipe: Recipe, said: Collection[str]) -> str | None:
    """That a loss which was named alone has no miner, though its paper uses one; None where that was chosen.

    Args:
        recipe: What is trained.
        said: Names of the settings that somebody chose.
    """
    usual, option = recipe.traits.miner, recipe.loss_options.get("which", "all")  # by which triplets are mined, too
    if "loss" not in said or "mining" in said or recipe.mining or recipe.ccp or usual is None or option != "all":
        return None
    ways = f"{recipe.loss}+{usual}, --mining {usual}"
    return f"{recipe.loss} runs on all pairs; its paper mines them by {usual} ({ways})."


def validation_note(split: Split) -> str | None:
    """That no classes are left to choose by, though the protocol wants some; None where there are."""
    if split.chooser is not None or split.protocol == "default":
        return None
    held = 0 if split.validation is None else len(split.validation.classes)
    known = len(split.train.classes) + held
    why = f"{counted(known, 'training class')} are too few to hold out three and train on as many"
    if split.folds is not None:
        why = f"{counted(known, 'training class')} in {split.folds} folds leave fewer than three in each"
    elif held:
        why = f"of the three validation classes that it takes there are only {held}"
    return f"Nothing is chosen by validation, since {why}: the last step of each run is reported."


def share_note(recipe: Recipe, split: Split) -> str | None:
    """That a share of validation classes was asked for and none is drawn; None where one is, or it is the usual one."""
    if recipe.validation == USUAL_SHARE:
        return None
    if split.folds is not None:
        why = f"protocol {split.protocol!r} validates on a fold, and `folds` says how large it is"
    elif split.protocol == "default":
        why = "protocol 'default' holds no classes out, and 'fixed-validation' does"
    elif split.validation is not None and split.validation.roles is not None and "validation" in split.validation.roles:
        why = f"{split.train.name} has validation classes of its own"
    else:
        return None
    return f"validation = {recipe.validation:g} is not used: {why}."


def budget_note(images: int, train: Dataset) -> str | None:
    """That a run has seen less than its data once; None where it has seen more."""
    if images >= len(train):
        return None
    return (
        f"The budget trains next to nothing: {counted(images, 'image')} seen, less than one pass over the "
        f"{counted(len(train), 'training item')}. Give more (--budget, steps) before you believe an order."
    )


def proxies_note(first: Mapping[str, float], instances: Sequence[Mapping[str, float]]) -> str:
    """How chance-constrained proxies went: whether each of the assumptions that they rest on was met."""
    said = [f"Chance-constrained proxies completed {counted(len(instances), 'instance')}"]
    if not instances:
        said.append("so that nothing was alternated: give more steps, or a smaller patience of ccp")
    said.append(f"the first proxies had a mean cosine of {first['proxy cosine']:.3f} between classes")
    if first["proxy cosine"] > ONE_DIRECTION:
        said.append("which is one direction for all: centre the features, or train the network first")
    if instances:
        began, last = instances[0], instances[-1]
        radii = f"covering radius {began['proxy radius']:.3f} and {last['proxy radius']:.3f}"
        ends = "at the end of the first instance and at that of the last"
        if math.isnan(began["proxy spread"]):  # of one proxy per class
            said.append(f"the only proxy of a class had a {radii} {ends}")
        else:
            spreads = f"{began['proxy spread']:.3f} and {last['proxy spread']:.3f} apart"
            said.append(f"proxies of a class were {spreads} {ends}, their {radii}")
    if len(instances) > 1:
        pull = last["proximal pull"]
        said.append(f"lambda x distance moved was {pull:.2g} in the last (distance {last['distance moved']:.3g})")
    return "; ".join(said) + "."


def random_network_note(recipe: Recipe, data: Dataset) -> str | None:
    """That what stands still of the network is as it was drawn; None where it was trained before, or is now."""
    if recipe.freeze is True:
        still = "The network"
    elif recipe.lora_rank is not None:
        still = "All of the network but small matrices beside its linear maps"
    elif recipe.train_stages is not None:
        still = f"The network but for its last {counted(recipe.train_stages, 'stage')}"
    else:
        return None
    known = recipe.backbone in BACKBONES  # one's own network may bring weights that nobody else knows of
    if recipe.pretrained or recipe.start is not None or data.kind == "vectors" or not known:
        return None
    return (
        f"{still} stands still with random weights: give some (--weights imagenet, or a file), or train it from "
        "scratch."
    )


def undecided_note(recipe: Recipe, train: Dataset) -> str | None:
    """That a loss on class probabilities is smaller for sure mistakes than for doubt; None where it is not."""
    if recipe.loss != "metric_cross_entropy" or recipe.start is not None:
        return None
    options = options_of(OBJECTIVES[recipe.loss]) | recipe.loss_options
    most, classes = most_classes(options["k"], options["p"], options["smoothing"]), len(train.classes)
    if classes <= most:
        return None
    return (
        f"metric_cross_entropy with k = {options['k']:g} and p = {options['p']:g} learns up to {most:.0f} classes from "
        f"random weights; with {classes:,} it pays to send all items to one class, whichever. Start from a model that "
        "cross_entropy has made sure of its items (-o start=...), or take the options that "
        f"vicinal.spaces.options_for({classes}) names."
    )


def colour_note(recipe: Recipe, data: Dataset) -> str | None:
    """That coloured images are seen grey and small, or grey photographs small; None where they are not."""
    small = small_images(recipe.backbone, recipe.backbone_options)
    seen = looks_of(data) if small is not None and small[1] == 1 else None
    if small is None or seen is None or not (seen.colour or seen.photographs):
        return None
    what = "coloured images grey," if seen.colour else "grey photographs"
    return (
        f"{recipe.backbone} sees these {what} at {small[0]} x {small[0]} pixels. Name no backbone, and "
        "photographs go through a network with pretrained weights."
    )
