"""The folder that an embedder is saved in: config.json, model.safetensors and README.md."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load, save
from torch import Tensor

from vicinal.atomic import prepare_output, replacing
from vicinal.embedder.card import Card, card_markdown
from vicinal.embedder.head import Normalisation, Pooling
from vicinal.errors import DataError
from vicinal.reading import read_content, read_json, reading

__all__ = ["Config", "read_folder", "write_folder"]

CONFIG, WEIGHTS, README = "config.json", "model.safetensors", "README.md"
IN_RUN, IN_COMPARISON = "model", "best"  # where a run and a comparison keep theirs
VERSION: Final = 1


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


def write_folder(folder: Path, config: Config, state: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write the three files; each appears whole or not at all, and config.json last.

    Args:
        folder: Made if it is not there.
        config: Its hash is filled in here.
        state: Names and tensors.
        facts: What the model card says of the embedder itself.
    """
    prepare_output(folder / CONFIG)
    weights = save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()})
    config = config.model_copy(update={"sha256": hashlib.sha256(weights).hexdigest()})
    with replacing(folder / WEIGHTS) as file:
        file.write(weights)
    with replacing(folder / README) as file:
        file.write(card_markdown(config.card, facts).encode())
    with replacing(folder / CONFIG) as file:
        file.write(f"{config.model_dump_json(indent=2)}\n".encode())


def model_in(folder: Path) -> Path:
    """Return where the embedder of a folder is: there, or in that of a run (`model/`) or of a comparison (`best/`)."""
    places = (folder, folder / IN_RUN, folder / IN_COMPARISON)
    return next((place for place in places if (place / CONFIG).is_file()), folder)


def read_folder(folder: Path) -> tuple[Config, dict[str, Tensor]]:
    """Read and check a saved embedder: its description, and its tensors by name.

    Args:
        folder: Of the embedder, or of the run or comparison that it is in.
    """
    folder = model_in(folder)
    absent = [f"missing: {name}" for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
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


def _read_config(path: Path) -> Config:
    raw = read_json(path)
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != VERSION:
        raise DataError(
            f"{path} has format version {version}; this vicinal reads version {VERSION}.",
            hint="Load it with the vicinal that saved it, or a newer one.",
        )
    try:
        return Config.model_validate_json(read_content(path))
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}; got {e['input']!r}" for e in error.errors()]
        raise DataError(f"{path} does not describe an embedder.", problems) from None
