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
    """Return parameter groups: backbone and head, with and without weight decay, and those of the criterion.

    Each group has its `base` learning rate, which the schedule multiplies, whether it is trained during the warm-up,
    and the `decay` that is added to its gradients before clipping.
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
            "All parameters are frozen, so nothing would be trained. Unfreeze some, or give the embedder a head (dim=)."
        )
    for group in groups:
        group["decay"] = group["weight_decay"] if settings.decay_before_clipping else 0.0
        group["weight_decay"] -= group["decay"]
    return groups


def build_optimiser(model: nn.Module, criterion: Criterion, settings: Settings) -> torch.optim.Optimizer:
    """Return the optimiser of the settings for all parameter groups."""
    groups = parameter_groups(model, criterion, settings)
    # Fused optimisers are faster with many proxies, but cannot clip gradients of float16.
    fused = settings.precision != "16-mixed"
    if settings.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=0.9, fused=fused)
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.learning_rate, betas=settings.betas, fused=fused)


def learning_rate_factor(
    step: int, settings: Settings, scores: Sequence[float] = (), time_used: float | None = None
) -> float:
    """Return the factor of the base learning rates at a step.

    Args:
        step: Number of steps taken before.
        settings: Settings of the schedule.
        scores: Scores of all evaluations so far.
        time_used: Used share of the time limit; None without a limit. A cosine schedule ends with the steps or with the
            time, whichever comes first.

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
