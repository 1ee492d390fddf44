"""A ladder of learning rates: what suits one loss ruins another, so the rate is found first, and the rest near it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from vicinal.runs.recipe import Recipe

__all__ = ["FAR", "NEAR", "RUNGS", "Climbed", "at_rate", "climb", "ladder"]

RUNGS = 3  # of each loss, unless told otherwise
NEAR, FAR = 2.0, 10.0  # how far a search goes from the learning rate, after a ladder of them and without one


def ladder(rate: float, rungs: int = RUNGS) -> list[float]:
    """Return learning rates around one, half an order of magnitude apart; of an even number more are below it.

    Example:
        >>> ladder(3e-4), ladder(1e-3, rungs=2)
        ([9.49e-05, 0.0003, 0.000949], [0.000316, 0.001])
    """
    halves = [place - rungs // 2 for place in range(rungs)]
    return [float(f"{rate * 10 ** (half / 2):.3g}") if half else rate for half in halves]


@final
@dataclass(frozen=True)
class Climbed:
    """What a ladder of learning rates came to.

    Attributes:
        recipe: Recipe at the best rate; as it was where no rung has a score.
        best: Rate of the best rung; None where no rung has a score.
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
    """Try a recipe at several learning rates and choose the one that scores best on the validation classes.

    Of equals the recipe's own rate is chosen, and then the lowest.

    Args:
        recipe: What is tried.
        rates: Learning rates of the network.
        run: From the recipe at each rate to the score at each rate; None for one that failed.
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
    """Return a recipe with another learning rate of the network; its proxies keep theirs.

    Args:
        recipe: What is tried.
        rate: Of the network.
        multiplier_stays: Let proxies follow the network, since somebody said by how much their rate is higher.
    """
    if recipe.traits.usual != "proxies" or recipe.ccp is not None or multiplier_stays:
        return recipe.changed(learning_rate=rate)
    kept = recipe.proxy_multiplier * recipe.training.learning_rate
    return recipe.changed(learning_rate=rate, proxy_multiplier=float(f"{kept / rate:.6g}"))
