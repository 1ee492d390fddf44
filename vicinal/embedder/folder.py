"""The folder that an embedder is saved in: config.json, model.safetensors, README.md, and perhaps calibration.json."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float32
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load, save
from torch import Tensor

from vicinal._util.files import prepare_output, replacing, write_atomically
from vicinal._util.reading import read_content, read_json, reading
from vicinal.embedder.calibration import Calibration
from vicinal.embedder.head import Normalisation, Pooling
from vicinal.errors import DataError, InputError
from vicinal.neighbours.rounding import pack_rows, unpack_rows

__all__ = [
    "DESCRIPTION",
    "Card",
    "Config",
    "Rounding",
    "identity",
    "model_in",
    "read_calibration",
    "read_folder",
    "sealed",
    "write_folder",
]


# The model card: what an embedder was made from and how well it does, as Markdown.

DESCRIPTION = "An embedder: it maps inputs to vectors whose distances tell how alike the inputs are."
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~$&])")


def plain_markdown(text: object) -> str:
    r"""Return a text that Markdown shows as it is: names of classes and files are no markup.

    Example:
        >>> print(plain_markdown("<b>a_b</b> | [x](y)"))
        \<b\>a\_b\</b\> \| \[x\](y)
    """
    return SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


@dataclass(frozen=True)
class Card:
    """What a saved embedder says about itself; every part may be left empty.

    Attributes:
        title: What to call it.
        description: A sentence or two: what it is for, and what not.
        data: Facts on the training data by name (dataset, classes, images, hash).
        recipe: The recipe of the training run, as TOML.
        scores: Test scores by name, as fractions; None where a score is undefined.
        trained_on: Names of the classes that it was trained on: nothing is promised or measured on them.
    """

    title: str = ""
    description: str = ""
    data: Mapping[str, str | int | float] = field(default_factory=dict)
    recipe: str = ""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    trained_on: tuple[str, ...] = ()


def card_markdown(card: Card, facts: Mapping[str, Any], same: str = "") -> str:
    """Write a card as Markdown.

    Args:
        card: What the maker says of the embedder.
        facts: What the embedder says of itself: one row each.
        same: When two items count as the same, where that is known.

    Example:
        >>> print(card_markdown(Card(title="Birds", scores={"MAP@R": 0.25}), {"dim": 64}).split("## ")[0])
        ---
        library_name: vicinal
        tags:
        - metric-learning
        - image-retrieval
        ---
        <BLANKLINE>
        # Birds
        <BLANKLINE>
        An embedder: it maps inputs to vectors whose distances tell how alike the inputs are.
        <BLANKLINE>
        <BLANKLINE>
    """
    parts = [
        "---\nlibrary_name: vicinal\ntags:\n- metric-learning\n- image-retrieval\n---",
        f"# {plain_markdown(card.title) or 'vicinal embedder'}",
        plain_markdown(card.description) or DESCRIPTION,
        "## Use",
        "```python\nfrom vicinal.embedder import Embedder\n\n"
        'embedder = Embedder.load("path/to/this/folder")\n'
        'vectors = embedder.encode(["one.jpg", "two.jpg"])\n```',
        "## Model",
        _table("fact", "value", facts),
    ]
    if same:
        parts += ["## Same or different", f"{plain_markdown(same[0].upper() + same[1:])}."]
    if card.scores:
        shown = {name: "undefined" if value is None else f"{value:.4f}" for name, value in card.scores.items()}
        parts += ["## Scores", _table("score", "value", shown)]
    if card.data:
        parts += ["## Training data", _table("fact", "value", card.data)]
    if card.recipe:
        longest = max(map(len, re.findall("`+", card.recipe)), default=0)
        fence = "`" * max(3, longest + 1)  # which nothing in the recipe closes
        parts += ["## Recipe", f"{fence}toml\n{card.recipe.strip()}\n{fence}"]
    return "\n\n".join(parts) + "\n"


def _table(left: str, right: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {left} | {right} |", "| --- | --- |"]
    return "\n".join(lines + [f"| {plain_markdown(name)} | {plain_markdown(value)} |" for name, value in rows.items()])


CONFIG, WEIGHTS, README, CALIBRATION = "config.json", "model.safetensors", "README.md", "calibration.json"
IN_RUN, IN_COMPARISON = "model", "best"  # where a run and a comparison keep theirs
FORMER_BEST = ".best.former"  # where a comparison keeps the former one for the moment in which a new one is put there
VERSION: Final = 1


class Rounding(BaseModel):
    """How the numbers of embeddings are rounded.

    Attributes:
        numbers: To 8-bit integers, or to a single bit each.
        middle: What a number is above or below, for bits; zero where nothing is said.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    numbers: Literal["int8", "bits"]
    middle: tuple[float, ...] | None = None

    def __call__(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Rows of length 1 that fewer bytes can hold; one with NaN or infinity becomes NaN, which others refuse."""
        finite = np.isfinite(rows).all(axis=1, keepdims=True)
        apart = np.where(finite, rows, 0.0) - (0.0 if self.middle is None else np.array(self.middle))
        packed = pack_rows(apart.astype(np.float32), self.numbers)
        return np.where(finite, unpack_rows(packed, self.numbers, rows.shape[1]), np.float32(np.nan))


class Config(BaseModel):
    """What config.json holds: enough to build the embedder that the weights belong to."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["vicinal-embedder"] = "vicinal-embedder"
    version: Literal[1] = VERSION
    backbone: str
    options: dict[str, Any]
    dim: int | None
    pooling: Pooling
    normalisation: Normalisation
    bias: bool
    transform: dict[str, Any] | None
    sha256: str = ""
    card: Card
    rounding: Rounding | None = None  # not written where there is none, as in earlier versions
    checksum: str = ""  # of all the rest; those of earlier versions have none


def sealed(config: Config, state: Mapping[str, Tensor]) -> tuple[Config, bytes]:
    """Return the weights as they are written, and the description with their hash filled in."""
    weights = save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()})
    return config.model_copy(update={"sha256": hashlib.sha256(weights).hexdigest()}), weights


