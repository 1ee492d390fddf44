"""Every loss as its paper trains it, where nobody says otherwise: its batches, its proxies, its warm-up."""

from __future__ import annotations

from collections.abc import Collection
from math import ceil
from typing import Any, NamedTuple

from vicinal.data import Dataset
from vicinal.objectives import without_alias
from vicinal.runs.recipe import Recipe
from vicinal.sampling import composition

__all__ = ["BATCHES", "TERMS", "USUAL", "OwnTerms", "on_own_terms", "own_batch"]

# What losses declare about themselves, and the settings by which somebody says it instead.
TERMS = {
    "batch": {"batch", "classes_per_batch", "samples_per_class"},
    "proxies_per_class": {"proxies_per_class"},
    "proxy_multiplier": {"proxy_multiplier"},
    "warm_up": {"warm_up"},
}
# Losses that are another loss without this.
USUAL: dict[str, dict[str, Any]] = {"soft_triple": {"proxies_per_class": 2}}
LONGEST_WARM_UP = 0.1  # of all steps
BATCHES = "batches of"  # what words on the composition of batches begin with


class OwnTerms(NamedTuple):
    """A recipe in the terms of its loss, and in words what is other than before."""

    recipe: Recipe
    words: tuple[str, ...]


def on_own_terms(recipe: Recipe, train: Dataset, said: Collection[str]) -> OwnTerms:
    """Return a recipe that trains as its loss declares, with as many images as before.

    Chance-constrained proxies have a loss within the batch, too, and settings of their own: they keep what they have.

    Args:
        recipe: With batches that the training items can fill.
        train: The classes to train on.
        said: Names of the settings that somebody chose, which stay.

    Example:
        >>> from vicinal.data import digits
        >>> made = on_own_terms(Recipe(loss="proxy_anchor", classes_per_batch=2, samples_per_class=4), digits(), [])
        >>> made.recipe.batch, made.words
        ('8x1', ('batches of 8 classes x 1 instead of 2 x 4, as its paper has them',))
    """
    if recipe.ccp is not None:
        return OwnTerms(recipe, ())
    declared: dict[str, tuple[dict[str, Any], str]] = {
        "batch": _batch(recipe, len(train.classes)),
        "proxies_per_class": (USUAL.get(without_alias(recipe.loss), {}), ""),
        "proxy_multiplier": _proxy_multiplier(recipe),
        "warm_up": _warm_up(recipe, len(train)),
    }
    names = {name.removeprefix("training.") for name in said}
    wanted = [told for term, told in declared.items() if any(told) and not TERMS[term] & names]
    changed = recipe.changed({name: value for values, _ in wanted for name, value in values.items()})
    return OwnTerms(changed, tuple(words for _, words in wanted if words))


def own_batch(recipe: Recipe, classes: int) -> tuple[int, int] | None:
    """Return classes and items of each as the loss's paper has them, or as near as that many classes allow.

    None for a loss that takes what there is.
    """
    wanted = recipe.traits.items_per_class
    if wanted is None or recipe.sampler != "classes" or recipe.ccp is not None:
        return None
    return composition(recipe.classes_per_batch * recipe.samples_per_class, wanted, classes)


def _batch(recipe: Recipe, classes: int) -> tuple[dict[str, Any], str]:
    own, shared = own_batch(recipe, classes), (recipe.classes_per_batch, recipe.samples_per_class)
    wanted = recipe.traits.items_per_class
    if own is None or (own == shared and own[1] == wanted):
        return {}, ""
    if own == shared:
        return {}, f"{BATCHES} {own[0]} classes x {own[1]}, as near to its paper's {wanted} as {classes} classes allow"
    why = "as its paper has them" if own[1] == wanted else f"as near to its paper's {wanted} as {classes} classes allow"
    told = f"{BATCHES} {own[0]} classes x {own[1]} instead of {shared[0]} x {shared[1]}, {why}"
    return {"classes_per_batch": own[0], "samples_per_class": own[1]}, told


def _proxy_multiplier(recipe: Recipe) -> tuple[dict[str, Any], str]:
    rate = recipe.traits.proxy_rate
    return ({}, "") if rate is None else ({"proxy_multiplier": rate / recipe.training.learning_rate}, "")


def _warm_up(recipe: Recipe, items: int) -> tuple[dict[str, Any], str]:
    """Where a pretrained network is trained: in the first passes the head and the proxies find their places alone."""
    passes, batch = recipe.traits.warm_up, recipe.classes_per_batch * recipe.samples_per_class
    if not passes or not recipe.pretrained or recipe.freeze is True:
        return {}, ""
    steps = ceil(passes * items / batch)
    if recipe.training.steps is not None:
        steps = min(steps, int(LONGEST_WARM_UP * recipe.training.steps))
    return ({"warm_up": steps}, f"warm-up of {steps} steps") if steps > recipe.training.warm_up else ({}, "")
