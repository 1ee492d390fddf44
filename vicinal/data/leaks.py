"""Items on both sides of a split: what was trained on, or nearly, is then asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.data.dataset import Dataset
from vicinal.data.lookalikes import NOT_COMPARED, Lookalikes, lookalike_files
from vicinal.data.splits import Split

__all__ = ["find_leaks", "leak_note"]

TELLING = 8  # different numbers in an item in memory: blank images and rows of a few yes and no are alike by chance


def find_leaks(split: Split) -> list[tuple[str, ...]]:
    """Return groups of items that are the same, or look it, and are on several sides of a split.

    Args:
        split: Of image files, of which only the bytes are compared beyond 20,000 different ones; or of images in memory
            and vectors, which are the same where all their numbers are, and are named by side and place.
    """
    return _leaks_and_whether_looked_at(split)[0]


def leak_note(split: Split, known: tuple[Dataset, Lookalikes] | None = None) -> str | None:
    """Say that pictures are on both sides of a split, or that it was not looked at them; None if there is neither.

    Args:
        split: See `find_leaks`.
        known: The data that was split, and the pictures that are in it twice, where these were looked for already.
    """
    leaks, looked_at = _leaks_and_whether_looked_at(split, known)
    if not leaks:
        return None if looked_at else f"The split was checked for files that are the same alone: {NOT_COMPARED}"
    item = "picture" if isinstance(split.train.items, tuple) else "item"
    many = f"{'a picture' if item == 'picture' else 'an item'} is" if len(leaks) == 1 else f"{len(leaks):,} {item}s are"
    rest = " `vicinal duplicates` lists them all." if item == "picture" else ""
    rest += "" if looked_at else f" There may be more: {NOT_COMPARED}"
    how = "the same or nearly" if item == "picture" else "the same in every number"
    return (
        f"LEAK: {many} on both sides of the split, {how}, so that scores are too good; "
        f"the first: {', '.join(leaks[0])}.{rest}"
    )


def _leaks_and_whether_looked_at(
    split: Split, known: tuple[Dataset, Lookalikes] | None = None
) -> tuple[list[tuple[str, ...]], bool]:
    every = {"train": split.train, "validation": split.validation, "test": split.test}
    views = {side: view.items for side, view in every.items() if view is not None}
    sides = {str(path): side for side, items in views.items() if isinstance(items, tuple) for path in items}
    if not sides:
        return _same_rows({side: items for side, items in views.items() if isinstance(items, np.ndarray)}), True
    if known is None:
        paths = list(sides)
        alike = lookalike_files(paths)
    else:
        paths, alike = [str(path) for path in known[0].items], known[1]
    named = (tuple(paths[place] for place in group) for group in (*alike.same, *alike.near))
    groups = [tuple(path for path in group if path in sides) for group in named]
    return [group for group in groups if len({sides[path] for path in group}) > 1], alike.compared


def _same_rows(views: Mapping[str, NDArray[Any]]) -> list[tuple[str, ...]]:
    places = defaultdict(list)
    for side, items in views.items():
        for place, item in enumerate(items):
            if len(np.unique(item)) >= TELLING:
                places[blake2b(np.ascontiguousarray(item).tobytes(), digest_size=16).digest()].append((side, place))
    leaks = [group for group in places.values() if len({side for side, _ in group}) > 1]
    return [tuple(f"item {place} of {side}" for side, place in group) for group in leaks]
