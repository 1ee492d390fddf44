"""Everything a training loop may be told, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from vicinal.errors import InputError

__all__ = ["Settings"]

Optimiser = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "step", "cosine"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True)
class Settings:
    """How to train. Every mistake in it is reported at once.

    Attributes:
        steps: Optimiser steps.
        optimiser: "adam", "adamw" or "sgd" (with momentum 0.9).
        learning_rate: Of the backbone.
        head_multiplier: Learning rate of the head over that of the backbone.
        weight_decay: On matrices and kernels; biases and batch norm are left alone.
        schedule: "constant"; "step", times `schedule_factor` every `schedule_every` steps; "cosine", to zero.
        schedule_every: Steps between two drops of "step".
        schedule_factor: Factor of "step".
        warm_up: Steps in which only the head and the criterion's own parameters are trained.
        clip_norm: Largest norm of all gradients together; None for any.
        clip_value: Largest single gradient; None for any.
        accumulate: Batches whose gradients are averaged into one step.
        evaluate_every: Steps between two evaluations; 0 for one at the end only.
        metric: The score that the best model has most of.
        patience: Evaluations without improvement after which to stop; None never stops early.
        min_improvement: What counts as one.
        checkpoint_every: Steps between two checkpoints; 0 for only those of evaluations.
        log_every: Steps between two lines of the log.
        precision: Of the network's arithmetic; the loss is always computed in float32.
        accelerator: "auto", "cpu", "cuda", as lightning-fabric names them.
        seed: Of everything that is random.
    """

    steps: int = 1000
    optimiser: Optimiser = "adamw"
    learning_rate: float = 1e-4
    head_multiplier: float = 1.0
    weight_decay: float = 1e-4
    schedule: Schedule = "constant"
    schedule_every: int = 1000
    schedule_factor: float = 0.5
    warm_up: int = 0
    clip_norm: float | None = None
    clip_value: float | None = 10.0
    accumulate: int = 1
    evaluate_every: int = 100
    metric: str = "MAP@R"
    patience: int | None = None
    min_improvement: float = 1e-5
    checkpoint_every: int = 0
    log_every: int = 10
    precision: Precision = "32-true"
    accelerator: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be {'above' if strict else 'at least'} {low}; got {getattr(self, name)!r}"
            for name, low, strict in (
                ("steps", 0, True),
                ("learning_rate", 0, True),
                ("head_multiplier", 0, True),
                ("weight_decay", 0, False),
                ("schedule_every", 0, True),
                ("schedule_factor", 0, True),
                ("warm_up", 0, False),
                ("clip_norm", 0, True),
                ("clip_value", 0, True),
                ("accumulate", 0, True),
                ("evaluate_every", 0, False),
                ("patience", 0, True),
                ("checkpoint_every", 0, False),
                ("log_every", 0, True),
            )
            if getattr(self, name) is not None
            and not (getattr(self, name) > low if strict else getattr(self, name) >= low)
        ]
        wrong += [
            f"{name} must be one of {', '.join(get_args(choices))}; got {getattr(self, name)!r}"
            for name, choices in (("optimiser", Optimiser), ("schedule", Schedule), ("precision", Precision))
            if getattr(self, name) not in get_args(choices)
        ]
        if wrong:
            raise InputError("Settings: " + "; ".join(wrong) + ".")

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and strings, as JSON has them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Rebuild what `as_dict` gave, refusing names it does not know."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise InputError(f"Unknown training settings: {', '.join(unknown)}.")
        return cls(**values)
