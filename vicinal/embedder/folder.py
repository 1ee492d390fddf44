"""The folder of a saved embedder: config.json, model.safetensors, README.md, and optionally calibration.json."""

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


# Model card: training data, recipe and scores of an embedder, as Markdown.

DESCRIPTION = "An embedder: it maps inputs to vectors whose distances tell how alike the inputs are."
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~$&])")


def plain_markdown(text: object) -> str:
    r"""Escape a text so that Markdown shows it literally, such as names of classes and files.

    Example:
        >>> print(plain_markdown("<b>a_b</b> | [x](y)"))
        \<b\>a\_b\</b\> \| \[x\](y)
    """
    return SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


@dataclass(frozen=True)
class Card:
    """Description of a saved embedder; every part may be empty.

    Attributes:
        title: Title of the card.
        description: A sentence or two on what it is for, and what not.
        data: Facts about the training data by name (dataset, classes, images, hash).
        recipe: Recipe of the training run, as TOML.
        scores: Test scores by name, as fractions; None for undefined scores.
        trained_on: Names of the classes that it was trained on; calibration leaves them out.
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
        card: Description of the embedder.
        facts: Properties of the embedder itself, one row each.
        same: Description of the calibration; empty if there is none.

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
        parts += ["## Same or different", plain_markdown(same)]
    if card.scores:
        shown = {name: "undefined" if value is None else f"{value:.4f}" for name, value in card.scores.items()}
        parts += ["## Scores", _table("score", "value", shown)]
    if card.data:
        parts += ["## Training data", _table("fact", "value", card.data)]
    if card.recipe:
        longest = max(map(len, re.findall("`+", card.recipe)), default=0)
        fence = "`" * max(3, longest + 1)  # longer than any run of backticks in the recipe
        parts += ["## Recipe", f"{fence}toml\n{card.recipe.strip()}\n{fence}"]
    return "\n\n".join(parts) + "\n"


def _table(left: str, right: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {left} | {right} |", "| --- | --- |"]
    return "\n".join(lines + [f"| {plain_markdown(name)} | {plain_markdown(value)} |" for name, value in rows.items()])


CONFIG, WEIGHTS, README, CALIBRATION = "config.json", "model.safetensors", "README.md", "calibration.json"
IN_RUN, IN_COMPARISON = "model", "best"  # subfolders of a run and of a comparison that hold their embedder
FORMER_BEST = ".best.former"  # where a comparison keeps the previous one while it is replaced
VERSION: Final = 1


class Rounding(BaseModel):
    """How the numbers of embeddings are rounded.

    Attributes:
        numbers: Number format: 8-bit integers, or a single bit each.
        middle: Value per dimension that a bit compares a number with; None for zero.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    numbers: Literal["int8", "bits"]
    middle: tuple[float, ...] | None = None

    def __call__(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Return rows of length 1 that fit into fewer bytes; rows with NaN or infinity become NaN (rejected later)."""
        finite = np.isfinite(rows).all(axis=1, keepdims=True)
        apart = np.where(finite, rows, 0.0) - (0.0 if self.middle is None else np.array(self.middle))
        packed = pack_rows(apart.astype(np.float32), self.numbers)
        return np.where(finite, unpack_rows(packed, self.numbers, rows.shape[1]), np.float32(np.nan))


class Config(BaseModel):
    """Content of config.json: everything needed to build the embedder that the weights belong to."""

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
    rounding: Rounding | None = None  # not written if None, as in earlier versions
    checksum: str = ""  # hash of all other fields; empty in earlier versions


def sealed(config: Config, state: Mapping[str, Tensor]) -> tuple[Config, bytes]:
    """Return the config with the hash of the weights filled in, and the weights as bytes."""
    weights = save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()})
    return config.model_copy(update={"sha256": hashlib.sha256(weights).hexdigest()}), weights


def identity(config: Config) -> str:
    """Return a hash of everything that embeddings depend on: settings, transform and weights, but not the card."""
    content = config.model_dump(mode="json", exclude={"card", "format", "version", "checksum"} | _unsaid(config))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_folder(
    folder: Path,
    config: Config,
    state: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    calibration: Calibration | None = None,
) -> None:
    """Write the files; each is written atomically, and config.json last.

    Args:
        folder: Folder to write to; created if it does not exist.
        config: Description of the embedder; the hash of the weights is filled in here.
        state: Tensors of the network by name.
        facts: Properties of the embedder itself, for the model card.
        calibration: Threshold from which two items count as the same.
    """
    prepare_output(folder / CONFIG)
    config, weights = sealed(config, state)
    if calibration is not None and calibration.embedder != identity(config):
        raise InputError(
            "The calibration belongs to other weights: calibrate again (vicinal calibrate), or remove it "
            "(embedder.calibration = None)."
        )
    (folder / CALIBRATION).unlink(missing_ok=True)  # from an embedder that was saved here before
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
    """Return where the embedder is: in the folder itself, or in `model/` of a run or `best/` of a comparison."""
    candidates = (folder, *(folder / name for name in (IN_RUN, IN_COMPARISON, FORMER_BEST)))
    return next((path for path in candidates if os.path.isfile(path / CONFIG)), folder)


def read_folder(folder: Path) -> tuple[Config, dict[str, Tensor]]:
    """Read and check a saved embedder: its description, and its tensors by name.

    Args:
        folder: Folder of the embedder, or of the run or comparison that contains it.
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
    """Read the calibration in the folder of an embedder; None if it has none.

    Args:
        folder: Folder of the embedder itself.
        embedder: Identity of the embedder.
    """
    path = folder / CALIBRATION
    if not path.is_file():
        return None
    try:
        calibration = Calibration.of(read_json(path))
    except DataError as error:
        raise DataError(f"{path}: {error}", hint="Delete it and calibrate again: vicinal calibrate.") from None
    if calibration.embedder != embedder:
        raise DataError(
            f"{path} belongs to another embedder.",
            hint="Delete it and calibrate again: vicinal calibrate.",
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
            f"{path} is corrupted: its checksum does not match.",
            hint="Copy or save the folder again.",
        )
    return config


def _checksum(config: Config) -> str:
    return hashlib.sha256(config.model_dump_json(exclude={"checksum"} | _unsaid(config)).encode()).hexdigest()


def _unsaid(config: Config) -> set[str]:
    return {"rounding"} if config.rounding is None else set()
