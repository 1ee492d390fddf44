"""A cover that follows the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from vicinal.criterion import Criterion
from vicinal.data import arrays, split
from vicinal.errors import InputError
from vicinal.references import Cover
from vicinal.runs._train import fit
from vicinal.training.ccp import CoverRefresh
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.settings import Settings
from vicinal.training.state import TrainingState

pytestmark = pytest.mark.recipe


def state_of(criterion: Criterion) -> TrainingState:
    return TrainingState(Fabric(accelerator="cpu"), nn.Linear(2, 2), criterion, Settings(), scored=False)


def test_points_are_picked_at_the_start_and_every_so_many_steps() -> None:
    cover = Cover(classes=1, dim=1, per_class=1)
    state, turns = state_of(Criterion("contrastive_c2", references=[cover])), []

    def pool(model: nn.Module, turn: int) -> torch.Tensor:
        turns.append((state.step, turn))
        model.eval()
        return torch.tensor([[[1.0 + turn], [-9.0 * turn]]])

    refresh = CoverRefresh(pool, every=4)
    refresh.start(state)
    assert cover.vectors.item() == 1.0
    state.model.train()
    for state.step in range(9):
        refresh.before_step(state)
    assert turns == [(0, 0), (4, 1), (8, 2)]
    assert cover.vectors.item() == 3.0  # -9 is nearer to the point before, which was -9 itself
    assert state.model.training


def test_a_criterion_without_a_cover_is_told() -> None:
    with pytest.raises(InputError, match="needs a Cover among"):
        CoverRefresh(lambda model, turn: torch.zeros(1, 1, 1), 5).start(state_of(Criterion("triplet")))


def test_fit_with_a_cover_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 6)
    data = arrays((rng.normal(size=(12, 5))[labels] + rng.normal(size=(72, 5))).astype(np.float32), labels)
    halves = split(data, "fixed-validation", validation=0.5)
    options: dict[str, Any] = {
        "loss": "triplet",
        "backbone": "linear",
        "dim": 3,
        "cover": 2,
        "cover_every": 3,
        "classes_per_batch": 3,
        "evaluate_every": 4,
        "progress": False,
    }
    fit(halves, folder=tmp_path / "whole", steps=12, **options)
    stopped: list[int] = []

    def stop(step: int, scores: dict[str, float]) -> None:
        stopped.append(step)
        if step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(halves, folder=tmp_path / "run", steps=12, on_score=stop, **options)
    fit(halves, folder=tmp_path / "run", steps=12, resume=True, **options)
    one, other = (load_checkpoint(tmp_path / run / "last.ckpt") for run in ("whole", "run"))
    for part in ("model", "criterion"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])
