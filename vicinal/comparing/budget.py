"""How long each run may train, in steps, in images or in time: the same for all losses."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from vicinal.comparing.contestants import Contestant
from vicinal.errors import InputError
from vicinal.own_terms import TERMS
from vicinal.phrasing import counted
from vicinal.recipe import Recipe

__all__ = ["Budget", "budget_settings", "images_per_step", "read_budget", "with_equal_images", "with_patience"]

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
FORMS = "500 (steps), 64000images, 64kimages, 90s, 5m or 1h"
# Of a budget in images: an evaluation at least so often, and so many of them in a short one.
STEPS_BETWEEN, EVALUATIONS = 100, 10
# A run ends early only where it is long enough to tell a pause from the end: so many evaluations, half of them in vain.
# Half, since rates that fall along a cosine often lift a score again after it stood still.
LONG, IN_VAIN = 20, 0.5


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
        """Return what this changes in a recipe; images become steps where batches are known."""
        if self.seconds is not None:
            return {"steps": None, "seconds": self.seconds}
        return {} if self.steps is None else {"steps": self.steps}


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


def budget_settings(text: str) -> dict[str, Any]:
    """Return the settings of a recipe that the budget of a single run changes.

    Example:
        >>> budget_settings("500"), budget_settings("1.5m")
        ({'steps': 500}, {'steps': None, 'seconds': 90.0})
    """
    budget = read_budget(text)
    if budget.images is not None:
        raise InputError(f"A budget in images is one of `vicinal compare`; here give steps or a time, not {text!r}.")
    return budget.settings()


def images_per_step(recipe: Recipe) -> int:
    """Return how many images a step sees."""
    return recipe.classes_per_batch * recipe.samples_per_class * recipe.training.accumulate


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
    if wanted < max(sizes):
        raise InputError(f"A budget of {counted(wanted, 'image')} is less than one batch of {max(sizes)}: give more.")
    whole = math.lcm(*sizes)
    wanted -= wanted % whole if wanted >= whole else 0
    every = shared.training.evaluate_every
    if said is not None and "evaluate_every" not in said:
        every = max(1, min(STEPS_BETWEEN, wanted // size // EVALUATIONS))
    return [
        replace(
            entry,
            recipe=entry.recipe.changed(
                steps=wanted // own,
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
