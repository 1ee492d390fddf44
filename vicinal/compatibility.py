"""What fits together in a criterion, and what to do where it does not."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from vicinal.errors import InputError, UnknownName
from vicinal.mining import MINERS
from vicinal.objectives.traits import Traits, check_options, options_of
from vicinal.pairs import GEOMETRIES, Geometry
from vicinal.references import Hierarchy

__all__ = ["check_geometry", "check_mining", "check_option_kinds", "check_option_names", "check_references"]

KINDS: dict[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a word"}


def check_geometry(name: str, traits: Traits, geometry: Geometry, normalise: str) -> None:
    """Raise where a loss for similarities is given distances or the reverse, or the normalisation has no effect."""
    written_for = GEOMETRIES[traits.geometry]
    if written_for.similarity != geometry.similarity:
        fitting = [other.name for other in GEOMETRIES.values() if other.similarity == written_for.similarity]
        raise InputError(
            f"{name} is written for {'similarities' if written_for.similarity else 'distances'}; geometry "
            f"{geometry.name!r} is the opposite. Use one of: {', '.join(fitting)}."
        )
    if normalise not in ("sphere", "ball", "none"):
        raise UnknownName("normalisation", normalise, ("sphere", "ball", "none"))
    if normalise == "ball" and geometry.name.startswith("cosine"):
        raise InputError(
            f"geometry {geometry.name!r} puts every vector on the sphere: normalise='ball' would have no effect. Use "
            "geometry='dot' (or 'euclidean') with it."
        )


def check_mining(
    miner: Callable[..., Any] | None, options: Mapping[str, Any], geometry: Geometry, normalise: str
) -> None:
    """Raise for options that a miner does not have, and for a geometry that it cannot work on."""
    if miner is None:
        if options:
            raise InputError(f"mining_options {sorted(options)} were given, but no mining.")
        return
    name = getattr(miner, "__name__", "miner")
    for option in options:
        if option not in inspect.signature(miner).parameters:
            raise UnknownName(f"option of the miner {name}", option, options_of(miner))
    check_option_kinds(name, miner, options)
    check_options(name, dict(options))
    on_the_sphere = geometry.name in ("cosine", "euclidean") and normalise == "sphere"
    if miner is MINERS["distance_weighted"] and not on_the_sphere:
        raise InputError(
            "distance_weighted mining knows the density of distances on the sphere: use geometry='euclidean' or "
            f"'cosine' with normalise='sphere'; got {geometry.name!r} with {normalise!r}."
        )


def check_references(name: str, traits: Traits, references: Sequence[nn.Module]) -> None:
    """Raise for kinds of references that a loss makes no sense on, and for a hierarchy without its proxies."""
    if not references:
        raise InputError(f"{name} needs references to compare items with; got an empty list.")
    for module in references:
        kind = getattr(module, "kind", None)
        if kind not in traits.references:
            raise InputError(
                f"{name} does not run on {kind or type(module).__name__} references: {traits.why_not}. Use: "
                f"{', '.join(traits.references)}."
            )
        if isinstance(module, Hierarchy) and not any(other is module.proxies for other in references):
            raise InputError(
                "A Hierarchy groups proxies that must be references, too, or they are never trained: use "
                "references=hierarchical_proxies(classes, dim, groups=...)."
            )


def check_option_names(
    name: str, objective: Callable[..., Tensor], options: Iterable[str], per_class: Sequence[str]
) -> None:
    """Raise for options that a loss does not have, and for values per class where it takes one number."""
    parameters = inspect.signature(objective).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise UnknownName(f"option of {name}", option, options_of(objective))
        if option in per_class and parameters[option].annotation in ("float", float, "int", int):
            raise InputError(f"{option} of {name} is one number for all: give Learned without classes=.")


def check_option_kinds(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise for a value of another kind than the option's usual one: a word where a number is wanted, say."""
    parameters = inspect.signature(function).parameters
    for option, value in options.items():
        if option not in parameters or isinstance(value, Tensor):
            continue
        usual, annotation = parameters[option].default, str(parameters[option].annotation)
        if value is None and "None" in annotation:
            continue
        wanted = next((words for kind, words in KINDS.items() if type(usual) is kind), None)
        fits = isinstance(value, type(usual)) if type(usual) in (bool, str) else _is_number(value)
        if wanted is not None and not fits:
            raise InputError(f"{name}: {option} must be {wanted}, such as {usual!r}; got {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value)
