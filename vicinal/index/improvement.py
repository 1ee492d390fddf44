"""improvement.npz: what every search of an index does for better neighbours, without being told each time."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float32, Float64

from vicinal.atomic import replacing
from vicinal.errors import DataError, InputError
from vicinal.neighbours import Whitening, augment_references, learn_whitening
from vicinal.reading import reading

__all__ = ["Improvement", "KeptImprovement", "as_improvement", "carry_over"]

FILE = "improvement.npz"
MOST = 1000  # neighbours that may be asked for of any number of items


@final
@dataclass(frozen=True, eq=False)
class Improvement:
    """What vectors go through before they are searched.

    Attributes:
        whitening: First, queries and items alike; None for none.
        augment: Then each item is drawn towards so many of its nearest others; 0 for none.
    """

    whitening: Whitening | None = None
    augment: int = 0

    def __str__(self) -> str:
        parts = [] if self.whitening is None else [f"whitened to {len(self.whitening.axes)} dimensions"]
        if self.augment:
            parts.append(f"augmented by {self.augment}")
        return ", ".join(parts)

    def of_queries(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n e"]:
        """Return what is sought."""
        return self._whitened(rows).astype(np.float32)

    def of_items(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n e"]:
        """Return what it is sought among: all items, since each looks at the others."""
        better = self._whitened(rows)
        if self.augment and len(better):
            better = augment_references(better, count=self.augment).numpy()
        return better.astype(np.float32)

    def content(self) -> bytes:
        """Return the file."""
        arrays: dict[str, Any] = {"augment": np.array(self.augment)}
        if self.whitening is not None:
            arrays |= self.whitening._asdict()
        written = io.BytesIO()
        np.savez(written, **arrays)
        return written.getvalue()

    def _whitened(self, rows: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n e"]:
        return rows.astype(np.float64) if self.whitening is None else self.whitening.apply(rows)


def as_improvement(whiten: Any, augment: int, dim: int, distance: str) -> Improvement | None:
    """Check what an index is asked to do with its vectors.

    Args:
        whiten: A whitening, or the vectors that one is learned from; None for none.
        augment: Neighbours that each item is drawn towards.
        dim: Of the index's vectors.
        distance: By which they are compared.

    Returns:
        None where nothing is asked for.
    """
    if not 0 <= augment <= MOST:
        raise InputError(f"augment must be from 0 to {MOST:,}; got {augment}.")
    whitening = whiten if whiten is None or isinstance(whiten, Whitening) else learn_whitening(whiten)
    if whitening is None and not augment:
        return None
    if whitening is not None and len(whitening.mean) != dim:
        raise InputError(f"The whitening was learned from {len(whitening.mean)} dimensions; the index has {dim}.")
    if whitening is None and distance != "cosine":
        raise InputError("Items are drawn towards their neighbours on the sphere: augment needs cosines, or whiten.")
    return Improvement(whitening, augment)


def carry_over(generation: Path, building: Path) -> None:
    """Keep the same improvement in the next generation, whose vectors are the same."""
    if (generation / FILE).is_file():
        shutil.copyfile(generation / FILE, building / FILE)


@final
class KeptImprovement:
    """Reads the improvement of the generation that serves, and again when another process has written it."""

    def __init__(self) -> None:
        self._read: tuple[Path, tuple[int, int], tuple[Improvement, str]] | None = None

    def of(self, generation: Path) -> tuple[Improvement, str] | None:
        """The improvement and a checksum of it; None if the vectors are searched as they are."""
        path, kept = generation / FILE, self._read
        try:
            file = path.stat()
        except FileNotFoundError:
            return None
        written = file.st_mtime_ns, file.st_ino
        if kept is None or kept[:2] != (path, written):
            kept = self._read = path, written, _from_file(path)
        return kept[2]

    def keep(self, generation: Path, improvement: Improvement | None) -> None:
        """Write it; None goes back to the vectors as they are."""
        if improvement is None:
            (generation / FILE).unlink(missing_ok=True)
            return
        with replacing(generation / FILE) as file:
            file.write(improvement.content())

    def problems(self, generation: Path) -> list[str]:
        """What is wrong with it, one sentence each."""
        try:
            if os.path.isfile(generation / FILE):
                _from_file(generation / FILE)
        except DataError as error:
            return [str(error).splitlines()[0]]
        return []


def _from_file(path: Path) -> tuple[Improvement, str]:
    hint = (
        "Restore it from a copy, or say anew what searches should do: index.improve(...), or vicinal index FOLDER with "
        "--whiten, --augment or --plain."
    )
    with reading(path, "what searches do for better neighbours", hint):
        content = path.read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            whitening = Whitening(arrays["mean"], arrays["axes"]) if "mean" in arrays else None
            improvement = Improvement(whitening, int(arrays["augment"]))
        if whitening is not None and (whitening.axes.ndim, whitening.mean.shape) != (2, whitening.axes.shape[1:]):
            raise ValueError("mean and axes do not fit each other")
    return improvement, hashlib.sha256(content).hexdigest()
