"""Batches as each method's paper composes them, at the same number of images for all."""

from __future__ import annotations

from dataclasses import replace

from vicinal.comparing.contestants import Contestant

__all__ = ["composition", "in_own_batches"]


def in_own_batches(contestant: Contestant, classes: int) -> Contestant:
    """Return a contestant whose batches are composed as its loss declares, with as many images as before.

    One whose own recipe composes its batches keeps them, and so does one on proxies that are alternated (CCP), which
    has a loss within the batch, too.

    Args:
        contestant: With the batches that all share.
        classes: How many there are to train on.
    """
    recipe = contestant.recipe
    shared = (recipe.classes_per_batch, recipe.samples_per_class)
    wanted = recipe.traits.items_per_class
    if wanted is None or contestant.composes_batches or recipe.sampler != "classes" or recipe.ccp is not None:
        return contestant
    own = composition(shared[0] * shared[1], wanted, classes)
    if own is None or own == shared:
        return contestant
    told = f"batches of {own[0]} classes x {own[1]} instead of {shared[0]} x {shared[1]}, as its paper has them"
    composed = recipe.changed(classes_per_batch=own[0], samples_per_class=own[1])
    return replace(contestant, recipe=composed, demands=(*contestant.demands, told))


def composition(images: int, items_per_class: int, classes: int) -> tuple[int, int] | None:
    """Return classes and items of each in a batch of so many images: as few items as are wanted, or the next that fit.

    Returns:
        None where no number of items from the wanted one on divides the images and leaves enough classes.

    Example:
        >>> composition(64, 1, classes=100), composition(64, 1, classes=40), composition(64, 2, classes=8)
        ((64, 1), (32, 2), (8, 8))
    """
    for items in range(items_per_class, images + 1):
        if images % items == 0 and images // items <= classes:
            return images // items, items
    return None
