"""Checkpoints: one safetensors file whose header holds the rest as JSON, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vicinal.atomic import replacing_path
from vicinal.errors import DataError

__all__ = [
    "VERSION",
    "load_checkpoint",
    "random_state",
    "restore_random_state",
    "save_checkpoint",
]

VERSION = 2
TENSOR = "$tensor"


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write nested dictionaries and lists of tensors, numbers, strings and None.

    The file appears under its name only when it is complete and on disk: a process killed at any moment leaves the
    former checkpoint or the new one.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps({"version": VERSION, "state": _take_out(state, "", tensors)})
    try:
        with replacing_path(path) as partial:
            save_file(tensors, partial, metadata={"vicinal": skeleton})
    except SafetensorError as error:  # which is how it tells of a full disk
        raise DataError(
            f"Could not write the checkpoint {path}: {error}.",
            hint="Free some space or choose another place; the last complete checkpoint is untouched.",
        ) from error


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["vicinal"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise DataError(
            f"{path} is not a checkpoint of vicinal, or it is damaged: {error}.",
            hint="Put back a copy of it, or start the run anew in another folder.",
        ) from error
    if header["version"] != VERSION:
        raise DataError(
            f"{path} is a checkpoint of version {header['version']}; this vicinal reads version {VERSION}.",
            hint="Resume with the vicinal that wrote it, or start the run anew.",
        )
    state: dict[str, Any] = _put_back(header["state"], tensors)
    return state


def _take_out(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """Return the value as JSON, with every tensor moved into `tensors` under its path."""
    if isinstance(value, Tensor):
        name = f"{len(tensors)}{where}"  # numbered, as keys may hold a "/" themselves
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {TENSOR: name}
    if isinstance(value, dict):
        return {
            "$items": [[key, _take_out(item, f"{where}/{key}", tensors)] for key, item in value.items()],
        }
    if isinstance(value, (list, tuple)):
        return [_take_out(item, f"{where}/{index}", tensors) for index, item in enumerate(value)]
    return value


def _put_back(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if TENSOR in value:
            return tensors[value[TENSOR]]
        return {key: _put_back(item, tensors) for key, item in value["$items"]}
    if isinstance(value, list):
        return [_put_back(item, tensors) for item in value]
    return value


def random_state() -> dict[str, Tensor]:
    """Return the state of torch's own generators (dropout draws from them)."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Tensor]) -> None:
    """Put torch's own generators back where `random_state` found them."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
