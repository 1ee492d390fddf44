"""Parameter groups, optimisers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.training.settings import Settings

__all__ = ["build_optimiser", "learning_rate_factor", "parameter_groups", "plateaus"]


def parameter_groups(model: nn.Module, criterion: Criterion, settings: Settings) -> list[dict[str, Any]]:
    """Split all that is trained into groups: backbone and head, with and without weight decay, and the criterion's own.

    Each group carries its `base` learning rate, from which a schedule computes the present one, whether it is trained
    during the warm-up, and the `decay` that is added to its gradients where the optimiser's own comes too late.
    """
    head = {id(parameter) for parameter in getattr(model, "head", model).parameters()}
    parts: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            parts.setdefault((id(parameter) in head, parameter.ndim > 1), []).append(parameter)
    rate = settings.learning_rate
    groups: list[dict[str, Any]] = [
        {
            "params": parameters,
            "base": rate * (settings.head_multiplier if is_head else 1.0),
            "weight_decay": settings.weight_decay if decays else 0.0,
            "warms_up": is_head,
        }
        for (is_head, decays), parameters in parts.items()
    ]
    groups += [
        {
            "params": group["params"],
            "base": rate * group["multiplier"],
            "weight_decay": settings.weight_decay,
            "warms_up": True,
        }
        for group in criterion.parameter_groups()
    ]
    if not groups:
        raise InputError(
            "Every parameter is frozen: nothing would be trained. Free some, or give the embedder a head (dim=)."
        )
    for group in groups:
        group["decay"] = group["weight_decay"] if settings.decay_before_clipping else 0.0
        group["weight_decay"] -= group["decay"]
    return groups


def build_optimiser(model: nn.Module, criterion: Criterion, settings: Settings) -> torch.optim.Optimizer:
    """Return the optimiser that the settings name, over all parameter groups."""
    groups = parameter_groups(model, criterion, settings)
    # In one pass over memory, which many proxies feel; but gradients of float16 could not be clipped.
    fused = settings.precision != "16-mixed"
    if settings.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=0.9, fused=fused)
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.learning_rate, betas=settings.betas, fused=fused)


def learning_rate_factor(
    step: int, settings: Settings, scores: Sequence[float] = (), time_used: float | None = None
) -> float:
    """Return what the schedule multiplies base learning rates by at a step.

    Args:
        step: Steps taken before it.
        settings: Which schedule, and of how many steps.
        scores: Of all evaluations so far.
        time_used: Share of the time that is over, for a run that has a limit of it. A cosine then ends with the steps
            or with the time, whichever comes first.

    Example:
        >>> settings = Settings(steps=100, schedule="step", schedule_every=40, schedule_factor=0.1)
        >>> [round(learning_rate_factor(step, settings), 3) for step in (0, 39, 40, 99)]
        [1.0, 1.0, 0.1, 0.01]
    """
    if settings.schedule == "step":
        return settings.schedule_factor ** (step // settings.schedule_every)
    if settings.schedule == "cosine":
        of_steps = 0.0 if settings.steps is None else math.pi * step / settings.steps
        return 0.5 * (1.0 + math.cos(max(of_steps, math.pi * min(1.0, time_used or 0.0))))
    if settings.schedule == "plateau":
        return settings.schedule_factor ** plateaus(scores, settings.schedule_patience, settings.min_improvement)
    return 1.0


def plateaus(scores: Sequence[float], patience: int, min_improvement: float = 0.0) -> int:
    """Count how often scores have gone `patience` evaluations without a new best.

    Example:
        >>> plateaus([0.1, 0.3, 0.2, 0.3, 0.1, 0.2, 0.4], patience=2)
        2
    """
    best, misses, count = -math.inf, 0, 0
    for score in scores:
        misses += 1
        if score > best + min_improvement:
            best, misses = score, 0
        elif misses == patience:
            count, misses = count + 1, 0
    return count
