"""The embedder of a generation of an index: a copy in its folder, or, for imported vectors, its hash alone."""

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

__all__ = ["KeptModel", "has_model", "header_for", "keep_model", "kept_in"]

MODEL, ELSEWHERE = "model", "model-elsewhere.txt"


def header_for(model: Embedder) -> Header:
    """What the vectors of an embedder have in common."""
    return Header(model.dim, model.distance, model.identity(), kept_in(model.numbers))


def kept_in(numbers: str) -> str:
    """What an index keeps numbers in: a byte for a bit, too, since search wants a byte of each number anyway."""
    return "int8" if numbers == "bits" else numbers


def keep_model(generation: Path, known: str, model: Embedder | None) -> None:
    """Keep a copy of an embedder beside the vectors that it made.

    Args:
        generation: The folder.
        known: The embedder's hash; empty if nobody knows what made the vectors.
        model: None if there is nothing but the hash, which is then noted down: a copy that is lost is another matter.
    """
    if model is not None:
        model.save(generation / MODEL)
        (generation / ELSEWHERE).unlink(missing_ok=True)
        return
    if (generation / MODEL).is_dir():  # of a build that was killed
        shutil.rmtree(generation / MODEL)
    if known:
        write_atomically(generation / ELSEWHERE, f"The embedder {known} made these vectors; it is not here.\n")


def has_model(generation: Path) -> bool:
    """Whether there is, or should be, a copy of the embedder, and not its hash alone."""
    return not (generation / ELSEWHERE).is_file()


@final
class KeptModel:
    """Opens the embedder and the calibration of the generation that serves, once each.

    Args:
        index: The folder of the index, for messages.
        trust: The code that the embedder may name.
    """

    def __init__(self, index: Path, trust: Trust = NO_TRUST) -> None:
        self._index, self._trust = index, trust
        self._embedder: tuple[str, Embedder] | None = None
        self._calibration: tuple[Path, tuple[int, int], Calibration | None] | None = None

    def remember(self, known: str, model: Embedder) -> None:
        """Take a copy of an embedder that is open already: whoever has it may go on training it."""
        self._embedder = (known, copy.deepcopy(model))

    def calibrate(self, generation: Path, known: str, calibration: Calibration) -> None:
        """Give the copy a calibration."""
        model = self.embedder(generation, known)
        model.calibration = calibration
        model.save(generation / MODEL)

    def without_embedder(self) -> InputError:
        """What is said where there is nothing that could embed."""
        return InputError(
            f"{self._index} has no embedder: its vectors come from elsewhere. Search with vectors (vector=, --vector) "
            "or by an item (item=, --item), and add vectors; or make the index with the embedder that made them "
            "(Index.of_vectors(..., embedder=model))."
        )

    def embedder(self, generation: Path, known: str) -> Embedder:
        """The copy.

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
        """Read by itself, as a search with vectors needs no network, and again when another process has written it."""
        if not known:
            return None
        folder, kept = generation / MODEL, self._calibration
        try:
            file = (folder / CALIBRATION).stat()
        except FileNotFoundError:  # none yet; or the one that is known is just being replaced, and serves until then
            return kept[2] if kept is not None and kept[0] == folder else None
        written = file.st_mtime_ns, file.st_ino
        if kept is None or kept[:2] != (folder, written):
            kept = self._calibration = (folder, written, read_calibration(folder, known))
        return kept[2]

    def problems(self, generation: Path, known: str) -> list[str]:
        """What is wrong with the copy, one sentence each."""
        if not known or not has_model(generation):
            return []
        try:
            found = identity(read_folder(generation / MODEL)[0])
        except Exception as error:  # whatever a damaged file brings about is what was asked for
            return [f"{MODEL}/ cannot be read: {str(error).splitlines()[0]}"]
        return [] if found == known else [f"{MODEL}/ is not the embedder that made the vectors"]

    def carry_over(self, generation: Path, known: str, building: Path) -> None:
        """Keep the same embedder in the next generation."""
        if known and has_model(generation):
            # As it is there: another process may have calibrated it since this one read it.
            shutil.copytree(generation / MODEL, building / MODEL, dirs_exist_ok=True)
        else:
            keep_model(building, known, None)
