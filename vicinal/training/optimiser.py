"""Parameter groups, optimisers and learning-rate schedules."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.training.settings import Settings

__all__ = ["build_optimiser", "learning_rate_factor", "parameter_groups"]


def parameter_groups(model: nn.Module, criterion: Criterion, settings: Settings) -> list[dict[str, Any]]:
    """Split all that is trained into groups: backbone and head, with and without weight decay, and the criterion's own.

    Each group carries its `base` learning rate, from which a schedule computes the present one, and whether it is
    trained during the warm-up.
    """
    head = {id(parameter) for parameter in getattr(model, "head", model).parameters()}
    parts: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            parts.setdefault((id(parameter) in head, parameter.ndim > 1), []).append(parameter)
    rate = settings.learning_rate
    groups = [
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
    return groups


def build_optimiser(model: nn.Module, criterion: Criterion, settings: Settings) -> torch.optim.Optimizer:
    """Return the optimiser that the settings name, over all parameter groups."""
    groups = parameter_groups(model, criterion, settings)
    # In one pass over memory, which many proxies feel; but gradients of float16 could not be clipped.
    fused = settings.precision != "16-mixed"
    if settings.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=0.9, fused=fused)
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.learning_rate, fused=fused)


def learning_rate_factor(step: int, settings: Settings) -> float:
    """Return what the schedule multiplies base learning rates by at a step.

    Example:
        >>> settings = Settings(steps=100, schedule="step", schedule_every=40, schedule_factor=0.1)
        >>> [round(learning_rate_factor(step, settings), 3) for step in (0, 39, 40, 99)]
        [1.0, 1.0, 0.1, 0.01]
    """
    if settings.schedule == "step":
        return settings.schedule_factor ** (step // settings.schedule_every)
    if settings.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * step / settings.steps))
    return 1.0
