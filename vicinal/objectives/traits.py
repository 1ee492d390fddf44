"""Traits that an objective declares, and the checks that all objectives share."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from vicinal.errors import InputError
from vicinal.pairs import check_pairs, widen

__all__ = [
    "EVERY_KIND",
    "Kind",
    "Need",
    "Traits",
    "check_options",
    "objective",
    "options_of",
    "traits_of",
    "traits_or_default",
]

Kind = Literal["batch", "proxies", "memory", "cover", "one_hot"]
Need = Literal["reference_labels", "reference_matrix"]
EVERY_KIND: tuple[Kind, ...] = ("batch", "proxies", "memory", "cover", "one_hot")

Function = TypeVar("Function", bound=Callable[..., Tensor])


@dataclass(frozen=True)
class Traits:
    """Properties of an objective: its geometry, its references, its needs, and the settings from its paper.

    Attributes:
        geometry: Geometry that its formula is written for.
        paper: Source of the formula.
        references: Kinds of references that it is meaningful on.
        needs: Keyword arguments that a `Criterion` supplies because the matrix alone does not contain them.
        usual: Kind of references that its paper uses.
        why_not: Reason why it is not meaningful on the other kinds.
        regularisers: Names and weights of the terms that its paper adds.
        items_per_class: Number of items per class in a batch, from its paper: 1 for losses on proxies, which need many
            classes; None for losses on pairs, which work with any number from 2.
        proxy_rate: Learning rate of its proxies; None for a loss without proxies.
        warm_up: Number of epochs in which its paper trains only the head and the proxies of a pretrained network.
        miner: Miner that its paper uses.
    """

    geometry: str
    paper: str
    usual: Kind = "batch"
    references: tuple[Kind, ...] = EVERY_KIND
    needs: tuple[Need, ...] = ()
    why_not: str = ""
    regularisers: tuple[tuple[str, float], ...] = ()
    items_per_class: int | None = None
    proxy_rate: float | None = None
    warm_up: float = 0.0
    miner: str | None = None


PROXY_RATE = 1e-2  # for any rate of the network: 100 x 1e-4 in the papers of proxy_anchor and soft_triple


# An option has the same meaning in every objective and miner, so one table of limits is enough.
AT_LEAST_ZERO = ("margin", "positive_margin", "negative_margin", "margin_degrees", "cutoff")
ABOVE_ZERO = (
    "scale",
    "positive_scale",
    "negative_scale",
    "temperature",
    "centre_temperature",
    "bins",
    "largest",
    "farthest",
    "p",
    "smoothing",
)
WITHIN_ZERO_AND_ONE = ("k",)


def check_options(name: str, options: dict[str, Any]) -> None:
    """Raise `InputError` for an option out of its range, such as a margin below zero or a scale of zero.

    Learned options are tensors that the optimiser may change freely; they are not checked.
    """
    for option, value in options.items():
        if isinstance(value, Tensor):
            continue
        bounded = option in (*AT_LEAST_ZERO, *ABOVE_ZERO, *WITHIN_ZERO_AND_ONE)
        if bounded and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            raise InputError(f"{name}: {option} must be a number; got {value!r}.")
        if option in AT_LEAST_ZERO and not value >= 0:
            raise InputError(f"{name}: {option} must be at least 0; got {value!r}.")
        if option in ABOVE_ZERO and not value > 0:
            raise InputError(f"{name}: {option} must be above 0; got {value!r}.")
        if option in WITHIN_ZERO_AND_ONE and not 0 < value < 1:
            raise InputError(f"{name}: {option} must be above 0 and below 1; got {value!r}.")


def objective(
    *,
    geometry: str,
    paper: str = "",
    usual: Kind = "batch",
    references: tuple[Kind, ...] = EVERY_KIND,
    needs: tuple[Need, ...] = (),
    why_not: str = "",
    regularisers: tuple[tuple[str, float], ...] = (),
    items_per_class: int | None = None,
    warm_up: float = 0.0,
    miner: str | None = None,
) -> Callable[[Function], Function]:
    """Declare a pure function of (matrix, positive, negative) as an objective.

    The function stays a function; it gains input checks, float32 arithmetic under autocast, and its `Traits`.
    """
    if items_per_class is None and usual in ("proxies", "one_hot"):
        items_per_class = 1  # every class has references regardless of the batch, so a batch should have many classes

    def declare(function: Function) -> Function:
        @functools.wraps(function)
        def checked(matrix: Tensor, positive: Tensor, negative: Tensor, **options: Any) -> Tensor:
            check_pairs(matrix, positive, negative)
            check_options(function.__name__, options)
            with torch.autocast(device_type=matrix.device.type, enabled=False):
                wide = {name: widen(value) if isinstance(value, Tensor) else value for name, value in options.items()}
                return function(widen(matrix), positive, negative, **wide)

        checked.traits = Traits(  # type: ignore[attr-defined]
            geometry,
            paper,
            usual,
            references,
            needs,
            why_not,
            regularisers,
            items_per_class,
            proxy_rate=PROXY_RATE if usual == "proxies" else None,
            warm_up=warm_up,
            miner=miner,
        )
        return cast(Function, checked)

    return declare


def traits_of(function: Callable[..., Tensor]) -> Traits | None:
    """Return the traits of an objective, or None for a plain function."""
    if isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "traits", None)


def traits_or_default(function: Callable[..., Tensor], geometry: str = "cosine") -> Traits:
    """Return the traits of an objective, or default traits for a plain function: any references, no paper.

    Args:
        function: The objective.
        geometry: Geometry of a plain function.
    """
    return traits_of(function) or Traits(geometry, paper="")


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of an objective or miner with their defaults, without arguments from a `Criterion`.

    Example:
        >>> def loss(matrix, positive, negative, *, margin=0.1): ...
        >>> options_of(loss)
        {'margin': 0.1}
    """
    parameters = inspect.signature(function).parameters.values()
    return {
        p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not inspect.Parameter.empty
    }
