"""A hook of one's own: it takes part, is saved, and goes on where it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vicinal.data import arrays, split
from vicinal.errors import InputError, Interrupted
from vicinal.runs._train import fit
from vicinal.runs.run import RunFiles
from vicinal.training import Hook
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.engine import run_training
from vicinal.training.log import read_log
from vicinal.training.settings import CCP
from vicinal.training.state import Checkpoints, TrainingState

pytestmark = pytest.mark.recipe

Make = Callable[..., Any]


class Momentum(Hook):
    """Adds a moving average of the head's gradients, and counts; all of it matters for what comes next."""

    def __init__(self) -> None:
        self.average: Tensor | None = None
        self.seen: list[dict[str, Any]] = []
        self.calls: list[str] = []

    def start(self, state: TrainingState) -> None:
        self.calls.append("start")
        assert (state.step, state.images, state.scored) == (0, 0, True)
        self.average = torch.zeros_like(state.model.head.weight)

    def before_step(self, state: TrainingState) -> None:
        self.calls.append(f"step {state.step}")
        gradient = state.model.head.weight.grad
        self.average = 0.9 * self.average + 0.1 * gradient
        gradient.add_(self.average)

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> Mapping[str, float] | None:
        self.seen.append({"step": state.step, "images": state.images, "best": state.best.step, **scores})
        return {"average": float(self.average.norm())} if len(self.seen) % 2 else None

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average, "seen": self.seen}

    def load_state_dict(self, values: dict[str, Any], state: TrainingState) -> None:
        self.calls.append("load")
        self.average, self.seen = values["average"].to(state.model.head.weight.device), values["seen"]


class Idle(Hook):
    """Leaves every method out."""


def weights(*modules: nn.Module) -> list[Tensor]:
    return [tensor.clone() for module in modules for tensor in module.state_dict().values()]


def lines(folder: Path) -> list[dict[str, Any]]:
    return read_log(folder / "metrics.jsonl")


@pytest.fixture
def go(model: Make, criterion: Make, stream: Make, settings: Make) -> Make:
    """Train with hooks; the score falls with the weights, and `act` happens in evaluation number `at`."""

    def run(hooks: list[Hook], folder: Path, *, at: int = 0, act: Any = None, resume: bool = False) -> Any:
        calls = iter(range(1, 100))

        def score(network: nn.Module) -> dict[str, float]:
            if next(calls) == at:
                act()
            return {"score": -float(sum(tensor.abs().sum() for tensor in network.state_dict().values()))}

        network, loss = model(), criterion("proxy_anchor")
        kept = Checkpoints(RunFiles(folder), resume=resume)
        options: dict[str, Any] = {"score": score, "hooks": hooks, "checkpoints": kept, "progress": False}
        outcome = run_training(network, loss, stream(), settings(), **options)
        return weights(network, loss), outcome

    return run


def test_a_hook_takes_part(go: Make, tmp_path: Path) -> None:
    hook = Momentum()
    without, _ = go([], tmp_path / "without")
    idle, _ = go([Idle()], tmp_path / "idle")
    changed, outcome = go([hook], tmp_path / "with")
    assert all(map(torch.equal, without, idle))
    assert not all(map(torch.equal, without, changed))
    assert hook.calls == ["start", *(f"step {step}" for step in range(12))]
    assert [(seen["step"], seen["images"]) for seen in hook.seen] == [(4, 24), (8, 48), (12, 72)]
    # The evaluation that a hook is shown counts already.
    best = {seen["step"]: seen["score"] for seen in hook.seen}
    assert [seen["best"] for seen in hook.seen] == [
        max((step for step in best if step <= now), key=best.__getitem__) for now in best
    ]
    assert outcome.best_scores == {"score": max(best.values())}
    assert [line["step"] for line in lines(tmp_path / "with") if "average" in line] == [4, 12]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_hook_is_saved_and_goes_on(at: int, go: Make, tmp_path: Path) -> None:
    whole = Momentum()
    expected = go([Idle(), whole], tmp_path / "whole")
    with pytest.raises(Interrupted):
        go([Idle(), Momentum()], tmp_path / "run", at=at, act=lambda: os.kill(os.getpid(), signal.SIGTERM))
    saved = load_checkpoint(tmp_path / "run" / "last.ckpt")["hooks"]
    assert saved[0] == {}
    assert saved[1]["seen"] == whole.seen[:at]
    resumed = Momentum()
    found = go([Idle(), resumed], tmp_path / "run", resume=True)
    assert all(map(torch.equal, found[0], expected[0]))
    assert (found[1].best_step, found[1].best_scores) == (expected[1].best_step, expected[1].best_scores)
    assert resumed.calls == ["load", *(f"step {step}" for step in range(4 * at, 12))]
    assert resumed.seen == whole.seen
    assert torch.equal(resumed.average, whole.average)
    timeless = [
        [{name: value for name, value in line.items() if name != "images_per_second"} for line in lines(tmp_path / run)]
        for run in ("whole", "run")
    ]
    assert timeless[0] == timeless[1]


