"""How long the runs of a comparison train: the same number of images, and the same patience, for all losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vicinal.budget import evaluation_interval, images_per_step, steps_that_see
from vicinal.comparing.contestants import Contestant
from vicinal.own_terms import TERMS

__all__ = ["with_equal_images", "with_patience"]

# A run ends early only where it is long enough to tell a pause from the end: so many evaluations, half of them in vain.
# Half, since rates that fall along a cosine often lift a score again after it stood still.
LONG, IN_VAIN = 20, 0.5


def with_equal_images(
    entries: Sequence[Contestant], images: int | None, said: Mapping[str, Any] | None = None
) -> list[Contestant]:
    """Return contestants all of which see the same number of images, whatever the size of their batches.

    That number is the largest up to the wanted one of which every batch is a part; where batches are too different for
    one, the numbers differ by less than a batch.

    Args:
        entries: One of each loss.
        images: To be seen; None for those that the steps of the first loss in shared batches see.
        said: Settings that were asked for; with `evaluate_every` not among them, evaluations suit the number of images.
            None leaves evaluations as they are.
    """
    sizes = [images_per_step(entry.recipe) for entry in entries]
    shared = next((entry.recipe for entry in entries if not TERMS["batch"] & entry.said), entries[0].recipe)
    steps, size = shared.training.steps, images_per_step(shared)
    if images is None and (len(set(sizes)) == 1 or steps is None):
        return list(entries)
    wanted = (steps or 0) * size if images is None else images
    whole = math.lcm(*sizes)
    wanted -= wanted % whole if wanted >= whole else 0
    every = shared.training.evaluate_every
    if said is not None and "evaluate_every" not in said:
        every = evaluation_interval(wanted // size)
    ends = {} if images is None else {"seconds": None}  # images are the whole budget, whatever a recipe says
    return [
        replace(
            entry,
            recipe=entry.recipe.changed(
                **ends,
                steps=steps_that_see(wanted, own),
                evaluate_every=every if own == size else max(bool(every), round(every * size / own)),
            ),
        )
        for entry, own in zip(entries, sizes, strict=True)
    ]


def with_patience(entries: Sequence[Contestant]) -> list[Contestant]:
    """Return contestants that end early where half of all evaluations in a row bring nothing, if those are many.

    A time is spent to its end: how many evaluations it has room for is not known before.
    """
    training = entries[0].recipe.training
    if training.steps is None or not training.evaluate_every:
        return list(entries)
    evaluations = training.steps // training.evaluate_every
    if evaluations < LONG:
        return list(entries)
    patience = math.ceil(IN_VAIN * evaluations)
    return [replace(entry, recipe=entry.recipe.changed(patience=patience)) for entry in entries]
