"""State of a training loop, its hooks and its files."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

from torch import nn

from vicinal.criterion import Criterion
from vicinal.training.settings import Settings

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Best", "Checkpoints", "Hook", "TrainingFiles", "TrainingState"]


@runtime_checkable
class TrainingFiles(Protocol):
    """Paths that the training loop writes to: the folder of the run, its log, its last and best checkpoints, and the
    previous best one, which is kept until the last checkpoint refers to the new one."""

    @property
    def folder(self) -> Path: ...  # noqa: D102 (see above)
    @property
    def log(self) -> Path: ...  # noqa: D102
    @property
    def last(self) -> Path: ...  # noqa: D102
    @property
    def best(self) -> Path: ...  # noqa: D102
    @property
    def former_best(self) -> Path: ...  # noqa: D102


@final
@dataclass(frozen=True)
class Checkpoints:
    """Files and identity of a run.

    Attributes:
        files: Paths of the log and of the checkpoints.
        resume: Whether to resume from the last checkpoint, if there is one.
        identity: Hash of the data and its split; a checkpoint of other data is refused.
        recipe: Hash of the settings; a checkpoint of other settings is refused.
    """

    files: TrainingFiles
    resume: bool = False
    identity: str = ""
    recipe: str = ""


@dataclass
class Best:
    """The best evaluation so far.

    Attributes:
        step: Step of the evaluation; 0 before the first.
        scores: Scores of that evaluation.
        misses: Number of evaluations since then.
    """

    step: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    misses: int = 0

    def value(self, score: str) -> float:
        """Return a score of the best evaluation; minus infinity before the first one."""
        return self.scores.get(score, -math.inf)


@dataclass
class TrainingState:
    """State of a training run.

    Attributes:
        fabric: Devices, precision and processes.
        model: Trained module, without the wrappers of distributed training.
        criterion: The loss.
        settings: Training settings.
        scored: Whether there is a score that selects the best step.
        step: Number of steps done.
        images: Number of training items so far, over all processes.
        loss: Loss of the current batch.
        seconds: Time spent in earlier parts of an interrupted run.
        best: The best evaluation so far.
        run: Id of the run in its checkpoints, so that those of two runs are never mixed.
        curve: Number of images and the score, at every evaluation.
    """

    fabric: Fabric
    model: nn.Module
    criterion: Criterion
    settings: Settings
    scored: bool
    step: int = 0
    images: int = 0
    loss: float = math.nan
    seconds: float = 0.0
    best: Best = field(default_factory=Best)
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    curve: list[tuple[int, float]] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds of training, over all parts of an interrupted run."""
        return self.seconds + time.perf_counter() - self._began

    @property
    def time_used(self) -> float | None:
        """Used share of the time limit, the same in all processes; None without a limit."""
        if self.settings.seconds is None:
            return None
        # Processes that set different learning rates would drift apart.
        return min(1.0, float(self.fabric.broadcast(self.elapsed)) / self.settings.seconds)

    @property
    def loss_scale(self) -> float:
        """Scale of the loss in float16 training."""
        scaler = getattr(self.fabric.strategy.precision, "scaler", None)
        return 1.0 if scaler is None else float(scaler.get_scale())

    @property
    def complete(self) -> bool:
        """Whether all steps are done."""
        return self.settings.steps is not None and self.step >= self.settings.steps

    @property
    def exhausted(self) -> bool:
        """Whether the score has not risen for too long."""
        return self.settings.patience is not None and self.best.misses >= self.settings.patience

    def progress(self) -> dict[str, Any]:
        """Return the progress of the run, for a checkpoint."""
        return {
            "run": self.run,
            "step": self.step,
            "images": self.images,
            "seconds": self.elapsed,
            "best": vars(self.best),
            "curve": [list(point) for point in self.curve],
        }

    def restore(self, progress: dict[str, Any]) -> None:
        """Restore the state that `progress` describes."""
        self.run, self.step, self.images = progress["run"], progress["step"], progress["images"]
        self.seconds, self.best = progress["seconds"], Best(**progress["best"])
        self.curve = [(int(images), float(value)) for images, value in progress["curve"]]
        self._began = time.perf_counter()


# Hooks: callbacks of the training loop.


class Hook:
    """Base class of training hooks; all methods are optional.

    Chance-constrained proxies are a hook (`vicinal.training.ccp`). Pass your own as `fit(hooks=[...])`.

    Attributes:
        only_watches: Whether the hook leaves the run unchanged. Such a hook has no state, `start` is also called for a
            resumed run, and a run may be resumed with or without it.

    Example:
        >>> class CountSteps(Hook):
        ...     steps = 0
        ...
        ...     def before_step(self, state):
        ...         self.steps += 1
    """

    only_watches: bool = False

    def start(self, state: TrainingState) -> None:
        """Prepare a new run; for a resumed run, `load_state_dict` is called instead."""

    def before_step(self, state: TrainingState) -> None:
        """Change the gradients, which are complete but not clipped yet."""

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> Mapping[str, float] | None:
        """Handle new scores; the returned values are logged."""
        return None

    def on_log(self, state: TrainingState, values: Mapping[str, float]) -> None:
        """Handle the values that were logged for the current step."""

    def end(self, state: TrainingState) -> None:
        """Release resources such as open files: training has ended, or was stopped by an error."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming: tensors, numbers, strings, and lists and dictionaries of them."""
        return {}

    def load_state_dict(self, values: dict[str, Any], state: TrainingState) -> None:
        """Restore the state that `state_dict` returned."""
