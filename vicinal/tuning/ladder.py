"""A ladder of learning rates: what suits one loss ruins another, so the rate is found first, and the rest near it."""

from __future__ import annotations

from vicinal.runs.recipe import Recipe

__all__ = ["FAR", "NEAR", "RUNGS", "at_rate", "ladder"]

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
