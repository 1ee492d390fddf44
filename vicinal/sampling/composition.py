"""How many classes, and how many items of each, make a batch of so many images."""

from __future__ import annotations

__all__ = ["composition", "compositions"]

MOST_ITEMS = 8  # of a class, that are worth a try


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


def compositions(images: int, fewest: int, classes: int) -> list[tuple[int, int]]:
    """Return all ways to make a batch of so many images, those with the fewest items of a class first.

    Args:
        images: In a batch.
        fewest: Items of a class; 2 for a loss on pairs of the batch.
        classes: How many there are.

    Example:
        >>> compositions(64, 2, classes=100)
        [(32, 2), (16, 4), (8, 8)]
    """
    return [
        (images // items, items)
        for items in range(fewest, MOST_ITEMS + 1)
        if images % items == 0 and 2 <= images // items <= classes
    ]
