"""Checkpoints: one safetensors file with the other state as JSON in its header, written atomically."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vicinal._util.files import replacing_path
from vicinal.errors import DataError
from vicinal.training.state import TrainingFiles

__all__ = [
    "VERSION",
    "load_best",
    "load_checkpoint",
    "random_state",
    "restore_random_state",
    "save_best",
    "save_checkpoint",
]

VERSION = 4
RESTORE = "Restore a copy of it, or start a new run in another folder."
TENSOR = "$tensor"


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write nested dictionaries and lists of tensors, numbers, strings and None.

    The file appears under its name only when it is complete and on disk: a process killed at any moment leaves
    the former checkpoint or the new one.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps({"version": VERSION, "state": _take_out(state, "", tensors)})
    header = {"vicinal": skeleton, "sha256": _checksum(skeleton, tensors)}
    try:
        with replacing_path(path) as partial:
            save_file(tensors, partial, metadata=header)
    except SafetensorError as error:  # raised for a full disk, for example
        raise DataError(
            f"Could not write the checkpoint {path}: {error}.",
            hint="Free some space or choose another folder. The last complete checkpoint is unchanged.",
        ) from error


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote.

    Raises:
        DataError: If the file is corrupted or of another version.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            skeleton = metadata["vicinal"]
            header = json.loads(skeleton)
            version = header["version"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a checkpoint of vicinal, or it is corrupted: {error}.", hint=RESTORE) from error
    if version != VERSION:
        raise DataError(
            f"{path} is a checkpoint of version {version}; this vicinal reads version {VERSION}.",
            hint="Resume with the vicinal that wrote it, or start a new run.",
        )
    if metadata.get("sha256") != _checksum(skeleton, tensors):
        raise DataError(f"{path} is corrupted: its checksum does not match.", hint=RESTORE)
    state: dict[str, Any] = _put_back(header["state"], tensors)
    return state


def save_best(files: TrainingFiles, state: Mapping[str, Any], *, step: int, run: str) -> None:
    """Write the best weights so far, and keep the former ones until the last checkpoint refers to the new ones.

    A run that is killed between the two writes resumes from a last checkpoint that refers to the former ones.
    """
    if files.best.exists():
        os.replace(files.best, files.former_best)
    save_checkpoint(files.best, {"step": step, "run": run, **state})


def load_best(files: TrainingFiles, *, step: int, run: str) -> dict[str, Any]:
    """Read the best weights that the last checkpoint refers to, by step and run.

    Raises:
        DataError: If they are corrupted, or belong to another run or step.
    """
    seen = []
    for path in (files.best, files.former_best):
        if path.exists():
            state = load_checkpoint(path)
            if (state.get("step"), state.get("run")) == (step, run):
                if path != files.best:  # the run was killed between the two checkpoints
                    os.replace(path, files.best)
                files.former_best.unlink(missing_ok=True)
                return state
            seen.append(f"{path} holds step {state.get('step')} of run {state.get('run')}")
    raise DataError(
        f"{files.last} needs the best weights of step {step} of run {run}, which are not in {files.folder}.",
        seen or [f"missing: {files.best}"],
        f"Restore the {files.best.name} of this run, or start a new run in another folder.",
    )


def _checksum(skeleton: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the whole content of a checkpoint."""
    digest = hashlib.sha256(skeleton.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _take_out(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """Return the value as JSON, with every tensor moved into `tensors` under its path."""
    if isinstance(value, Tensor):
        name = f"{len(tensors)}{where}"  # numbered, because keys may contain "/"
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
    """Return the state of torch's random generators, which dropout uses."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Tensor]) -> None:
    """Restore the state of torch's random generators."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
