"""Everything a training loop may be told, as data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Settings"]

Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class Settings(BaseModel):
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
        clip_value: Largest single gradient, where there is no clip_norm; None for any.
        accumulate: Batches whose gradients are averaged into one step.
        evaluate_every: Steps between two evaluations; 0 for one at the end only.
        metric: The score that the best model has most of.
        patience: Evaluations without improvement after which to stop; None never stops early.
        min_improvement: What counts as one.
        checkpoint_every: Steps between two checkpoints; 0 for only those of evaluations.
        log_every: Steps between two lines of the log.
        precision: Of the network's arithmetic; the loss is always computed in float32.
        accelerator: "auto", "cpu", "cuda" or "mps".
        seed: Of everything that is random.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: AtLeastOne = 1000
    optimiser: Literal["adam", "adamw", "sgd"] = "adamw"
    learning_rate: Positive = 1e-4
    head_multiplier: Positive = 1.0
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    schedule: Literal["constant", "step", "cosine"] = "constant"
    schedule_every: AtLeastOne = 1000
    schedule_factor: Positive = 0.5
    warm_up: Count = 0
    clip_norm: Positive | None = None
    clip_value: Positive | None = 10.0
    accumulate: AtLeastOne = 1
    evaluate_every: Count = 100
    metric: str = "MAP@R"
    patience: AtLeastOne | None = None
    min_improvement: float = 1e-5
    checkpoint_every: Count = 0
    log_every: AtLeastOne = 10
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    seed: Count = 0
