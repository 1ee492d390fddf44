"""Recipes that come with vicinal, found by name: "thesis/cub-bn_inception"."""

from __future__ import annotations

from pathlib import Path

from vicinal.errors import InputError, UnknownName

__all__ = ["find_recipe", "recipe_names"]

SHIPPED = Path(__file__).parent


def recipe_names() -> list[str]:
    """Return the names of all recipes that come with vicinal."""
    return sorted(path.relative_to(SHIPPED).with_suffix("").as_posix() for path in SHIPPED.rglob("*.toml"))


def find_recipe(name: str | Path) -> Path:
    """Return the file of a recipe: a path as it is, or one that comes with vicinal by its name.

    Example:
        >>> find_recipe("glyphs").name
        'glyphs.toml'
    """
    path = Path(name)
    if path.suffix == ".toml" and path.exists():
        return path
    shipped = SHIPPED / f"{str(name).removesuffix('.toml')}.toml"
    if shipped.is_file():
        return shipped
    if path.suffix == ".toml":
        raise InputError(f"Cannot read the recipe {path}: there is no such file, and none of that name with vicinal.")
    raise UnknownName("recipe", str(name), recipe_names())
