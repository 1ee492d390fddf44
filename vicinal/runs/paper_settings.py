"""Settings from the paper of each loss, unless the user chose others: batches, proxies, warm-up."""

from __future__ import annotations

from collections.abc import Collection
from math import ceil
from typing import Any, NamedTuple

from vicinal.data import Dataset
from vicinal.objectives import without_alias
from vicinal.runs.recipe import Recipe
from vicinal.sampling import composition

__all__ = ["BATCHES", "TERMS", "USUAL", "PaperSettings", "paper_batch", "paper_settings_of"]

# Settings from papers, and the recipe settings that override them.
TERMS = {
    "batch": {"batch", "classes_per_batch", "samples_per_class"},
    "proxies_per_class": {"proxies_per_class"},
    "proxy_multiplier": {"proxy_multiplier"},
    "warm_up": {"warm_up"},
}
# Settings without which a loss would equal another loss.
USUAL: dict[str, dict[str, Any]] = {"soft_triple": {"proxies_per_class": 2}}
LONGEST_WARM_UP = 0.1  # share of all steps
BATCHES = "batches of"  # start of every description of batches


class PaperSettings(NamedTuple):
    """A recipe with the settings of its loss's paper, and a description of each change."""

    recipe: Recipe
    words: tuple[str, ...]


def paper_settings_of(recipe: Recipe, train: Dataset, chosen: Collection[str]) -> PaperSettings:
    """Return a recipe with the settings of its loss's paper and the same number of images.

    Chance-constrained proxies keep their own settings.

    Args:
        recipe: Recipe whose batches the training items can fill.
        train: Training data.
        chosen: Names of the settings that the user chose, which are kept.

    Example:
        >>> from vicinal.data import digits
        >>> recipe = Recipe(loss="proxy_anchor", classes_per_batch=2, samples_per_class=4)
        >>> settings = paper_settings_of(recipe, digits(), [])
        >>> settings.recipe.batch, settings.words
        ('8x1', ('batches of 8 classes x 1 instead of 2 x 4, as in the paper',))
    """
    if recipe.ccp is not None:
        return PaperSettings(recipe, ())
    declared: dict[str, tuple[dict[str, Any], str]] = {
        "batch": _batch(recipe, len(train.classes)),
        "proxies_per_class": (USUAL.get(without_alias(recipe.loss), {}), ""),
        "proxy_multiplier": _proxy_multiplier(recipe),
        "warm_up": _warm_up(recipe, len(train)),
    }
    names = {name.removeprefix("training.") for name in chosen}
    wanted = [change for term, change in declared.items() if any(change) and not TERMS[term] & names]
    changed = recipe.changed({name: value for values, _ in wanted for name, value in values.items()})
    return PaperSettings(changed, tuple(words for _, words in wanted if words))


def paper_batch(recipe: Recipe, classes: int) -> tuple[int, int] | None:
    """Return classes and items per class of a batch, as in the loss's paper or as close as the classes allow.

    None for a loss without such settings.
    """
    wanted = recipe.traits.items_per_class
    if wanted is None or recipe.sampler != "classes" or recipe.ccp is not None:
        return None
    return composition(recipe.classes_per_batch * recipe.samples_per_class, wanted, classes)


def _batch(recipe: Recipe, classes: int) -> tuple[dict[str, Any], str]:
    own, shared = paper_batch(recipe, classes), (recipe.classes_per_batch, recipe.samples_per_class)
    wanted = recipe.traits.items_per_class
    if own is None or (own == shared and own[1] == wanted):
        return {}, ""
    nearest = f"as close to the paper's {wanted} per class as {classes} classes allow"
    if own == shared:
        return {}, f"{BATCHES} {own[0]} classes x {own[1]}, {nearest}"
    why = "as in the paper" if own[1] == wanted else nearest
    words = f"{BATCHES} {own[0]} classes x {own[1]} instead of {shared[0]} x {shared[1]}, {why}"
    return {"classes_per_batch": own[0], "samples_per_class": own[1]}, words


def _proxy_multiplier(recipe: Recipe) -> tuple[dict[str, Any], str]:
    rate = recipe.traits.proxy_rate
    return ({}, "") if rate is None else ({"proxy_multiplier": rate / recipe.training.learning_rate}, "")


def _warm_up(recipe: Recipe, items: int) -> tuple[dict[str, Any], str]:
    """Return the warm-up of a pretrained network, in which only the head and the proxies are trained."""
    passes, batch = recipe.traits.warm_up, recipe.classes_per_batch * recipe.samples_per_class
    if not passes or not recipe.pretrained or recipe.freeze is True:
        return {}, ""
    steps = ceil(passes * items / batch)
    if recipe.training.steps is not None:
        steps = min(steps, int(LONGEST_WARM_UP * recipe.training.steps))
    return ({"warm_up": steps}, f"a warm-up of {steps} steps") if steps > recipe.training.warm_up else ({}, "")
