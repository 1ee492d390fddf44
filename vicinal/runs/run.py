"""Runs: a record and the folder of its files; the only module that knows the names of the files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout
from pydantic import ValidationError

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.files import replacing, sealed, unsealed, write_atomically
from vicinal._util.reading import read_arrays
from vicinal.embedder import Embedder
from vicinal.embedder.folder import IN_RUN
from vicinal.errors import DataError, InputError
from vicinal.evaluation import Scores, evaluate
from vicinal.evaluation.items import GroundTruth, by_role
from vicinal.runs.recipe import Recipe
from vicinal.runs.record import Record, refusal
from vicinal.stats.intervals import class_sums
from vicinal.training.log import read_log

__all__ = [
    "EmbeddedItems",
    "Run",
    "RunFiles",
    "alone_in",
    "open_run",
    "queries_by_class",
    "recall_at",
    "score_test_items",
    "scores_by_class",
]


class EmbeddedItems(NamedTuple):
    """Embedded test items of a run.

    Attributes:
        embeddings: Embeddings, one row per item.
        labels: Index of each item's class in the record's `classes`.
        roles: Role of each item, "query" or "gallery"; None if there is no gallery.
    """

    embeddings: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    roles: npt.NDArray[Any] | None


@final
@dataclass(frozen=True)
class RunFiles:
    """Paths of the files of a run.

    Attributes:
        folder: Folder of the run.
    """

    folder: Path

    @property
    def recipe(self) -> Path:
        """The recipe, as TOML that `Recipe.read` reads."""
        return self.folder / "recipe.toml"

    @property
    def record(self) -> Path:
        """The record, as JSON; written last, so that a folder without it holds an unfinished run."""
        return self.folder / "record.json"

    @property
    def log(self) -> Path:
        """The log: losses and scores by step, one JSON line each."""
        return self.folder / "metrics.jsonl"

    @property
    def last(self) -> Path:
        """The last checkpoint, to resume from."""
        return self.folder / "last.ckpt"

    @property
    def best(self) -> Path:
        """Checkpoint of the best weights so far, by the validation score."""
        return self.folder / "best.ckpt"

    @property
    def former_best(self) -> Path:
        """Checkpoint of the previous best weights, kept until the last checkpoint refers to the new ones."""
        return self.folder / "former-best.ckpt"

    @property
    def model(self) -> Path:
        """Folder of the trained embedder, as `Embedder.load` takes it."""
        return self.folder / IN_RUN

    @property
    def test(self) -> Path:
        """Embeddings, labels and roles of the test items."""
        return self.folder / "test.npz"

    @property
    def lock(self) -> Path:
        """Lock of the process that uses the run; the system releases it when that process ends."""
        return self.folder / ".lock"

    @property
    def error(self) -> Path:
        """The traceback of a run that failed."""
        return self.folder / "error.txt"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run: its record, its folder and, if it was just trained, its scores and model.

    Attributes:
        record: Record of the run.
        folder: Folder of the run; None if no files were saved.
        trust: Code that its recipe and its model may import.
        scores: Scores on the test classes, if the run was just scored; None if it was read from disk.
    """

    record: Record
    folder: Path | None = None
    _trained: Embedder | None = field(default=None)
    trust: Trust = NO_TRUST
    scores: Scores | None = None

    @classmethod
    def open(cls, folder: str | Path, *, allow_code: Sequence[str] = ()) -> Run:
        """Read the folder of a run.

        Args:
            folder: Folder written by `vicinal train` or `fit(folder=...)`.
            allow_code: Modules or files whose code the run may name.

        Raises:
            DataError: If the folder holds no finished run.
        """
        files = RunFiles(Path(folder))
        try:
            content, seal = unsealed(files.record.read_bytes().strip())
            record = Record.model_validate_json(content)
        except OSError as error:
            raise DataError(
                f"{folder} holds no finished run: {files.record} cannot be read ({error.strerror}).",
                hint="Give the folder that `vicinal train` wrote; to continue an unfinished run, add --resume.",
            ) from None
        except ValidationError as error:
            raise DataError(
                f"{files.record} is not a record that this vicinal reads: {refusal(error)}.",
                hint="Read it with the vicinal that wrote it, or train again.",
            ) from None
        if seal != "sealed":
            raise DataError(
                f"{files.record} is corrupted: its checksum does not match.",
                hint="Restore a copy of it, or train again.",
            )
        return cls(record, Path(folder), trust=Trust.of(allow_code))

    def __repr__(self) -> str:
        scores = ", ".join(
            f"{name} {value:.4f}" for name, value in self.record.test.items() if name in ("P@1", "MAP@R")
        )
        return f"Run({self.record.name}, {self.record.experiment}: {scores or self.record.status})"

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the record, with the trust of this run."""
        return Recipe.of(self.record.recipe, self.trust)

    @property
    def files(self) -> RunFiles:
        """Paths of its files.

        Raises:
            InputError: If no files were saved.
        """
        if self.folder is None:
            raise InputError(f"The files of run {self.record.key} ({self.record.name}) were not saved.")
        return RunFiles(self.folder)

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """Losses and scores by step; an incomplete line, left by a killed process, is ignored."""
        return [] if self.folder is None else read_log(self.files.log)

    @property
    def has_test_items(self) -> bool:
        """Whether the embeddings of the test items were saved."""
        return self.folder is not None and self.files.test.exists()

    @property
    def has_model(self) -> bool:
        """Whether the trained embedder was saved."""
        return self._trained is not None or (self.folder is not None and self.files.model.is_dir())

    def test_items(self) -> EmbeddedItems:
        """Test items, read from disk on each access: those of many runs may not fit into memory."""
        arrays = read_arrays(self.files.test)
        if not {"embeddings", "labels"} <= arrays.keys():
            raise DataError(f"{self.files.test} does not hold the test items of a run.", hint="Train it again.")
        return EmbeddedItems(arrays["embeddings"], arrays["labels"], arrays.get("roles"))  # type: ignore[arg-type]

    def embedder(self) -> Embedder:
        """The trained embedder, in evaluation mode."""
        if self._trained is not None:
            return self._trained
        return Embedder.load(self.files.model, allow_code=self.trust.sources)

    def save_record(self) -> None:
        """Save the record in the run's folder."""
        text = sealed(self.record.model_dump_json(indent=2).encode()).decode()
        write_atomically(self.files.record, text + "\n")

    def save_test_items(self, items: EmbeddedItems) -> None:
        """Save the test items in the run's folder."""
        arrays = {name: array for name, array in items._asdict().items() if array is not None}
        with replacing(self.files.test) as file:
            np.savez(file, **arrays)


