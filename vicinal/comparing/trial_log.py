"""How far a trial of a search is, for who waits for the search."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import final

from vicinal.training.hooks import Hook
from vicinal.training.log import TIME_USED
from vicinal.training.state import TrainingState

__all__ = ["TrialLog"]

EVERY = 1.0  # seconds between two lines at least


@final
class TrialLog(Hook):
    """Writes lines as the log of a run has them, and which trial of how many it is.

    Args:
        path: Of the file; what a former trial wrote there is gone.
        finished: Trials before this one.
        trials: Of the whole search.
    """

    def __init__(self, path: Path, finished: int, trials: int) -> None:
        self._path = path
        self._trial = {"trial": finished + 1, "trials": trials}
        self._written, self._images = time.monotonic(), 0
        with suppress(OSError):  # nobody should lose a search over the news of it
            path.write_text(json.dumps(self._trial) + "\n")

    def before_step(self, state: TrainingState) -> None:
        """Say how far the trial is, unless that was said just now."""
        now = time.monotonic()
        if now - self._written >= EVERY:
            rate = (state.images - self._images) / (now - self._written)
            self._write({"step": state.step, "loss": state.loss, "images_per_second": rate}, state)
            self._written, self._images = now, state.images

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> None:
        """Say the new score."""
        self._write({"step": state.step, "score": scores[state.settings.score]}, state)

    def _write(self, values: Mapping[str, int | float], state: TrainingState) -> None:
        used = state.time_used
        line = {**self._trial, **values, **({} if used is None else {TIME_USED: used})}
        with suppress(OSError), self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
