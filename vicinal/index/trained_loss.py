"""The loss that an embedder was trained with, and what it would do to a pair at some similarity."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.embedder.card import Card
from vicinal.errors import VicinalError
from vicinal.mining import MINERS
from vicinal.objectives import ALIASES, OBJECTIVES, options_of, traits_of
from vicinal.weights import weight_curves

__all__ = ["TracedLoss", "TrainedLoss", "loss_on_card", "trace_loss"]

POINTS = 101
RANDOM = ("distance_weighted", "random")  # miners under which the weight of a pair is not a curve
EDGE = 0.97  # beyond it the slope of a distance grows without bound


@dataclass(frozen=True)
class TrainedLoss:
    """What a model card says about the loss.

    Attributes:
        name: Of the loss, as in a recipe.
        options: Its numbers.
        mining: The miner that worked before it.
        references: What items were compared with: "batch", "proxies", ...
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    mining: str | None = None
    references: str = "batch"


@dataclass(frozen=True)
class TracedLoss:
    """The curves of `vicinal weights` for one loss.

    Attributes:
        loss: Which one.
        similarity: Cosines from -1 to 1.
        pull: Weight of a pair of one class at each of them.
        push: Weight of a pair of two classes.
    """

    loss: TrainedLoss
    similarity: NDArray[np.float64]
    pull: NDArray[np.float64]
    push: NDArray[np.float64]

    def at(self, cosine: float) -> tuple[float, float]:
        """Pull and push of a pair, each as a part of the strongest that the curve has."""
        inner = np.abs(self.similarity) < EDGE
        return tuple(  # type: ignore[return-value]
            float(np.interp(cosine, self.similarity, curve)) / (float(np.abs(curve[inner]).max()) or 1.0)
            for curve in (self.pull, self.push)
        )


def loss_on_card(card: Card) -> TrainedLoss | str:
    """The loss that a card's recipe names, or a sentence on why it is not known.

    Example:
        >>> loss_on_card(Card(recipe='loss = "triplet"\\n[loss_options]\\nmargin = 0.1')).options
        {'margin': 0.1}
        >>> loss_on_card(Card())
        'The model does not say which loss it was trained with.'
    """
    if not card.recipe:
        return "The model does not say which loss it was trained with."
    try:
        recipe = tomllib.loads(card.recipe)
    except tomllib.TOMLDecodeError:
        return "The recipe on the model's card cannot be read."
    name = str(recipe.get("loss", "multi_similarity"))
    function = OBJECTIVES.get(ALIASES.get(name, name))
    if function is None:
        return f"The model was trained with {name}, a loss of somebody's own, which is not run here."
    known = options_of(function)
    options = {key: _start(value) for key, value in dict(recipe.get("loss_options", {})).items() if key in known}
    traits = traits_of(function)
    usual = "batch" if traits is None else traits.usual
    return TrainedLoss(name, options, recipe.get("mining"), "cover" if recipe.get("ccp") else usual)


def trace_loss(loss: TrainedLoss) -> TracedLoss | str:
    """Trace the curves of a loss, or say why there are none."""
    if loss.mining in RANDOM:
        return f"{loss.name} was trained on pairs drawn at random ({loss.mining}), so a pair's weight is not a curve."
    function = OBJECTIVES[ALIASES.get(loss.name, loss.name)]
    try:
        curves = weight_curves(function, mining=MINERS.get(loss.mining or ""), points=POINTS, **loss.options)
    except (VicinalError, TypeError, ValueError, RuntimeError) as error:
        return f"The curve of {loss.name} cannot be drawn with the options of this model: {error}"
    return TracedLoss(loss, curves.similarity.numpy(), curves.positive.numpy(), curves.negative.numpy())


def _start(value: Any) -> Any:
    """An option that was learned counts with what it began at: the card has no other number."""
    return value["start"] if isinstance(value, Mapping) and "start" in value else value
