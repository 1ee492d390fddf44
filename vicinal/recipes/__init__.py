"""Recipes that come with vicinal, by name: "thesis/cub-bn_inception".

A study is a folder. Its files are conditions (data, protocol, network, batches, budget), each a complete recipe. The
files in its subfolder `losses` hold the settings of a loss, and are applied on top of any of the conditions:
`Recipe.read("ccp/cub", "ccp/losses/c2-ccp")`. Its subfolder `spaces` holds search spaces, which are not recipes.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, final

from vicinal._util.reading import read_text, read_toml
from vicinal.errors import InputError

__all__ = [
    "RecipeSummary",
    "describe_recipe",
    "expand",
    "find_recipe",
    "find_space",
    "losses_beside",
    "recipe_names",
    "space_names",
]

SHIPPED = Path(__file__).parent
LOSSES, SPACES = "losses", "spaces"


@final
@dataclass(frozen=True)
class RecipeSummary:
    """Summary of a recipe for a list; None for settings that the file leaves to the recipe below it.

    Attributes:
        name: Name for `find_recipe`.
        about: First line of the file's comment.
        data: Name of the dataset.
        protocol: Protocol that splits its classes.
        select_on_test: Whether the step is chosen by the test classes, which leaks.
        loss: Name of the loss.
        backbone: Name of the network.
        freeze: Whether only the head is trained; "trunk" if the last stages are trained too.
        dim: Length of the embeddings.
        images_seen: Number of steps times images per batch: the cost of one run on one fold.
        stops_early: Whether that is an upper bound, since training stops when validation scores no longer improve.
    """

    name: str
    about: str
    data: str | None
    protocol: str | None
    select_on_test: bool
    loss: str | None
    backbone: str | None
    freeze: bool | str
    dim: int | None
    images_seen: int | None
    stops_early: bool


def recipe_names() -> list[str]:
    """Return the names of all recipes that come with vicinal, conditions and losses."""
    return [name for name in _names() if SPACES not in name.split("/")]


def space_names() -> list[str]:
    """Return the names of all search spaces that come with vicinal."""
    return [name for name in _names() if SPACES in name.split("/")]


def find_recipe(name: str | Path) -> Path:
    """Return the file of a recipe, given its path or the name of one that comes with vicinal.

    Example:
        >>> find_recipe("glyphs").name
        'glyphs.toml'
    """
    return _find("recipe", name, recipe_names())


def find_space(name: str | Path) -> Path:
    """Return the file of a search space, given its path or the name of one that comes with vicinal.

    Example:
        >>> find_space("ccp/spaces/proxies").name
        'proxies.toml'
    """
    return _find("search space", name, space_names())


def expand(name: str | Path) -> list[str]:
    """Return the recipes in a folder (a path, or a folder that comes with vicinal), or the single recipe of that name.

    Example:
        >>> expand("pair-weighting/losses")[:2]
        ['pair-weighting/losses/binomial', 'pair-weighting/losses/binomial-vthm']
    """
    folder = Path(name)
    inside = sorted(path.as_posix() for path in folder.glob("*.toml")) if folder.is_dir() else []
    shipped = folder.as_posix()
    inside = inside or [recipe for recipe in recipe_names() if recipe.rpartition("/")[0] == shipped]
    if inside:
        return inside
    if folder.is_dir():
        raise InputError(f"The folder {name} holds no recipes: no *.toml in it.")
    _find("recipe", name, recipe_names(), {recipe.rpartition("/")[0] for recipe in recipe_names()} - {""})
    return [str(name)]


def losses_beside(name: str | Path) -> list[str]:
    """Return the losses that can be combined with the conditions of a study: the recipes in its subfolder `losses`.

    Example:
        >>> losses_beside("reality-check/cub")[:2]
        ['reality-check/losses/hpl', 'reality-check/losses/proxy_anchor']
        >>> losses_beside("glyphs")
        []
    """
    folder = find_recipe(name).parent / LOSSES
    if not folder.is_dir():
        return []
    return expand(folder.relative_to(SHIPPED) if folder.is_relative_to(SHIPPED) else folder)


def describe_recipe(name: str | Path) -> RecipeSummary:
    """Return the summary of a recipe, with its cost computed from its settings.

    Example:
        >>> summary = describe_recipe("thesis/cub-resnet50")
        >>> summary.data, summary.protocol, summary.backbone, summary.images_seen
        ('cub', 'default', 'resnet50', 590000)
    """
    path = find_recipe(name)
    text, values = read_text(path), read_toml(path)
    training = values.get("training", {})
    values = {**training, **values} if isinstance(training, dict) else values  # they may also be at the top level
    first = text.lstrip().partition("\n")[0]
    return RecipeSummary(
        name=str(name),
        about=first.removeprefix("#").strip() if first.startswith("#") else "",
        data=values.get("data"),
        protocol=values.get("protocol"),
        select_on_test=values.get("select_on_test", False),
        loss=values.get("loss"),
        backbone=values.get("backbone"),
        freeze=values.get("freeze", False),
        dim=values.get("dim"),
        images_seen=_images_seen(values),
        stops_early=values.get("patience", "none") != "none",
    )


def _images_seen(values: dict[str, Any]) -> int | None:
    factors = [values.get(name) for name in ("steps", "classes_per_batch", "samples_per_class")]
    return prod([*factors, values.get("accumulate", 1)]) if None not in factors else None


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(SHIPPED).with_suffix("").as_posix() for path in SHIPPED.rglob("*.toml")))


def _find(kind: str, name: str | Path, names: list[str], folders: Collection[str] = ()) -> Path:
    """Return the file of a recipe or space; if there is none, raise an error that suggests the nearest name."""
    path = Path(name)
    if path.suffix == ".toml" and path.is_file():
        return path
    requested = path.as_posix().removesuffix(".toml")
    if requested in names:
        return SHIPPED / f"{requested}.toml"
    if any(existing.startswith(f"{requested}/") for existing in names):
        raise InputError(f"{name} is a folder of recipes; name one of: {', '.join(expand(requested))}.")
    near = difflib.get_close_matches(requested.removeprefix("recipes/"), [*names, *folders], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    files = "and there is no such file" if path.suffix == ".toml" else "and a file's name ends in .toml"
    raise InputError(f"Unknown {kind} {str(name)!r}{hint} `vicinal recipes` lists those of vicinal, {files}.")
