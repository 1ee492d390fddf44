"""Everything a training loop may be told, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from vicinal.errors import look_up

__all__ = ["CCP", "CCP_PRESETS", "Settings"]

MOST, LARGEST = 2**40, 1e30  # beyond which nothing is meant, and the arithmetic of float32 ends
Count = Annotated[int, Field(ge=0, le=MOST)]
AtLeastOne = Annotated[int, Field(ge=1, le=MOST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
AtLeastZero = Annotated[float, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, lt=1)]
Items = Annotated[int, Field(ge=1, le=10**6)]  # of each class


def _two(values: Any) -> Any:
    """Check that there are two values, in plain words."""
    if not isinstance(values, list | tuple) or len(values) != 2:
        raise ValueError(f"two numbers are needed, such as [0.9, 0.999]; got {values!r}")
    return values


class Settings(BaseModel):
    """How to train. Every mistake in it is reported at once.

    Attributes:
        steps: Optimiser steps; None for as many as there is time for.
        seconds: Training time after which the step at hand is the last; None for no limit.
        optimiser: "adam", "adamw" or "sgd" (with momentum 0.9).
        learning_rate: Of the backbone.
        head_multiplier: Learning rate of the head over that of the backbone.
        betas: Of "adam" and "adamw": how much of the averages of gradients and of their squares is kept in a step.
        weight_decay: On matrices and kernels; biases and batch norm are left alone.
        decay_before_clipping: Add the weight decay to the gradients before they are clipped, instead of leaving it to
            the optimiser.
        schedule: "constant"; "step", times `schedule_factor` every `schedule_every` steps; "plateau", times
            `schedule_factor` after `schedule_patience` evaluations without improvement; "cosine", to zero
            at the end of the budget, of steps or of time.
        schedule_every: Steps between two drops of "step".
        schedule_patience: Evaluations without improvement before a drop of "plateau".
        schedule_factor: Factor of "step" and "plateau".
        warm_up: Steps in which only the head and the criterion's own parameters are trained.
        clip_norm: Largest norm of all gradients together; None for any.
        clip_value: Largest single gradient, after clip_norm has been seen to; None for any.
        accumulate: Batches whose gradients are averaged into one step.
        evaluate_every: Steps between two evaluations; 0 for one at the end only.
        score: What the best model has most of: "MAP@R", "P@R" or "P@1".
        patience: Evaluations without improvement after which to stop; None never stops early.
        min_improvement: What counts as one.
        checkpoint_every: Steps between two checkpoints; 0 for only those of evaluations.
        log_every: Steps between two lines of the log.
        precision: Of the network's arithmetic; the loss is always computed in float32.
        accelerator: "auto", "cpu", "cuda" or "mps".
        seed: Of everything that is random.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: AtLeastOne | None = 1000
    seconds: Positive | None = None
    optimiser: Literal["adam", "adamw", "sgd"] = "adamw"
    learning_rate: Positive = 1e-4
    head_multiplier: Positive = 1.0
    betas: Annotated[tuple[Share, Share], BeforeValidator(_two)] = (0.9, 0.999)
    weight_decay: AtLeastZero = 1e-4
    decay_before_clipping: bool = False
    schedule: Literal["constant", "step", "plateau", "cosine"] = "constant"
    schedule_every: AtLeastOne = 1000
    schedule_patience: AtLeastOne = 5
    schedule_factor: Positive = 0.5
    warm_up: Count = 0
    clip_norm: Positive | None = None
    clip_value: Positive | None = 10.0
    accumulate: AtLeastOne = 1
    evaluate_every: Count = 100
    score: str = "MAP@R"
    patience: AtLeastOne | None = None
    min_improvement: float = 1e-5
    checkpoint_every: Count = 0
    log_every: AtLeastOne = 10
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    seed: Count = 0

    @model_validator(mode="after")
    def _ends(self) -> Settings:
        if self.steps is None and self.seconds is None:
            raise ValueError("steps may be none only where seconds says when training ends")
        return self


# In what text and code differ of the alternation itself. What else they differ in (clipping, decay, Adam's betas, the
# head's bias) belongs to optimiser and network, which the loss alone has, too: the recipes ccp/cub and so on say it.
CCP_PRESETS: dict[str, dict[str, Any]] = {
    "code": {"pair_weight": 0.1, "restart": "continue", "monitor": "stale"},
    "paper": {"pair_weight": 0.0, "restart": "best", "monitor": "fresh"},
}

# What the paper calls settings by letters.
CCP_SYMBOLS = {"lambda": "proximal_weight", "b": "pool", "#proxy": "proxies_per_class"}


class CCP(BaseModel):
    """How chance-constrained proxies are alternated; by default as the authors' code does.

    The text and the code of the paper differ: `CCP.model_validate("paper")` and `CCP.model_validate("code")` give
    either, and a table with a `preset` changes one of them.

    Attributes:
        proxies_per_class: Proxies of each class (#proxy).
        pool: Items of each class (b) among which new proxies are looked for; fewer than proxies are multiplied by them.
        pool_order: Whether the pools of one instance after the other go through a class as a "queue", so that every
            item has its turn before any comes again, or are "drawn" anew.
        proximal_weight: Weight (lambda) of half the squared distance of the network's weights to those of the last
            converged instance.
        proximal_decay: Factor of the weight from one instance to the next.
        patience: Evaluations without improvement after which an instance has converged.
        proxy_multiplier: Learning rate of the proxies over that of the network.
        pair_weight: Weight of the loss on pairs within the batch; that on pairs with proxies weighs 1.
        restart: Whether the next instance starts from the "best" weights of the last one, or "continue"s from the
            present ones.
        monitor: Whether weights are judged by their own score ("fresh") or by that of the evaluation before ("stale").
        pool_images: Whether pool items are "augmented" as in training, or "plain".
        selection: Whether new proxies are looked for among embeddings before normalisation ("raw") or after it
            ("normalised").

    Reference:
        Gurbuz, Can and Alatan, "Deep metric learning with chance constraints", WACV 2024.

    Example:
        >>> CCP.model_validate({"preset": "paper", "pool": 7}).restart
        'best'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    proxies_per_class: Items = 8
    pool: Items = 12
    pool_order: Literal["queue", "drawn"] = "queue"
    proximal_weight: AtLeastZero = 2e-4
    proximal_decay: Positive = 1.0
    patience: AtLeastOne = 3
    proxy_multiplier: Positive = 1.0
    pair_weight: AtLeastZero = 0.1
    restart: Literal["best", "continue"] = "continue"
    monitor: Literal["fresh", "stale"] = "stale"
    pool_images: Literal["augmented", "plain"] = "augmented"
    selection: Literal["raw", "normalised"] = "raw"

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        if isinstance(values, str):
            values = {"preset": values}
        if isinstance(values, Mapping) and "preset" in values:
            given = dict(values)
            return {**look_up("preset of CCP", given.pop("preset"), CCP_PRESETS), **given}
        return values

    @property
    def pool_size(self) -> int:
        """How many items of each class are embedded: at least as many as proxies are wanted."""
        return self.pool if self.pool >= self.proxies_per_class else self.pool * self.proxies_per_class
