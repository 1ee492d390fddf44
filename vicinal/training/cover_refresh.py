"""A cover of the data as references: picked when training begins, and anew every so many steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from vicinal.errors import InputError
from vicinal.references import Cover
from vicinal.training.hooks import Hook
from vicinal.training.state import TrainingState

__all__ = ["CoverRefresh"]


@final
class CoverRefresh(Hook):
    """Lets the `Cover` among the references of a criterion follow the network: its points are embeddings of items.

    Args:
        pool: Embeds items of each training class, [classes, items, dimensions], for the turn of a number.
        every: Steps between two turns.
    """

    def __init__(self, pool: Callable[[nn.Module, int], Tensor], every: int) -> None:
        self.pool, self.every = pool, every

    def start(self, state: TrainingState) -> None:
        """Pick the first points."""
        self._choose(state, 0)

    def before_step(self, state: TrainingState) -> None:
        """Pick new points, which the next step is the first to see."""
        turn, rest = divmod(state.step, self.every)
        if turn and not rest:
            self._choose(state, turn)
            state.model.train()

    def _choose(self, state: TrainingState, turn: int) -> None:
        cover = next((module for module in state.criterion.references if isinstance(module, Cover)), None)
        if cover is None:
            raise InputError("CoverRefresh needs a Cover among the criterion's references: Cover(classes, dim).")
        embedded = self.pool(state.model, turn) if state.fabric.is_global_zero else torch.empty(0)
        cover.choose(state.fabric.broadcast(embedded).to(cover.vectors))
