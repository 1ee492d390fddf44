"""The embedder of a generation of an index: a copy in its folder or, for imported vectors, only its hash."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import final

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.files import write_atomically
from vicinal.embedder import Calibration, Embedder
from vicinal.embedder.folder import CALIBRATION, identity, read_calibration, read_folder
from vicinal.errors import InputError
from vicinal.index.item import Header

__all__ = ["CachedModel", "has_model", "header_for", "keep_model", "kept_in"]

MODEL, ELSEWHERE = "model", "model-elsewhere.txt"


def header_for(model: Embedder) -> Header:
    """Return the header for the vectors of an embedder."""
    return Header(model.dim, model.distance, model.identity(), kept_in(model.numbers))


def kept_in(numbers: str) -> str:
    """Return the number format in an index. Bits are stored as bytes, since search needs a byte per number anyway."""
    return "int8" if numbers == "bits" else numbers


def keep_model(generation: Path, known: str, model: Embedder | None) -> None:
    """Save a copy of an embedder next to the vectors that it made.

    Args:
        generation: Folder of the generation.
        known: Hash of the embedder; empty if it is unknown.
        model: The embedder; None if only its hash is available, which is then written to a file, so that this case
            can be distinguished from a lost copy.
    """
    if model is not None:
        model.save(generation / MODEL)
        (generation / ELSEWHERE).unlink(missing_ok=True)
        return
    if (generation / MODEL).is_dir():  # left by an interrupted build
        shutil.rmtree(generation / MODEL)
    if known:
        write_atomically(generation / ELSEWHERE, f"The embedder {known} made these vectors; it is not here.\n")


def has_model(generation: Path) -> bool:
    """Return whether there is, or should be, a copy of the embedder rather than only its hash."""
    return not (generation / ELSEWHERE).is_file()


@final
class CachedModel:
    """Loads and caches the embedder and the calibration of the current generation.

    Args:
        index: Folder of the index, for messages.
        trust: Code that the embedder may import.
    """

    def __init__(self, index: Path, trust: Trust = NO_TRUST) -> None:
        self._index, self._trust = index, trust
        self._embedder: tuple[str, Embedder] | None = None
        self._calibration: tuple[Path, tuple[int, int], Calibration | None] | None = None

    def remember(self, known: str, model: Embedder) -> None:
        """Cache a copy of a loaded embedder; a copy, because the caller may continue to train it."""
        self._embedder = (known, copy.deepcopy(model))

    def calibrate(self, generation: Path, known: str, calibration: Calibration) -> None:
        """Save a calibration with the copy of the embedder."""
        model = self.embedder(generation, known)
        model.calibration = calibration
        model.save(generation / MODEL)

    def without_embedder(self) -> InputError:
        """Return the error for an index without an embedder."""
        return InputError(
            f"{self._index} has no embedder: its vectors come from elsewhere. Search with vectors (vector=, --vector) "
            "or by an item (item=, --item), and add vectors; or make the index with the embedder that made them "
            "(Index.of_vectors(..., embedder=model))."
        )

    def embedder(self, generation: Path, known: str) -> Embedder:
        """Return the copy of the embedder.

        Raises:
            InputError: If there is none.
        """
        if not known:
            raise self.without_embedder()
        if self._embedder is None or self._embedder[0] != known:
            if not has_model(generation):
                raise InputError(
                    f"{self._index} knows its embedder {known[:12]} by name alone: its vectors were imported. Search "
                    f"with vectors, or give it the embedder once: vicinal index MODEL --out {self._index} (or "
                    "Index.build(path, embedder))."
                )
            model = Embedder.load(generation / MODEL, allow_code=self._trust.sources)
            if model.identity() != known:
                raise InputError(f"{generation / MODEL} is not the embedder that made the vectors of {self._index}.")
            self._embedder = (known, model)
        return self._embedder[1]

    def calibration(self, generation: Path, known: str) -> Calibration | None:
        """Return the calibration.

        It is read without the network, which a search by vectors does not need, and read again after another process
        has written it.
        """
        if not known:
            return None
        folder, cached = generation / MODEL, self._calibration
        try:
            file = (folder / CALIBRATION).stat()
        except FileNotFoundError:  # none yet; or it is just being replaced, and the cached one is valid until then
            return cached[2] if cached is not None and cached[0] == folder else None
        written = file.st_mtime_ns, file.st_ino
        if cached is None or cached[:2] != (folder, written):
            cached = self._calibration = (folder, written, read_calibration(folder, known))
        return cached[2]

    def problems(self, generation: Path, known: str) -> list[str]:
        """Return what is wrong with the copy, one sentence per problem."""
        if not known or not has_model(generation):
            return []
        try:
            actual = identity(read_folder(generation / MODEL)[0])
        except Exception as error:  # a damaged file may raise anything, and each such error is a problem to report
            return [f"{MODEL}/ cannot be read: {str(error).splitlines()[0]}"]
        return [] if actual == known else [f"{MODEL}/ is not the embedder that made the vectors"]

    def carry_over(self, generation: Path, known: str, building: Path) -> None:
        """Copy the embedder to the next generation."""
        if known and has_model(generation):
            # Copied from disk: another process may have calibrated it since this one read it.
            shutil.copytree(generation / MODEL, building / MODEL, dirs_exist_ok=True)
        else:
            keep_model(building, known, None)