# The folder of a run: locked by one process, and used for one run only.

PATIENCE = 10  # seconds to wait for the lock of a run's folder


@contextmanager
def alone_in(folder: str | Path | None) -> Iterator[None]:
    """Lock the folder of a run against other processes; with torchrun, the first process holds the lock."""
    if folder is None or os.environ.get("RANK", "0") != "0":
        yield
        return
    files = RunFiles(Path(folder))
    is_new = not os.path.exists(files.folder)
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(files.lock)
        # The workers of a killed process hold its lock until they notice.
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise InputError(
            f"Another process is using the run in {folder}; wait for it, or choose another folder."
        ) from None
    except OSError as error:
        raise InputError(f"Cannot create the run's folder {folder}: {error.strerror}.") from None
    try:
        yield
    finally:
        lock.release()
        with suppress(OSError):  # an invalid run leaves no folder behind
            if [path.name for path in files.folder.iterdir()] == [files.lock.name]:
                files.lock.unlink()
                if is_new:
                    files.folder.rmdir()


def open_run(files: RunFiles, recipe: Recipe, resume: bool) -> None:
    """Start or resume a run in its folder; raise an error if the folder holds another run."""
    started = files.recipe.exists() or files.last.exists()
    if started and not resume:
        raise InputError(f"{files.folder} already holds a run: add --resume to continue it, or choose another folder.")
    if started and (not files.recipe.exists() or Recipe.read(files.recipe) != recipe):
        raise InputError(
            f"{files.folder} was started with another recipe: resume with the same settings (they are in "
            f"{files.recipe}), or start a new run in another folder."
        )
    write_atomically(files.recipe, recipe.toml())


# Scores of the test items of a run: queries are searched in the gallery if there is one.

# The k of R@k that the literature reports on each dataset.
RECALL_AT = {"sop": (1, 10, 100, 1000), "inshop": (1, 10, 20, 30)}


def recall_at(data: str) -> tuple[int, ...]:
    """Return the k of R@k that are reported on a dataset.

    Example:
        >>> recall_at("sop"), recall_at("cub")
        ((1, 10, 100, 1000), (1, 2, 4, 8))
    """
    return RECALL_AT.get(data, (1, 2, 4, 8))


def score_test_items(
    items: EmbeddedItems,
    distance: str,
    *,
    distractors: npt.NDArray[np.float32] | None = None,
    overlap: float = 0.0,
    **options: Any,
) -> Scores:
    """Score items; those with the role "query" are searched among those with the role "gallery".

    Args:
        items: Embeddings, labels and roles.
        distance: Distance between embeddings.
        distractors: Embeddings of items of other classes to add to the searched items; they are never relevant.
        overlap: Overlap above which two sets of labels match.
        **options: Options of `vicinal.evaluation.evaluate`.
    """
    embeddings, truth, gallery = by_role(*items)
    if distractors is not None:
        truth, gallery = _among(distractors, embeddings, truth, gallery)
    return evaluate(embeddings, replace(truth, overlap=overlap), gallery=gallery, distance=distance, **options)


def _among(
    distractors: npt.NDArray[np.float32], queries: npt.NDArray[Any], truth: GroundTruth, gallery: Any
) -> tuple[GroundTruth, Any]:
    """Return labels of queries and a gallery with additional items; no query is searched for itself."""
    others = np.full(len(distractors), -1)  # a label of no query
    if gallery is not None:
        embeddings, references = gallery
        labels = np.concatenate([references.labels, others])
        return truth, (np.concatenate([embeddings, distractors]), GroundTruth(labels))
    numbers = np.arange(len(queries) + len(distractors))
    labels = np.concatenate([truth.labels, others])
    searched = np.concatenate([queries, distractors])
    return replace(truth, sequences=numbers[: len(queries)]), (searched, GroundTruth(labels, sequences=numbers))


def scores_by_class(scores: Scores, score: str, classes: int) -> tuple[float | None, ...]:
    """Return the mean score of each class, by label; None for a class without scored queries."""
    means = scores.per_class(score)
    return tuple(means.get(label) for label in range(classes))


def queries_by_class(scores: Scores, classes: int) -> tuple[int, ...]:
    """Return the number of scored queries of each class, by label."""
    counts = class_sums(scores.per_query["MAP@R"], scores.query_classes, len(scores.classes))[1]
    by_label = dict(zip(scores.classes, counts.tolist(), strict=True))
    return tuple(by_label.get(label, 0) for label in range(classes))
