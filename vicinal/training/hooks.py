"""Hooks: what wants to take part in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vicinal.training.state import TrainingState

__all__ = ["Hook"]


class Hook:
    """Takes part in training at three places; every method may be left out.

    Chance-constrained proxies are one (`vicinal.training.ccp`). Give your own to `fit(hooks=[...])`.

    Example:
        >>> class CountSteps(Hook):
        ...     steps = 0
        ...
        ...     def before_step(self, state):
        ...         self.steps += 1
    """

    def start(self, state: TrainingState) -> None:
        """Prepare a new run; a resumed one gets `load_state_dict` instead."""

    def before_step(self, state: TrainingState) -> None:
        """Change gradients: they are complete, and not clipped yet."""

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> Mapping[str, float] | None:
        """Look at new scores; what is returned goes into the log."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs: tensors, numbers, strings, and lists and dictionaries of them."""
        return {}

    def load_state_dict(self, values: dict[str, Any], state: TrainingState) -> None:
        """Go on where `state_dict` was taken."""
