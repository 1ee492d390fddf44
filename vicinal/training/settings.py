"""Settings of a training loop, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from vicinal.errors import look_up

__all__ = ["CCP", "CCP_PRESETS", "Settings"]

MOST, LARGEST = 2**40, 1e30  # limits of counts and of float32 arithmetic
Count = Annotated[int, Field(ge=0, le=MOST)]
AtLeastOne = Annotated[int, Field(ge=1, le=MOST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
AtLeastZero = Annotated[float, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, lt=1)]
Items = Annotated[int, Field(ge=1, le=10**6)]  # per class


def _two(values: Any) -> Any:
    """Check that there are two values, with a clear message."""
    if not isinstance(values, list | tuple) or len(values) != 2:
        raise ValueError(f"two numbers are needed, such as [0.9, 0.999]; got {values!r}")
    return values


class Settings(BaseModel):
    """Training settings. All errors are reported at once.

    Attributes:
        steps: Number of optimiser steps; None if only time limits training.
        seconds: Training time in seconds after which training ends; None for no limit.
        optimiser: Name of the optimiser: "adam", "adamw" or "sgd" (with momentum 0.9).
        learning_rate: Learning rate of the backbone.
        head_multiplier: Learning rate of the head over that of the backbone.
        betas: Decay rates of the running averages of gradients and of their squares, for "adam" and "adamw".
        weight_decay: Weight decay of matrices and kernels; biases and batch norm have none.
        decay_before_clipping: Whether weight decay is added to the gradients before clipping, instead of by the
            optimiser.
        schedule: Learning-rate schedule: "constant"; "step", times `schedule_factor` every `schedule_every` steps;
            "plateau", times `schedule_factor` after `schedule_patience` evaluations without improvement; "cosine", to
            zero at the end of the budget of steps or time.
        schedule_every: Steps between two drops of "step".
        schedule_patience: Evaluations without improvement before a drop of "plateau".
        schedule_factor: Factor of "step" and "plateau".
        warm_up: Steps in which only the head and the criterion's own parameters are trained.
        clip_norm: Largest norm of all gradients together; None for no limit.
        clip_value: Largest absolute value of a gradient, after clip_norm; None for no limit.
        accumulate: Number of batches whose gradients are averaged into one step.
        evaluate_every: Steps between two evaluations; 0 for one at the end only.
        score: Score that selects the best model: "MAP@R", "P@R" or "P@1".
        patience: Evaluations without improvement after which to stop; None never stops early.
        min_improvement: Smallest rise of the score that counts as an improvement.
        checkpoint_every: Steps between two checkpoints; 0 for only those of evaluations.
        log_every: Steps between two lines of the log.
        precision: Precision of the network; the loss is always computed in float32.
        accelerator: Device type: "auto", "cpu", "cuda" or "mps".
        seed: Seed of everything random.
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
            raise ValueError("steps may be None only if seconds limits training")
        return self


# Differences between the paper's text and code in the alternation itself. Other differences (clipping, decay, Adam's
# betas, the head's bias) concern the optimiser and the network, and are in the recipes ccp/cub and so on.
CCP_PRESETS: dict[str, dict[str, Any]] = {
    "code": {"pair_weight": 0.1, "restart": "continue", "monitor": "stale"},
    "paper": {"pair_weight": 0.0, "restart": "best", "monitor": "fresh"},
}

# Symbols of the paper, and the names of their settings.
CCP_SYMBOLS = {"lambda": "proximal_weight", "b": "pool", "#proxy": "proxies_per_class"}


class CCP(BaseModel):
    """Settings of chance-constrained proxies; by default as in the authors' code.

    The text and the code of the paper differ: `CCP.model_validate("paper")` and `CCP.model_validate("code")` return
    either, and a table with a `preset` changes one of them.

    Attributes:
        proxies_per_class: Number of proxies per class (#proxy).
        pool: Number of items per class (b) from which new proxies are selected; multiplied by the number of proxies if
            it is smaller.
        pool_order: Order of the items of a class in successive pools: "queue" uses all items before any is used again,
            "drawn" draws them at random each time.
        proximal_weight: Weight (lambda) of half the squared distance of the network's weights to those of the last
            converged instance.
        proximal_decay: Factor of the weight from one instance to the next.
        patience: Evaluations without improvement after which an instance has converged.
        proxy_multiplier: Learning rate of the proxies over that of the network.
        pair_weight: Weight of the loss on pairs within the batch; that on pairs with proxies weighs 1.
        restart: Whether the next instance starts from the "best" weights of the last one, or "continue"s from the
            current ones.
        monitor: Whether weights are judged by their own score ("fresh") or by that of the evaluation before ("stale").
        pool_images: Whether pool items are "augmented" as in training, or "plain".
        selection: Whether new proxies are selected from embeddings before normalisation ("raw") or after it
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
            changes = dict(values)
            return {**look_up("preset of CCP", changes.pop("preset"), CCP_PRESETS), **changes}
        return values

    @property
    def pool_size(self) -> int:
        """Number of items of each class to embed: at least the number of proxies."""
        return self.pool if self.pool >= self.proxies_per_class else self.pool * self.proxies_per_class
