"""Every method as its paper trains it: its batches, at the same number of images for all, its proxies, its warm-up."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

from vicinal.comparing.contestants import Contestant, needs
from vicinal.data import Dataset
from vicinal.recipe import Recipe
from vicinal.sampling import composition

__all__ = ["on_own_terms"]

LONGEST_WARM_UP = 0.1  # of all steps


def on_own_terms(contestant: Contestant, train: Dataset) -> Contestant:
    """Return a contestant that is trained as its loss declares, with as many images as before.

    What its own recipe says stays. Chance-constrained proxies have a loss within the batch, too, and settings of their
    own: they keep what all share.

    Args:
        contestant: With the settings that all share.
        train: The classes to train on.
    """
    recipe = contestant.recipe
    if recipe.ccp is not None:
        return contestant
    asked: dict[str, tuple[dict[str, Any], str]] = {
        "batch": _batch(recipe, len(train.classes)),
        "proxy_multiplier": _proxy_multiplier(recipe),
        "warm_up": _warm_up(recipe, len(train)),
    }
    wanted = {name: told for name, told in asked.items() if told[0] and name not in contestant.stated}
    changed = recipe.changed({name: value for values, _ in wanted.values() for name, value in values.items()})
    former = needs(recipe)  # which may say other things now
    demands = [*needs(changed), *(word for word in contestant.demands if word not in former)]
    demands += [words for _, words in wanted.values() if words]
    return replace(contestant, recipe=changed, demands=tuple(demands))


def _batch(recipe: Recipe, classes: int) -> tuple[dict[str, Any], str]:
    wanted, shared = recipe.traits.items_per_class, (recipe.classes_per_batch, recipe.samples_per_class)
    if wanted is None or recipe.sampler != "classes":
        return {}, ""
    own = composition(shared[0] * shared[1], wanted, classes)
    if own is None or own == shared:
        return {}, ""
    why = "as its paper has them" if own[1] == wanted else f"as near to its paper's {wanted} as {classes} classes allow"
    told = f"batches of {own[0]} classes x {own[1]} instead of {shared[0]} x {shared[1]}, {why}"
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
