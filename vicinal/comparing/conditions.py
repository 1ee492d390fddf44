"""The folder of a comparison: one set of conditions, one process at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vicinal.atomic import write_atomically
from vicinal.comparing.contestants import DEMANDS, OF_THE_LOSS
from vicinal.errors import DataError, InputError
from vicinal.reading import read_json
from vicinal.recipe import Recipe, flat

__all__ = ["comparison_folder", "conditions"]

CONDITIONS, LOCK = "conditions.json", ".lock"
# What may differ between the trials of one comparison.
VARIED = (*OF_THE_LOSS, *DEMANDS, "backbone", "backbone_options", "dim", "seed", "fold", "data")


def conditions(recipe: Recipe, data: str, same_batches: bool, rates: int, tune: int, sampler: str) -> dict[str, Any]:
    """Return all that the runs of a comparison have in common.

    Args:
        recipe: Of any of them.
        data: Hash of the dataset's content.
        same_batches: Whether batches are composed alike for all losses.
        rates: Learning rates that each loss tries.
        tune: Trials of the search for each loss's settings.
        sampler: Which sampler chooses in it.
    """
    values = recipe.model_dump(mode="json")
    if values["weights"] is not None:
        values["weights"] = Path(values["weights"]).name
    shared = {name: value for name, value in flat(values).items() if name not in VARIED}
    shared |= {"images per batch": recipe.classes_per_batch * recipe.samples_per_class, "same batches": same_batches}
    shared |= {"learning rates tried": rates if rates > 1 else None}
    return {"data": data, **shared, "tune": tune, "sampler of the search": sampler if tune else None}


@contextmanager
def comparison_folder(folder: Path, stated: dict[str, Any]) -> Iterator[None]:
    """Hold a comparison's folder: made if need be, with the conditions in it, and locked against a second process.

    Raises:
        InputError: Where the folder holds a comparison under other conditions, or is in use.
        DataError: Where it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        raise InputError(
            f"Another process is at work on the comparison in {folder}: wait for it, or choose another --out."
        ) from None
    except OSError as error:
        raise DataError(
            f"Cannot write to the comparison's folder {folder}: {error.strerror}.",
            hint="Choose another one with --out.",
        ) from None
    try:
        _agree(folder, stated)
        yield
    finally:
        lock.release()


def _agree(folder: Path, stated: dict[str, Any]) -> None:
    path = folder / CONDITIONS
    if not path.exists():
        write_atomically(path, json.dumps(stated, indent=2) + "\n")
        return
    former = read_json(path)
    if not isinstance(former, dict):
        raise DataError(f"{path} does not state the conditions of a comparison.", hint="Choose another --out.")
    names = [name for name in {**former, **stated} if former.get(name) != stated.get(name)]
    if names:
        listed = "\n".join(f"  - {name} was {former.get(name)!r} and is now {stated.get(name)!r}" for name in names)
        raise InputError(
            f"{folder} holds a comparison under other conditions:\n{listed}\nGive the same ones to go on with it "
            "(losses, dims, backbones and seeds may be added), or choose another --out."
        )
