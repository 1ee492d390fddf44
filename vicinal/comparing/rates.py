"""A ladder of learning rates for each loss: what suits one ruins another, so each climbs it before it is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vicinal.comparing.contestants import Contestant
from vicinal.recipe import Recipe
from vicinal.results import Record
from vicinal.tuning.ladder import at_rate as recipe_at_rate
from vicinal.tuning.ladder import ladder

__all__ = ["at_rate", "chosen_rates", "first_of_each", "rungs_of", "searched_apart"]


def at_rate(contestant: Contestant, rate: float) -> Recipe:
    """Return the recipe of a contestant with another learning rate of the network; its proxies keep theirs.

    Unless its recipe says by how much theirs is higher.
    """
    return recipe_at_rate(contestant.recipe, rate, multiplier_stays="proxy_multiplier" in contestant.said)


def rungs_of(grid: Sequence[Contestant], rungs: int) -> list[Contestant]:
    """Return what has to be tried: with each network, every loss at every rate, on the first seed and fold."""
    return [
        replace(first, recipe=at_rate(first, rate), role="rung")
        for first in first_of_each(grid)
        for rate in ladder(first.recipe.training.learning_rate, rungs)
    ]


def chosen_rates(grid: Sequence[Contestant], tried: Sequence[tuple[Contestant, Record]]) -> list[Contestant]:
    """Return the runs of a comparison at the rates whose rungs scored best on the validation classes.

    A loss none of whose rungs came to an end keeps its rate, at which it will say what is wrong; its rungs count as
    trials all the same.

    Args:
        grid: All runs.
        tried: The rungs, and what came of them.
    """
    ended: dict[object, list[Record]] = {}
    for contestant, record in tried:
        ended.setdefault(searched_apart(contestant), []).append(record)
    return [_at_best_rate(contestant, ended.get(searched_apart(contestant), [])) for contestant in grid]


def _at_best_rate(contestant: Contestant, records: Sequence[Record]) -> Contestant:
    scores = {_rate(record): record.validation.get(record.score) for record in records}
    known: Mapping[float, float] = {rate: score for rate, score in scores.items() if score is not None}
    if not known:
        spent = sum(record.images for record in records)
        rates = dict(sorted(scores.items()))
        return replace(contestant, tuning_trials=len(records), tuning_images=spent, rates=rates)
    best = max(known, key=lambda rate: known[rate])
    winner = next(record for record in records if _rate(record) == best)
    spent = sum(record.images for record in records if record is not winner)
    return replace(
        contestant,
        recipe=at_rate(contestant, best),
        curve={images * winner.steps // winner.images: score for images, score in winner.curve},
        tuning_trials=len(records),
        tuning_images=spent,
        rates=dict(sorted(scores.items())),
    )


def _rate(record: Record) -> float:
    return float(record.recipe["training"]["learning_rate"])


def first_of_each(grid: Sequence[Contestant]) -> list[Contestant]:
    """Return, of all that is searched apart, the contestant of the first seed and fold."""
    found: dict[object, Contestant] = {}
    for contestant in grid:
        found.setdefault(searched_apart(contestant), contestant)
    return list(found.values())


def searched_apart(contestant: Contestant) -> tuple[str, str, int | None]:
    """What has a ladder and a search of its own: a loss with a network, since rates and settings depend on both."""
    return contestant.name, contestant.recipe.backbone, contestant.recipe.dim
