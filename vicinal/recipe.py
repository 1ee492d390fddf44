"""Recipes: everything that defines a run, one TOML file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vicinal.errors import InputError, UnknownName
from vicinal.training.settings import Settings

__all__ = ["Recipe", "read_recipe", "recipe_from", "recipe_toml"]


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
        backbone: A name in `vicinal.backbones.BACKBONES`.
        backbone_options: Its options.
        weights: "imagenet", a path or a URL; None starts from random weights.
        dim: Length of the embeddings; None for the backbone's features as they are.
        pooling: "average", "max" or "both".
        normalisation: Of embeddings, in training and after.
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

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: str = "multi_similarity"
    loss_options: dict[str, Any] = Field(default_factory=dict)
    mining: str | None = None
    mining_options: dict[str, Any] = Field(default_factory=dict)
    memory: Annotated[int, Field(ge=0)] = 0
    memory_start: Annotated[int, Field(ge=0)] = 0
    proxies_per_class: Annotated[int, Field(ge=1)] = 1
    proxy_multiplier: Annotated[float, Field(gt=0)] = 100.0
    backbone: str = "convnet"
    backbone_options: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None
    dim: Annotated[int | None, Field(ge=1)] = 64
    pooling: Literal["average", "max", "both"] = "average"
    normalisation: Literal["sphere", "ball"] = "sphere"
    images: str | None = None
    sampler: str = "classes"
    classes_per_batch: Annotated[int, Field(ge=1)] = 8
    samples_per_class: Annotated[int, Field(ge=1)] = 4
    freeze: bool = False
    copies: Annotated[int, Field(ge=1)] = 4
    train_stages: Annotated[int | None, Field(ge=0)] = None
    freeze_batch_norm: bool = False
    training: Settings = Field(default_factory=Settings)


def recipe_from(values: dict[str, Any], base: Recipe | None = None) -> Recipe:
    """Make a recipe from names and values, on top of another one; settings of the training loop may stand among them.

    Every mistake is reported at once.

    Example:
        >>> recipe_from({"loss": "triplet", "steps": 50}).training.steps
        50
    """
    former = (base or Recipe()).model_dump()
    loop = dict(former.pop("training"), **values.get("training", {}))
    unknown = []
    for name, value in values.items():
        if name == "training":
            continue
        if name in former:
            former[name] = value
        elif name in loop:
            loop[name] = value
        else:
            unknown.append(str(UnknownName("setting", name, [*former, *loop])).split(" Choose from")[0])
    try:
        recipe = Recipe(**former, training=Settings.from_dict(loop))
    except (ValidationError, InputError) as error:
        wrong = (
            [f"{'.'.join(map(str, e['loc']))}: {e['msg']}; got {e['input']!r}" for e in error.errors()]
            if isinstance(error, ValidationError)
            else [str(error)]
        )
        raise InputError("The recipe has mistakes:\n" + "\n".join(f"  - {w}" for w in [*unknown, *wrong])) from None
    if unknown:
        raise InputError("The recipe has mistakes:\n" + "\n".join(f"  - {text}" for text in unknown))
    return recipe


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the names and values of a TOML file, for `recipe_from`."""
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise InputError(f"Cannot read the recipe {path}: {error.strerror}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The recipe {path} is not TOML: {error}.") from None


def recipe_toml(recipe: Recipe) -> str:
    """Write a recipe as TOML that `read_recipe` reads back; None is said by leaving a name out.

    Example:
        >>> print(recipe_toml(Recipe(loss="triplet", loss_options={"margin": 0.1})).splitlines()[0])
        loss = "triplet"
    """
    values = recipe.model_dump()
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    lines = _lines({name: value for name, value in values.items() if name not in tables})
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(values: dict[str, Any]) -> list[str]:
    # TOML's numbers, strings, booleans and flat arrays are written as JSON's are.
    return [f"{name} = {json.dumps(value)}" for name, value in values.items() if value is not None]
