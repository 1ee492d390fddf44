"""Ladder of learning rates: a rate that suits one loss ruins another, so it is chosen first and the rest near it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from vicinal.runs.recipe import Recipe

__all__ = ["FAR", "NEAR", "RUNGS", "Climbed", "at_rate", "climb", "ladder"]

RUNGS = 3  # default number of learning rates per loss
NEAR, FAR = 2.0, 10.0  # factor around the learning rate that a search covers, after a ladder and without one


def ladder(rate: float, rungs: int = RUNGS) -> list[float]:
    """Return learning rates around a rate, half an order of magnitude apart; for an even number, more are below it.

    Example:
        >>> ladder(3e-4), ladder(1e-3, rungs=2)
        ([9.49e-05, 0.0003, 0.000949], [0.000316, 0.001])
    """
    halves = [index - rungs // 2 for index in range(rungs)]
    return [float(f"{rate * 10 ** (half / 2):.3g}") if half else rate for half in halves]


@final
@dataclass(frozen=True)
class Climbed:
    """Result of a ladder of learning rates.

    Attributes:
        recipe: Recipe at the best rate; unchanged if no rung has a score.
        best: Rate of the best rung; None if no rung has a score.
        scores: Validation score at each rate, lowest rate first; None for a rung that failed.
    """

    recipe: Recipe
    best: float | None
    scores: Mapping[float, float | None]


def climb(
    recipe: Recipe,
    rates: Sequence[float],
    run: Callable[[Mapping[float, Recipe]], Mapping[float, float | None]],
    *,
    multiplier_stays: bool = False,
) -> Climbed:
    """Try a recipe at several learning rates and choose the best one on the validation classes.

    Ties are resolved in favour of the recipe's own rate, then the lowest.

    Args:
        recipe: Recipe to try.
        rates: Learning rates of the network.
        run: Function from the recipe at each rate to the score at each rate; None for one that failed.
        multiplier_stays: Whether the rate of proxies follows that of the network, as in `at_rate`.

    Example:
        >>> climb(Recipe(), [0.0003, 0.001, 0.003], lambda rungs: {0.0003: 0.5, 0.001: 0.6, 0.003: None}).best
        0.001
    """
    rungs = {rate: at_rate(recipe, rate, multiplier_stays=multiplier_stays) for rate in rates}
    scores = dict(sorted(run(rungs).items()))
    ended = {rate: score for rate, score in scores.items() if score is not None}
    if not ended:
        return Climbed(recipe, None, scores)
    own = recipe.training.learning_rate
    best = max(ended, key=lambda rate: (ended[rate], rate == own, -rate))
    return Climbed(rungs[best], best, scores)


def at_rate(recipe: Recipe, rate: float, *, multiplier_stays: bool = False) -> Recipe:
    """Return a recipe with another learning rate of the network; the proxies keep their rate.

    Args:
        recipe: Recipe to change.
        rate: Learning rate of the network.
        multiplier_stays: Whether the proxies' rate follows that of the network, because the user chose their ratio.
    """
    if recipe.traits.usual != "proxies" or recipe.ccp is not None or multiplier_stays:
        return recipe.changed(learning_rate=rate)
    proxy_rate = recipe.proxy_multiplier * recipe.training.learning_rate
    return recipe.changed(learning_rate=rate, proxy_multiplier=float(f"{proxy_rate / rate:.6g}"))
