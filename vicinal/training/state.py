"""What a training loop has in its hands, which hooks are shown, and where it writes."""

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
    """Where the loop writes: the folder of the run, its log, and its last and best checkpoints and
    the best before, which is kept until a last checkpoint names the new one."""

    @property
    def folder(self) -> Path: ...  # noqa: D102 (said above)
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
    """Where a run is kept, and what it is known by.

    Attributes:
        files: Paths of the log and of the checkpoints.
        resume: Whether to go on from the last checkpoint, where there is one.
        identity: Hash of the data and its split; a checkpoint of other data is refused.
        recipe: Hash of the settings; a checkpoint of others is refused.
    """

    files: TrainingFiles
    resume: bool = False
    identity: str = ""
    recipe: str = ""


@dataclass
class Best:
    """The best evaluation so far.

    Attributes:
        step: When it was; 0 before the first.
        scores: What it found.
        misses: Evaluations since then.
    """

    step: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    misses: int = 0

    def value(self, score: str) -> float:
        """One of the scores; below every other before the first evaluation."""
        return self.scores.get(score, -math.inf)


@dataclass
class TrainingState:
    """The run at hand.

    Attributes:
        fabric: Devices, precision and processes.
        model: What is trained, without the wrappers of several processes.
        criterion: The loss.
        settings: How to train.
        scored: Whether there is a score to choose by.
        step: Steps taken.
        images: Items seen, over all processes.
        loss: Of the batch at hand.
        seconds: Time spent in earlier parts of an interrupted run.
        best: The best evaluation so far.
        run: Names the run in its checkpoints, so that those of two runs are never mixed.
        curve: Images seen and the score, at every evaluation.
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
        """Share of the time that is over, the same in all processes; None for a run without a limit of it."""
        if self.settings.seconds is None:
            return None
        # Processes that set different learning rates would drift apart.
        return min(1.0, float(self.fabric.broadcast(self.elapsed)) / self.settings.seconds)

    @property
    def loss_scale(self) -> float:
        """What float16 training has multiplied the loss by."""
        scaler = getattr(self.fabric.strategy.precision, "scaler", None)
        return 1.0 if scaler is None else float(scaler.get_scale())

    @property
    def complete(self) -> bool:
        """Whether all steps are taken."""
        return self.settings.steps is not None and self.step >= self.settings.steps

    @property
    def exhausted(self) -> bool:
        """Whether the score has not risen for too long."""
        return self.settings.patience is not None and self.best.misses >= self.settings.patience

    def progress(self) -> dict[str, Any]:
        """How far the run is, for a checkpoint."""
        return {
            "run": self.run,
            "step": self.step,
            "images": self.images,
            "seconds": self.elapsed,
            "best": vars(self.best),
            "curve": [list(point) for point in self.curve],
        }

    def go_on_from(self, progress: dict[str, Any]) -> None:
        """Be where `progress` was taken."""
        self.run, self.step, self.images = progress["run"], progress["step"], progress["images"]
        self.seconds, self.best = progress["seconds"], Best(**progress["best"])
        self.curve = [(int(images), float(value)) for images, value in progress["curve"]]
        self._began = time.perf_counter()


# Hooks: what wants to take part in training.


class Hook:
    """Takes part in training; every method may be left out.

    Chance-constrained proxies are one (`vicinal.training.ccp`). Give your own to `fit(hooks=[...])`.

    Attributes:
        only_watches: Whether it changes nothing of a run. Such a hook has no state, is started in a resumed run, too,
            and a run may be resumed with or without it.

    Example:
        >>> class CountSteps(Hook):
        ...     steps = 0
        ...
        ...     def before_step(self, state):
        ...         self.steps += 1
    """

    only_watches: bool = False

    def start(self, state: TrainingState) -> None:
        """Prepare a new run; a resumed one gets `load_state_dict` instead."""

    def before_step(self, state: TrainingState) -> None:
        """Change gradients: they are complete, and not clipped yet."""

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> Mapping[str, float] | None:
        """Look at new scores; what is returned goes into the log."""
        return None

    def on_log(self, state: TrainingState, values: Mapping[str, float]) -> None:
        """Look at what has just been logged for the present step."""

    def end(self, state: TrainingState) -> None:
        """Let go of files and the like: training has ended, or was stopped by an error."""

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs: tensors, numbers, strings, and lists and dictionaries of them."""
        return {}

    def load_state_dict(self, values: dict[str, Any], state: TrainingState) -> None:
        """Go on where `state_dict` was taken."""