def test_a_signal_in_the_last_evaluation_stops_when_all_is_saved(go: Make, tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match=r"Stopped at step 12 of 12\. It is saved in .*run; continue with --resume"):
        go([Momentum()], tmp_path / "run", at=3, act=lambda: os.kill(os.getpid(), signal.SIGINT))
    whole, outcome = go([Momentum()], tmp_path / "whole")
    hook = Momentum()
    resumed, found = go([hook], tmp_path / "run", at=1, act=lambda: pytest.fail("scored again"), resume=True)
    assert hook.calls == ["load"]
    assert all(map(torch.equal, resumed, whole))
    assert (found.steps, found.images, found.best_step) == (outcome.steps, outcome.images, outcome.best_step)
    assert found.best_scores == outcome.best_scores


def test_a_run_goes_on_only_with_its_hooks(go: Make, tmp_path: Path) -> None:
    go([Momentum(), Idle()], tmp_path)
    with pytest.raises(InputError, match=r"started with 2 hooks; got 1: pass the same ones, in the same order"):
        go([Momentum()], tmp_path, resume=True)


def test_a_hook_that_only_watches_may_come_and_go(go: Make, tmp_path: Path) -> None:
    class Watch(Hook):
        only_watches = True

        def __init__(self) -> None:
            self.calls: list[str] = []

        def start(self, state: TrainingState) -> None:
            self.calls.append(f"start at {state.step}")

        def on_log(self, state: TrainingState, values: Mapping[str, float]) -> None:
            self.calls += ["loss" for name in values if name == "loss"]

        def end(self, state: TrainingState) -> None:
            self.calls.append(f"end at {state.step}")

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    whole, _ = go([Momentum()], tmp_path / "whole")
    with pytest.raises(Interrupted):
        go([Momentum()], tmp_path / "run", at=1, act=kill)
    watch = Watch()
    resumed, _ = go([watch, Momentum()], tmp_path / "run", resume=True)
    assert all(map(torch.equal, resumed, whole))
    assert watch.calls == ["start at 4", *["loss"] * 4, "end at 12"]
    broken = Watch()
    with pytest.raises(Interrupted):  # it is told of the end, however that came about
        go([broken], tmp_path / "broken", at=1, act=kill)
    assert broken.calls[-1] == "end at 4"


def test_hooks_take_part_in_fit_beside_those_of_the_recipe(tmp_path: Path) -> None:
    class Steps(Hook):
        def __init__(self) -> None:
            self.steps: list[int] = []

        def before_step(self, state: TrainingState) -> None:
            self.steps.append(state.step)
            assert state.model.dim == 3

    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 4)
    vectors = rng.normal(size=(48, 6)).astype(np.float32) + 3 * rng.normal(size=(12, 6)).astype(np.float32)[labels]
    halves = split(arrays(vectors, labels), "fixed-validation", validation=0.4)
    hook = Steps()
    options = {"backbone": "linear", "dim": 3, "classes_per_batch": 4, "steps": 6, "evaluate_every": 2}
    ccp = CCP(proxies_per_class=2, pool=3, patience=1, monitor="fresh")
    fit(halves, hooks=[hook], ccp=ccp, folder=tmp_path, progress=False, **options)
    assert hook.steps == list(range(6))
    assert len(load_checkpoint(tmp_path / "last.ckpt")["hooks"]) == 3  # one keeps validation scores
