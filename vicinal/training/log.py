"""Logs of a run: JSON lines on disk, a progress bar, and TensorBoard as a hook."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from vicinal._util.files import sealed, unsealed, write_atomically
from vicinal._util.progress import LiveBar
from vicinal.errors import DataError, MissingExtra
from vicinal.training.state import Hook, TrainingFiles, TrainingState

__all__ = ["TIME_USED", "Log", "TensorBoard", "read_log"]

TIME_USED = "time used"  # used share of the time limit
SHOWN = {"loss": "loss {:.4f}", "score": "score {:.4f}", "images_per_second": "{:.0f} images/s"}


@final
class Log:
    """The log of a run; a resumed run continues it.

    Args:
        files: Paths of the run; None writes nothing.
        step: Step to continue from; lines of later steps are removed.
        steps: Total number of steps; None if only time limits them.
        seconds: Limit of the training time in seconds.
        progress: Whether to show progress on standard error.
    """

    def __init__(
        self,
        files: TrainingFiles | None,
        *,
        step: int,
        steps: int | None,
        seconds: float | None = None,
        progress: bool = True,
    ) -> None:
        self._file = None if files is None else files.log
        if self._file is not None:
            lines = [line for line in read_log(self._file) if line["step"] <= step]
            write_atomically(self._file, "".join(map(_written, lines)))
        self._bar = LiveBar(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            shown=progress,
        )
        self._by_time = steps is None
        what, total = ("training, seconds", round(seconds or 0.0)) if steps is None else ("training", steps)
        self._task = self._bar.add_task(what, total=total, completed=0 if self._by_time else step, facts="")
        self._facts: dict[str, str] = {}

    def __enter__(self) -> Log:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def advance(self, step: int, seconds: float = 0.0) -> None:
        """Move the bar to a step, or to the training time if only time limits the run."""
        completed = round(seconds) if self._by_time else step
        self._bar.update(self._task, completed=completed, facts="  ".join(self._facts.values()))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add a line to the log; numbers that are not finite become null, because JSON cannot represent them."""
        for name, form in SHOWN.items():
            if name in values:
                self._facts[name] = form.format(values[name])
        if self._file is not None:
            plain = {name: value if math.isfinite(value) else None for name, value in values.items()}
            try:
                with self._file.open("a") as file:
                    file.write(_written({"step": step, **plain}))
            except OSError as error:
                raise DataError(
                    f"Could not write the log {self._file}: {error}.",
                    hint="Free some space and resume from the last checkpoint.",
                ) from error


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read losses and scores by step; an incomplete line, left by a killed process, is ignored.

    Raises:
        DataError: If a line is corrupted.
    """
    lines = []
    for number, text in enumerate(path.read_bytes().splitlines() if path.exists() else [], 1):
        content, seal = unsealed(text)
        if seal == "damaged":
            raise DataError(
                f"Line {number} of {path} is corrupted: its checksum does not match.",
                hint="Restore a copy of the file, or delete that line; the curves then lack one point.",
            )
        if seal == "sealed":
            lines.append(json.loads(content))
    return lines


def _written(line: Mapping[str, Any]) -> str:
    return sealed(json.dumps(line).encode()).decode() + "\n"


@final
class TensorBoard(Hook):
    """Writes the log as TensorBoard events: `fit(folder="run", hooks=[TensorBoard("run")])`.

    Args:
        folder: Folder of the run; events are written to its subfolder `tensorboard`. Events of later steps, left by a
            run that was killed after its last checkpoint, are removed.
    """

    only_watches = True

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder) / "tensorboard"
        self._writer: Any = None

    def start(self, state: TrainingState) -> None:
        """Open the event file, in the first process only."""
        if state.fabric.is_global_zero:
            self._writer = _summary_writer()(str(self._folder), purge_step=state.step + 1)

    def on_log(self, state: TrainingState, values: Mapping[str, float]) -> None:
        """Write the values by name."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, state.step)

    def end(self, state: TrainingState) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtra("tensorboard", "Writing TensorBoard events") from None
    return SummaryWriter
