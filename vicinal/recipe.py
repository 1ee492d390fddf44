"""Recipes: everything that defines a run, one TOML file."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from vicinal.backbones import BACKBONES
from vicinal.data import PIPELINES
from vicinal.errors import InputError, UnknownName, look_up
from vicinal.mining import MINERS
from vicinal.objectives import ALIASES, OBJECTIVES
from vicinal.sampling import SAMPLERS
from vicinal.training.settings import CCP, Settings

__all__ = ["Recipe", "read_recipe", "recipe_from", "recipe_toml"]


def _one_of(kind: str, table: Mapping[str, Any]) -> AfterValidator:
    """Return a check that a name is in a table."""

    def known(name: str) -> str:
        look_up(kind, name, table)
        return name

    return AfterValidator(known)


class Recipe(BaseModel):
    """What to train, on what batches, with which loss.

    Attributes:
        loss: A name; see `vicinal losses`.
        loss_options: Its options.
        mining: A miner.
        mining_options: Its options.
        memory: Embeddings of past batches to compare with beside the batch (XBM); 0 for none.
        memory_start: Steps before the memory begins to fill.
        proxies_per_class: Where the loss compares with proxies.
        proxy_multiplier: Learning rate of proxies over that of the network.
        ccp: Chance-constrained proxies: "code", "paper" or a table of `CCP`; its own proxies count, not those above.
        backbone: A name in `vicinal.backbones.BACKBONES`.
        backbone_options: Its options.
        weights: "imagenet", a path or a URL; None starts from random weights.
        start: Folder of a saved embedder of the same shape, whose weights (head included) to start from.
        dim: Length of the embeddings; None for the backbone's features as they are. Losses on class probabilities have
            one per training class, whatever this says.
        pooling: "average", "max" or "both".
        normalisation: Of embeddings, in training and after: "sphere", "ball", or None for none. Of
            class probabilities it is the soft-max.
        images: Name of the pair of transforms, by default one that fits the backbone.
        sampler: "classes", "random" or "hard-classes".
        classes_per_batch: Classes in a batch.
        samples_per_class: Items of each.
        freeze: Compute the backbone's features once and train only the head on them.
        copies: Augmented versions of each training item to compute features of.
        train_stages: How many of the backbone's last stages are trained; None for all.
        freeze_batch_norm: Whether batch norm keeps its statistics.
        training: How long, how fast, how often scored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    loss: Annotated[str, _one_of("loss", {**OBJECTIVES, **ALIASES})] = "multi_similarity"
    loss_options: dict[str, Any] = Field(default_factory=dict)
    mining: Annotated[str, _one_of("miner", MINERS)] | None = None
    mining_options: dict[str, Any] = Field(default_factory=dict)
    memory: Annotated[int, Field(ge=0)] = 0
    memory_start: Annotated[int, Field(ge=0)] = 0
    proxies_per_class: Annotated[int, Field(ge=1)] = 1
    proxy_multiplier: Annotated[float, Field(gt=0)] = 100.0
    ccp: CCP | None = None
    backbone: Annotated[str, _one_of("backbone", BACKBONES)] = "convnet"
    backbone_options: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None
    start: str | None = None
    dim: Annotated[int | None, Field(ge=1)] = 64
    pooling: Literal["average", "max", "both"] = "average"
    normalisation: Literal["sphere", "ball"] | None = "sphere"
    images: Annotated[str, _one_of("pair of transforms", PIPELINES)] | None = None
    sampler: Annotated[str, _one_of("sampler", SAMPLERS)] = "classes"
    classes_per_batch: Annotated[int, Field(ge=1)] = 8
    samples_per_class: Annotated[int, Field(ge=1)] = 4
    freeze: bool = False
    copies: Annotated[int, Field(ge=1)] = 4
    train_stages: Annotated[int | None, Field(ge=0)] = None
    freeze_batch_norm: bool = False
    training: Settings = Field(default_factory=Settings)


def recipe_from(values: Mapping[str, Any], base: Recipe | None = None) -> Recipe:
    """Make a recipe from names and values, on top of another one; settings of the training loop may stand among them.

    Every mistake is reported at once. TOML has no word for None: the string "none" stands for it.

    Example:
        >>> recipe_from({"loss": "triplet", "steps": 50}).training.steps
        50
    """
    recipe = (base or Recipe()).model_dump()
    loop = recipe.pop("training")
    rest = dict(values)
    table = rest.pop("training", {})
    if not isinstance(table, Mapping):
        raise InputError(f"training must be a table of settings; got {table!r}.")
    wrong = _put(table, loop) + _put(rest, recipe, loop)  # a name by itself wins over the same one in the table
    try:
        made = Recipe(**recipe, training=loop)
    except ValidationError as error:
        wrong += [_sentence(details) for details in error.errors()]
    if wrong:
        raise InputError("The recipe has mistakes:\n" + "\n".join(f"  - {text}" for text in wrong))
    return made


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the names and values of a TOML file, for `recipe_from`."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read the recipe {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"The recipe {path} is not TOML: {error}.") from None


def recipe_toml(recipe: Recipe) -> str:
    """Write a recipe as TOML that `read_recipe` reads back.

    Example:
        >>> print(recipe_toml(Recipe(loss="triplet", loss_options={"margin": 0.1})).splitlines()[0])
        loss = "triplet"
    """
    values, usual = recipe.model_dump(), Recipe().model_dump()
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    lines = _lines({name: value for name, value in values.items() if name not in tables}, usual)
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *_lines(table, usual[name] or {})]
    return "\n".join(lines) + "\n"


def _put(values: Mapping[str, Any], *tables: dict[str, Any]) -> list[str]:
    """Set each value in the first table that has its name; return a line on each name that none has."""
    unknown = []
    for name, value in values.items():
        table = next((table for table in tables if name in table), None)
        if table is None:
            choices = [known for table in tables for known in table]
            unknown.append(str(UnknownName("setting", name, choices)).split(" Choose from")[0])
        else:
            table[name] = _with_none(value)
    return unknown


def _sentence(details: Any) -> str:
    """Return one of pydantic's errors as one line."""
    place = ".".join(map(str, details["loc"]))
    if details["type"] == "value_error":  # raised by `_one_of`, which says what it got
        return f"{place}: {details['ctx']['error']}"
    return f"{place}: {details['msg']}; got {details['input']!r}"


def _with_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_none(item) for name, item in value.items()}
    return None if value == "none" else value


def _lines(values: dict[str, Any], usual: dict[str, Any]) -> list[str]:
    return [
        f"{_key(name)} = {_toml(value)}"
        for name, value in values.items()
        if not (value is None and name in usual and usual[name] is None)
    ]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if value is None:
        return _toml("none")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # JSON's numbers, booleans and strings are TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
