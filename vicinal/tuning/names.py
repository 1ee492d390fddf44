"""The settings of a recipe by dotted names (`loss_options.margin`, `learning_rate`), read and replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vicinal.errors import InputError, UnknownName
from vicinal.mining import MINERS
from vicinal.objectives import ALIASES, OBJECTIVES, options_of, traits_of
from vicinal.recipe import Recipe, recipe_from
from vicinal.tuning.ranges import Choice, Range, Space
from vicinal.tuning.search_spaces import CCP_SPACE, LOSS_SPACES, MINER_SPACES, PROXY_SPACE, SEVERAL_PROXIES

__all__ = ["search_space", "value_of", "with_values"]


def search_space(recipe: Recipe) -> dict[str, Range | Choice]:
    """Return what is worth a search in a recipe: options of its loss and miner, proxies, and the learning rate.

    The learning rate may be ten times lower or higher than in the recipe, as what is usual depends on the network.

    Example:
        >>> list(search_space(Recipe(loss="proxy_anchor")))
        ['loss_options.margin', 'loss_options.scale', 'proxy_multiplier', 'learning_rate']
    """
    loss = ALIASES.get(recipe.loss, recipe.loss)
    traits = traits_of(OBJECTIVES[loss])
    space = {f"loss_options.{name}": entry for name, entry in LOSS_SPACES.get(loss, {}).items()}
    if recipe.mining is not None:
        space |= {f"mining_options.{name}": entry for name, entry in MINER_SPACES.get(recipe.mining, {}).items()}
    if recipe.ccp is not None:
        space |= CCP_SPACE
    elif traits is not None and traits.usual == "proxies":
        space |= PROXY_SPACE
        if loss in SEVERAL_PROXIES:
            space["proxies_per_class"] = SEVERAL_PROXIES[loss]
    rate = recipe.training.learning_rate
    return space | {"learning_rate": Range(rate / 10, rate * 10, log=True)}


def value_of(recipe: Recipe, name: str) -> Any:
    """Return the value of a setting, or the default of an option that the recipe does not give.

    Example:
        >>> value_of(Recipe(loss="triplet"), "loss_options.margin")
        0.1
    """
    settings = recipe.training.model_dump()
    table, _, option = name.partition(".")
    if not option:
        known = {**recipe.model_dump(), **settings}
        if name not in known:
            raise UnknownName("setting", name, known)
        return known[name]
    given = settings if table == "training" else getattr(recipe, table, None)
    defaults: dict[str, Any] = {}
    if table == "loss_options":
        defaults = options_of(OBJECTIVES[ALIASES.get(recipe.loss, recipe.loss)])
    elif table == "mining_options" and recipe.mining is not None:
        defaults = options_of(MINERS[recipe.mining])
    values = {**defaults, **(given if isinstance(given, Mapping) else dict(given or {}))}
    if option not in values:
        raise UnknownName(f"setting in {table}", option, values)
    return values[option]


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Return the recipe with settings replaced.

    Example:
        >>> with_values(Recipe(), {"loss_options.threshold": 0.7, "learning_rate": 0.01}).loss_options
        {'threshold': 0.7}
    """
    changes: dict[str, Any] = {}
    now = recipe.model_dump()
    for name, value in values.items():
        table, _, option = name.partition(".")
        if option:
            changes.setdefault(table, dict(now[table]))[option] = value
        else:
            changes[name] = value
    return recipe_from(changes, recipe)


def start_of(recipe: Recipe, space: Space) -> dict[str, Any]:
    """Return the values that a recipe has for the names of a space.

    Every name that is no setting, or whose value is None, is reported at once.
    """
    found, wrong = {}, []
    for name in space:
        try:
            found[name] = value_of(recipe, name)
        except UnknownName as error:
            wrong.append(f"{name}: {error}")
            continue
        if found[name] is None and isinstance(space[name], Range):
            wrong.append(f"{name} is None in the recipe: give it a number to start from")
    if wrong:
        raise InputError("The search space does not fit the recipe:\n" + "\n".join(f"  - {text}" for text in wrong))
    return found