def identity(config: Config) -> str:
    """Return a hash of all that embeddings depend on: settings, transform and weights, but not what the card says."""
    content = config.model_dump(mode="json", exclude={"card", "format", "version", "checksum"} | _unsaid(config))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_folder(
    folder: Path,
    config: Config,
    state: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    calibration: Calibration | None = None,
) -> None:
    """Write the files; each appears whole or not at all, and config.json last.

    Args:
        folder: Made if it is not there.
        config: Its hash is filled in here.
        state: Names and tensors.
        facts: What the model card says of the embedder itself.
        calibration: From which similarity on two items count as the same.
    """
    prepare_output(folder / CONFIG)
    config, weights = sealed(config, state)
    if calibration is not None and calibration.embedder != identity(config):
        raise InputError(
            "The calibration is that of other weights: calibrate anew (vicinal calibrate), or take it away "
            "(embedder.calibration = None)."
        )
    (folder / CALIBRATION).unlink(missing_ok=True)  # of an embedder that was here before
    with replacing(folder / WEIGHTS) as file:
        file.write(weights)
    with replacing(folder / README) as file:
        file.write(card_markdown(config.card, facts, str(calibration or "")).encode())
    if calibration is not None:
        write_atomically(folder / CALIBRATION, json.dumps(calibration.as_dict(), indent=2) + "\n")
    config = config.model_copy(update={"checksum": _checksum(config)})
    with replacing(folder / CONFIG) as file:
        file.write(f"{config.model_dump_json(indent=2, exclude=_unsaid(config))}\n".encode())


def model_in(folder: Path) -> Path:
    """Return where the embedder of a folder is: there, or in that of a run (`model/`) or of a comparison (`best/`)."""
    places = (folder, *(folder / name for name in (IN_RUN, IN_COMPARISON, FORMER_BEST)))
    return next((place for place in places if os.path.isfile(place / CONFIG)), folder)


def read_folder(folder: Path) -> tuple[Config, dict[str, Tensor]]:
    """Read and check a saved embedder: its description, and its tensors by name.

    Args:
        folder: Of the embedder, or of the run or comparison that it is in.
    """
    folder = model_in(folder)
    absent = [f"missing: {name}" for name in (CONFIG, WEIGHTS) if not os.path.isfile(folder / name)]
    if absent:
        raise DataError(
            f"{folder} is not a saved embedder.",
            absent,
            "Give a folder that Embedder.save, vicinal train or vicinal compare wrote.",
        )
    config = _read_config(folder / CONFIG)
    weights = read_content(folder / WEIGHTS)
    actual = hashlib.sha256(weights).hexdigest()
    if actual != config.sha256:
        raise DataError(
            f"{folder / WEIGHTS} is damaged or belongs to another embedder: its SHA-256 is {actual}, "
            f"{CONFIG} says {config.sha256}.",
            hint="Copy or save the folder again.",
        )
    with reading(folder / WEIGHTS, "a safetensors file"):
        return config, load(weights)


def read_calibration(folder: Path, embedder: str) -> Calibration | None:
    """Read the calibration in the folder of an embedder, if it has one.

    Args:
        folder: Of the embedder itself.
        embedder: Its identity.
    """
    path = folder / CALIBRATION
    if not path.is_file():
        return None
    try:
        calibration = Calibration.of(read_json(path))
    except DataError as error:
        raise DataError(f"{path}: {error}", hint="Delete it and calibrate anew: vicinal calibrate.") from None
    if calibration.embedder != embedder:
        raise DataError(
            f"{path} belongs to another embedder than the one beside it.",
            hint="Delete it and calibrate anew: vicinal calibrate.",
        )
    return calibration


def _read_config(path: Path) -> Config:
    raw = read_json(path)
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != VERSION:
        raise DataError(
            f"{path} has format version {version}; this vicinal reads version {VERSION}.",
            hint="Load it with the vicinal that saved it, or a newer one.",
        )
    try:
        config = Config.model_validate_json(read_content(path))
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}; got {e['input']!r}" for e in error.errors()]
        raise DataError(f"{path} does not describe an embedder.", problems) from None
    if config.checksum not in ("", _checksum(config)):
        raise DataError(
            f"{path} is damaged or was changed: its content is not what its checksum says.",
            hint="Copy or save the folder again.",
        )
    return config


def _checksum(config: Config) -> str:
    return hashlib.sha256(config.model_dump_json(exclude={"checksum"} | _unsaid(config)).encode()).hexdigest()


def _unsaid(config: Config) -> set[str]:
    return {"rounding"} if config.rounding is None else set()
