"""How long a run may train: in steps, in images seen or in time, as people write it and as recipes say it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from vicinal.errors import InputError
from vicinal.phrasing import counted
from vicinal.recipe import Recipe

__all__ = ["Budget", "evaluation_interval", "images_per_step", "read_budget", "steps_that_see"]

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
FORMS = "500 (steps), 64000images, 64kimages, 90s, 5m or 1h"
# Of a budget in images: an evaluation at least so often, and so many of them in a short one.
STEPS_BETWEEN, EVALUATIONS = 100, 10


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
        """Return what this changes in a recipe; images become steps where batches are known.

        Example:
            >>> read_budget("500").settings(), read_budget("1.5m").settings()
            ({'steps': 500, 'seconds': None}, {'steps': None, 'seconds': 90.0})
        """
        if self.steps is None and self.seconds is None:
            return {}
        return {"steps": self.steps, "seconds": self.seconds}


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


def images_per_step(recipe: Recipe) -> int:
    """Return how many images a step sees."""
    return recipe.classes_per_batch * recipe.samples_per_class * recipe.training.accumulate


def steps_that_see(images: int, each: int) -> int:
    """Return how many steps see so many images, or less than a step fewer.

    Args:
        images: To be seen.
        each: Images of a step.

    Example:
        >>> steps_that_see(1000, 64)
        15
    """
    if images < each:
        raise InputError(f"A budget of {counted(images, 'image')} is less than one batch of {each}: give more.")
    return images // each


def evaluation_interval(steps: int) -> int:
    """Return after how many steps a run is scored whose budget is a number of images."""
    return max(1, min(STEPS_BETWEEN, steps // EVALUATIONS))
