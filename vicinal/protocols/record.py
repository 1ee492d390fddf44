"""Records: everything that one trial of a comparison produced, one line of its journal."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vicinal.errors import DataError, InputError

__all__ = ["JOURNAL", "Record", "read_records", "trial_folder", "write_record"]

JOURNAL = "journal.jsonl"
VERSION = 1

Number = Annotated[float, Field(allow_inf_nan=False)]


class Record(BaseModel):
    """One trial: what was run, what it scored, and what it cost.

    Attributes:
        version: Of this layout.
        key: Hash of all that defines the trial; names its folder.
        name: What tables call it: the loss, with what distinguishes it ("contrastive + memory").
        status: "failed" trials have an error and no scores.
        error: One sentence, and how to see more.
        dataset: As it was asked for.
        data: Hash of the dataset's content.
        protocol: How classes were divided.
        split: Hash of the split.
        seed: Of the split and of training.
        fold: Which fold validated, or None.
        selected_on: What chose the step that is reported: "validation", "test" (which leaks) or "last" (no choice).
        recipe: All settings, as `Recipe` dumps them.
        demands: What the loss asked for that others did not, in words: "1 item per class", "proxy learning rate x100".
        tuning_trials: How many trials chose the settings; 0 for settings as given.
        validation: Scores on the validation classes at the chosen step.
        test: Scores on the test classes.
        classes: Names of the test classes.
        per_class: For P@1, P@R and MAP@R the mean over each test class's queries, in the order of `classes`; None
            where a class has no query that could be scored.
        queries: How many were scored of each class, in the order of `classes`.
        steps: Taken.
        best_step: The one reported.
        seconds: Training time.
        peak_memory_mib: Of the process.
        versions: Of everything that matters.
        command: What repeats the comparison.
        finished: When, as ISO 8601 in UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    key: str
    name: str
    status: Literal["done", "failed"]
    error: str | None = None
    dataset: str
    data: str
    protocol: str
    split: str
    seed: int
    fold: int | None = None
    selected_on: Literal["validation", "test", "last"] = "validation"
    recipe: dict[str, Any]
    demands: tuple[str, ...] = ()
    tuning_trials: int = 0
    validation: dict[str, Number] = Field(default_factory=dict)
    test: dict[str, Number] = Field(default_factory=dict)
    classes: tuple[str, ...] = ()
    per_class: dict[str, tuple[Number | None, ...]] = Field(default_factory=dict)
    queries: tuple[int, ...] = ()
    steps: int = 0
    best_step: int = 0
    seconds: float = 0.0
    peak_memory_mib: float = 0.0
    versions: dict[str, str] = Field(default_factory=dict)
    command: str = ""
    finished: str = ""

    @property
    def experiment(self) -> str:
        """The conditions that compared trials share: protocol, backbone, dimension, seed and fold."""
        place = "" if self.fold is None else f", fold {self.fold}"
        return (
            f"{self.dataset}, {self.protocol}, {self.recipe['backbone']}-{self.recipe['dim']}, seed {self.seed}{place}"
        )


def trial_folder(folder: Path, key: str) -> Path:
    """Return where a trial's files are: recipe.toml, metrics.jsonl, test.npz (embeddings, labels) and model/."""
    return folder / "trials" / key


def write_record(folder: Path, record: Record) -> None:
    """Add a record to the journal of a comparison; several processes may do so at the same time.

    Raises:
        DataError: Where it cannot be written; the journal is then as it was.
    """
    line = (record.model_dump_json() + "\n").encode()
    path = folder / JOURNAL
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = os.fstat(file.fileno()).st_size
            if end and not _ends_a_line(path):  # a process was killed while it wrote
                line = b"\n" + line
            try:
                if file.write(line) != len(line):
                    raise OSError(28, "No space left on device")  # noqa: TRY301 (handled with the disk's own errors)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise DataError(
            f"Could not write to the journal {path}: {error.strerror}.",
            hint="Free some space or choose another folder, then give the same command again: finished trials stay.",
        ) from error


def read_records(*folders: Path) -> list[Record]:
    """Read the journals of one or several folders (of several machines, say), the newest record of each trial.

    A trial that was done anywhere counts as done. A line that a killed process left half-written is passed over.
    """
    found: dict[str, Record] = {}
    for folder in folders:
        path = folder / JOURNAL
        if not path.exists():
            raise InputError(f"{folder} holds no comparison: {path} does not exist. Make one with `vicinal compare`.")
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            record = _record(path, number, line)
            if record is not None and not (
                record.key in found and found[record.key].status == "done" and record.status == "failed"
            ):
                found[record.key] = record
    return list(found.values())


def _record(path: Path, number: int, line: bytes) -> Record | None:
    try:
        return Record.model_validate_json(line)
    except ValidationError as error:
        if any(details["type"] == "json_invalid" for details in error.errors()):
            return None
        raise DataError(
            f"Line {number} of {path} is not a record of version {VERSION}: {error.errors()[0]['msg']}.",
            hint="Read it with the vicinal that wrote it, or start the comparison anew in another folder.",
        ) from None


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
