"""The training loop against a loop written by hand, and what happens when something goes wrong."""

from __future__ import annotations

import json
import math
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vicinal.data import Dataset
from vicinal.errors import DataError, InputError, Interrupted, NotFinite, UnknownName
from vicinal.runs.run import RunFiles
from vicinal.sampling import hard_class_sampler
from vicinal.training import engine
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.engine import Outcome, run_training
from vicinal.training.log import TIME_USED, read_log
from vicinal.training.optimiser import learning_rate_factor
from vicinal.training.state import Checkpoints, TrainingState

pytestmark = pytest.mark.recipe

Make = Callable[..., Any]


def kept_in(folder: Path, *, resume: bool = False, identity: str = "") -> Checkpoints:
    return Checkpoints(RunFiles(folder), resume=resume, identity=identity)


def weights(*modules: nn.Module) -> list[Tensor]:
    return [tensor.clone() for module in modules for tensor in module.state_dict().values()]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def by_hand(
    model: Any,
    criterion: Any,
    stream: Any,
    steps: int,
    *,
    accumulate: int = 1,
    clip: Callable[[list[nn.Parameter]], object] = lambda _: None,
    decay_first: bool = False,
    betas: tuple[float, float] = (0.9, 0.999),
    factor: Callable[[int], float] = lambda _: 1.0,
    warm_up: int = 0,
) -> None:
    """Train as the settings of the fixture say, in as few words as possible."""
    groups = [
        {"params": [model.backbone.weight], "weight_decay": 1e-4},
        {"params": [model.backbone.bias], "weight_decay": 0.0},
        {"params": [model.head.weight], "weight_decay": 1e-4},
        {"params": [model.head.bias], "weight_decay": 0.0},
        *({"params": [each.vectors], "weight_decay": 1e-4, "multiplier": 100.0} for each in criterion.references),
    ]
    decays = [group["weight_decay"] for group in groups]
    for group in groups if decay_first else ():
        group["weight_decay"] = 0.0
    optimiser = torch.optim.AdamW(groups, lr=0.05, betas=betas, fused=True)
    batches = (batch for _ in range(1000) for batch in stream)
    for step in range(steps):
        for _ in range(accumulate):
            batch = next(batches)
            (criterion(model(batch.images), batch.labels, ids=batch.indices) / accumulate).backward()
        if step < warm_up:
            model.backbone.zero_grad()
        for group, decay in zip(groups, decays, strict=True) if decay_first else ():
            for parameter in group["params"]:
                parameter.grad += decay * parameter.detach()
        clip([parameter for group in groups for parameter in group["params"]])
        for group in optimiser.param_groups:
            group["lr"] = 0.05 * group.get("multiplier", 1.0) * factor(step)
        optimiser.step()
        optimiser.zero_grad()


def clip_both(parameters: list[nn.Parameter]) -> None:
    nn.utils.clip_grad_norm_(parameters, 0.05)
    nn.utils.clip_grad_value_(parameters, 0.01)


@pytest.mark.parametrize(
    ("changes", "hand"),
    [
        ({"clip_value": None}, {}),
        ({"clip_value": None, "accumulate": 3}, {"accumulate": 3}),
        ({"clip_value": 0.01}, {"clip": lambda all_: nn.utils.clip_grad_value_(all_, 0.01)}),
        ({"clip_norm": 0.05}, {"clip": lambda all_: nn.utils.clip_grad_norm_(all_, 0.05)}),
        ({"clip_norm": 0.05, "clip_value": 0.01}, {"clip": clip_both}),
        (
            {"clip_norm": 0.05, "decay_before_clipping": True},
            {"clip": lambda all_: nn.utils.clip_grad_norm_(all_, 0.05), "decay_first": True},
        ),
        ({"clip_value": None, "betas": (0.8, 0.9)}, {"betas": (0.8, 0.9)}),
        ({"clip_value": None, "schedule": "cosine"}, {"factor": lambda step: 0.5 + math.cos(step * math.pi / 12) / 2}),
        (
            {"clip_value": None, "schedule": "step", "schedule_every": 5, "schedule_factor": 0.1},
            {"factor": lambda step: 0.1 ** (step // 5)},
        ),
        ({"clip_value": None, "warm_up": 5}, {"warm_up": 5}),
    ],
    ids=["plain", "accumulate", "value", "norm", "both clips", "decay first", "betas", "cosine", "step", "warm_up"],
)
def test_the_loop_is_the_loop_one_would_write(
    changes: dict[str, Any], hand: dict[str, Any], model: Make, criterion: Make, stream: Make, settings: Make
) -> None:
    ours, loss = model(), criterion("proxy_anchor")
    outcome = run_training(ours, loss, stream(), settings(**changes), progress=False)
    theirs, expected = model(), criterion("proxy_anchor")
    by_hand(theirs, expected, stream(), 12, **hand)
    assert equal(weights(ours, loss), weights(theirs, expected))
    assert outcome.steps == outcome.best_step == 12
    assert outcome.images == 12 * 6 * changes.get("accumulate", 1)
    assert outcome.best_scores == {}
    assert not ours.training


def test_a_plateau_lowers_the_rate_and_resuming_remembers_it(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    def scored(network: nn.Module, scores: Iterator[float]) -> Callable[[Any], dict[str, float]]:
        return lambda _: {"score": next(scores)}

    flat = settings(schedule="plateau", schedule_patience=1, schedule_factor=0.1, clip_value=None, evaluate_every=4)
    ours, loss = model(), criterion("proxy_anchor")
    scores = scored(ours, iter([0.5, 0.4, 0.6]))
    run_training(ours, loss, stream(), flat, score=scores, checkpoints=kept_in(tmp_path), progress=False)
    theirs, expected = model(), criterion("proxy_anchor")
    by_hand(theirs, expected, stream(), 12, factor=lambda step: 0.1 if step >= 8 else 1.0)
    assert equal(weights(ours, loss), weights(theirs, expected))
    longer = flat.model_copy(update={"steps": 16})
    scores = scored(ours, iter([0.7]))
    again, other = model(), criterion("proxy_anchor")
    run_training(
        again,
        other,
        stream(),
        longer,
        score=scores,
        checkpoints=kept_in(tmp_path, resume=True),
        progress=False,
    )
    theirs, expected = model(), criterion("proxy_anchor")
    by_hand(theirs, expected, stream(), 16, factor=lambda step: 0.1 if step >= 8 else 1.0)
    assert equal(weights(again, other), weights(theirs, expected))


def test_warm_up_holds_the_backbone_still_and_moves_the_head(
    model: Make, criterion: Make, stream: Make, settings: Make
) -> None:
    network = model()
    backbone, head = weights(network.backbone), weights(network.head)
    seen: dict[int, tuple[bool, bool]] = {}

    def score(scored: Any) -> dict[str, float]:
        seen[4 * len(seen) + 4] = (equal(weights(scored.backbone), backbone), equal(weights(scored.head), head))
        return {"score": 0.0}

    run_training(network, criterion(), stream(), settings(warm_up=8), score=score, progress=False)
    assert seen == {4: (True, False), 8: (True, False), 12: (False, False)}


def test_best_weights_are_kept_and_early_stopping_stops(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    scores = iter([0.1, 0.3, 0.300001, 0.2, 0.9])
    seen: list[list[Tensor]] = []

    def score(network: nn.Module) -> dict[str, float]:
        seen.append(weights(network))
        return {"score": np.float32(next(scores)), "other": 0.0}

    network = model()
    wanted = settings(steps=100, patience=2)
    outcome = run_training(
        network, criterion(), stream(), wanted, score=score, checkpoints=kept_in(tmp_path), progress=False
    )
    assert (outcome.steps, outcome.best_step, outcome.images) == (16, 8, 16 * 6)
    assert outcome.best_scores == pytest.approx({"score": 0.3, "other": 0.0})
    assert equal(weights(network), seen[1])
    assert equal(list(load_checkpoint(tmp_path / "best.ckpt")["model"].values()), seen[1])

    again = model()
    resumed = run_training(
        again,
        criterion(),
        stream(),
        wanted,
        score=score,
        checkpoints=kept_in(tmp_path, resume=True),
        progress=False,
    )
    assert (resumed.steps, resumed.images, resumed.best_step) == (16, 16 * 6, 8)
    assert resumed.best_scores == outcome.best_scores
    assert equal(weights(again), seen[1])
    assert len(seen) == 4


def test_a_budget_of_time_ends_with_a_scored_step_and_is_not_spent_twice(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    wanted = settings(steps=10**9, seconds=0.5, evaluate_every=10**8)

    def run(resume: bool) -> Outcome:
        kept = kept_in(tmp_path, resume=resume)
        score = {"score": 0.5}
        return run_training(
            model(), criterion(), stream(), wanted, score=lambda _: score, checkpoints=kept, progress=False
        )

    outcome = run(resume=False)
    assert 1 <= outcome.steps < 10**8
    assert outcome.best_step == outcome.steps
    assert outcome.seconds >= 0.5
    assert run(resume=True).steps == outcome.steps


def test_a_time_alone_drives_the_schedule_to_its_end(
    model: Make, criterion: Make, stream: Make, settings: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(TrainingState, "elapsed", property(lambda state: 0.25 * state.step))
    factors: list[float] = []

    def noted(*parts: Any) -> float:
        factors.append(learning_rate_factor(*parts))
        return factors[-1]

    monkeypatch.setattr(engine, "learning_rate_factor", noted)
    wanted = settings(steps=None, seconds=2.0, schedule="cosine", evaluate_every=0)
    files = RunFiles(tmp_path)
    assert (
        run_training(model(), criterion(), stream(), wanted, checkpoints=Checkpoints(files), progress=False).steps == 8
    )
    np.testing.assert_allclose(factors, 0.5 * (1 + np.cos(np.pi * np.arange(8) / 8)))
    assert [line[TIME_USED] for line in read_log(files.log)] == [0.125, 0.375, 0.625, 0.875]


def test_a_score_that_is_nan_is_never_the_best(model: Make, criterion: Make, stream: Make, settings: Make) -> None:
    scores = iter([math.nan, 0.5, math.nan])
    outcome = run_training(
        model(), criterion(), stream(), settings(), score=lambda _: {"score": next(scores)}, progress=False
    )
    assert (outcome.best_step, outcome.best_scores) == (8, {"score": 0.5})


def test_an_unknown_score_is_named(model: Make, criterion: Make, stream: Make, settings: Make) -> None:
    with pytest.raises(UnknownName, match=r"Unknown score 'MAP@r'; did you mean 'MAP@R'\?"):
        run_training(
            model(), criterion(), stream(), settings(score="MAP@r"), score=lambda _: {"MAP@R": 1.0}, progress=False
        )


def test_the_log_has_losses_statistics_and_scores(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    loss = criterion(mining="valid_triplets")
    run_training(
        model(),
        loss,
        stream(),
        settings(),
        score=lambda _: {"score": 0.5},
        checkpoints=kept_in(tmp_path),
        progress=False,
    )
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [2, 4, 6, 8, 10, 12]
    assert [line["step"] for line in lines if "score" in line] == [4, 8, 12]
    statistics = {"kept_positives", "kept_negatives", "hardest_positive", "hardest_negative"}
    assert statistics < set(lines[0])
    assert lines[0]["images_per_second"] > 0


def acting(stream: Any, at: int, act: Callable[[], object]) -> Any:
    """Return the stream with a transform that does something in its batch number `at`."""
    items = iter(range(10_000))

    def transform(vector: np.ndarray, _: np.random.Generator) -> Tensor:
        if next(items) == 6 * at - 1:
            act()
        return torch.from_numpy(np.array(vector))

    return replace(stream, transform=transform)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_signal_saves_says_how_to_go_on_and_resumes_exactly(
    number: int, accumulate: int, model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    wanted = settings(accumulate=accumulate, schedule="cosine")
    whole, whole_loss = model(), criterion("proxy_anchor", mining="random")
    run_training(whole, whole_loss, stream(), wanted, checkpoints=kept_in(tmp_path / "whole"), progress=False)

    def run(source: Any, resume: bool) -> list[Tensor]:
        network, loss = model(), criterion("proxy_anchor", mining="random")
        run_training(
            network,
            loss,
            source,
            wanted,
            checkpoints=kept_in(tmp_path / "run", resume=resume),
            progress=False,
        )
        return weights(network, loss)

    source = acting(stream(), 7, lambda: os.kill(os.getpid(), number))
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stopped = math.ceil(7 / accumulate)
    with pytest.raises(Interrupted, match=rf"step {stopped} of 12\. It is saved in .*run; continue with --resume"):
        run(source, resume=False)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert equal(run(stream(), resume=True), weights(whole, whole_loss))


def test_a_second_ctrl_c_acts_at_once(model: Make, criterion: Make, stream: Make, settings: Make) -> None:
    def twice() -> None:
        # The second comes when the first has been handled: two that wait would be merged into one.
        first = signal.getsignal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        while signal.getsignal(signal.SIGINT) is first:
            pass
        signal.raise_signal(signal.SIGINT)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of pytest-xdist ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            run_training(model(), criterion(), acting(stream(), 3, twice), settings(), progress=False)
    finally:
        signal.signal(signal.SIGINT, former)


def explode(at: int, how: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    calls = iter(range(1, 10_000))

    def objective(matrix: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        usual = matrix[negative].mean() - matrix[positive].mean()
        return usual + how(matrix) if next(calls) == at else usual

    return objective


def test_a_nan_loss_names_step_items_reason_and_checkpoint(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    source = stream()
    batches = [batch.indices.tolist() for _ in range(4) for batch in source]
    loss = criterion(explode(7, lambda matrix: matrix.sum() * torch.nan))
    with pytest.raises(NotFinite) as caught:
        run_training(model(), loss, stream(), settings(), checkpoints=kept_in(tmp_path), progress=False)
    message = str(caught.value)
    assert "stopped at step 7" in message
    assert f"items {', '.join(map(str, batches[6]))}." in message
    assert "The loss is nan" in message
    assert "learning rate (0.05) is too high" in message
    assert f"The last good checkpoint is {tmp_path / 'last.ckpt'}." in message
    assert load_checkpoint(tmp_path / "last.ckpt")["progress"]["step"] == 4

    resumed = run_training(
        model(),
        criterion(),
        stream(),
        settings(),
        checkpoints=kept_in(tmp_path, resume=True),
        progress=False,
    )
    assert resumed.steps == 12


def test_weights_that_overflow_are_told_by_step(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    wild = settings(learning_rate=1e30, optimiser="sgd", clip_value=None)
    with pytest.raises(
        NotFinite, match=r"stopped at step \d+.*embeddings hold NaN or infinity.*\(1e\+30\) is too high"
    ):
        run_training(model(), criterion(), stream(), wild, checkpoints=kept_in(tmp_path), progress=False)
    assert not (tmp_path / "last.ckpt").exists()


def test_a_nan_gradient_of_a_finite_loss_does_not_reach_the_checkpoint(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    loss = criterion(explode(8, lambda matrix: (matrix * 0).sum().sqrt()))
    with pytest.raises(NotFinite, match=r"stopped at step 8.*weights backbone\.weight hold NaN.*last good checkpoint"):
        run_training(
            model(),
            loss,
            stream(),
            settings(),
            score=lambda _: {"score": 1.0},
            checkpoints=kept_in(tmp_path),
            progress=False,
        )
    state = load_checkpoint(tmp_path / "last.ckpt")
    assert state["progress"]["step"] == 4
    assert all(tensor.isfinite().all() for tensor in state["model"].values())


def test_a_checkpoint_that_cannot_be_written_leaves_the_former_one(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.replace, iter(range(1, 100))

    def full(source: Path, target: Path) -> None:
        if Path(target).name == "last.ckpt" and next(calls) == 2:
            raise OSError(28, "No space left on device")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("vicinal._util.files.os.replace", full)
        with pytest.raises(DataError, match="No space left on device"):
            run_training(model(), criterion(), stream(), settings(), checkpoints=kept_in(tmp_path), progress=False)
    assert load_checkpoint(tmp_path / "last.ckpt")["progress"]["step"] == 4
    assert sorted(os.listdir(tmp_path)) == ["last.ckpt", "metrics.jsonl"]


def test_a_damaged_checkpoint_is_refused(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    run_training(model(), criterion(), stream(), settings(), checkpoints=kept_in(tmp_path), progress=False)
    path = tmp_path / "last.ckpt"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="is corrupted"):
        run_training(
            model(),
            criterion(),
            stream(),
            settings(),
            checkpoints=kept_in(tmp_path, resume=True),
            progress=False,
        )


def test_resume_with_other_data_is_refused(
    model: Make, criterion: Make, stream: Make, settings: Make, data: Dataset, tmp_path: Path
) -> None:
    run_training(model(), criterion(), stream(), settings(), checkpoints=kept_in(tmp_path), progress=False)
    other = replace(stream(), sampler=hard_class_sampler(data.labels, 2, 3), embed=lambda _: torch.zeros(30, 4))
    with pytest.raises(InputError, match="same data"):
        run_training(
            model(),
            criterion(),
            other,
            settings(),
            checkpoints=kept_in(tmp_path, resume=True),
            progress=False,
        )


def test_resume_with_data_of_another_identity_is_refused(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    """Items and class sizes are the same, so that nothing else could tell."""

    def run(identity: str, resume: bool = False) -> Outcome:
        kept = kept_in(tmp_path, resume=resume, identity=identity)
        return run_training(model(), criterion(), stream(), settings(), checkpoints=kept, progress=False)

    first = run("fold 0")
    before = (tmp_path / "last.ckpt").read_bytes()
    with pytest.raises(InputError, match=r"other data, or on another split of it: use the same data, protocol, fold"):
        run("fold 1", resume=True)
    assert (tmp_path / "last.ckpt").read_bytes() == before
    again = run("fold 0", resume=True)
    assert (again.steps, again.images) == (first.steps, first.images)


def test_hard_classes_get_embeddings_at_every_evaluation(
    model: Make, criterion: Make, stream: Make, settings: Make, data: Dataset
) -> None:
    calls: list[bool] = []

    def embed(network: nn.Module) -> Tensor:
        calls.append(network.training)
        network.eval()
        with torch.inference_mode():
            return network(torch.from_numpy(data.items))

    sampler = hard_class_sampler(data.labels, 2, 3)
    network = model()
    modes: list[bool] = []
    network.backbone.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    run_training(network, criterion(), stream(sampler, embed=embed), settings(), progress=False)
    assert len(calls) == 3
    assert modes.count(True) == 12  # training goes on in training mode after each look
    centroids = sampler.state_dict()["next_centroids"]
    expected = torch.stack([network(torch.from_numpy(data.items[data.labels == c])).mean(0) for c in range(5)])
    torch.testing.assert_close(centroids, expected.detach(), rtol=1e-5, atol=1e-6)


def test_a_stream_of_hard_classes_needs_embed(stream: Make, data: Dataset) -> None:
    with pytest.raises(InputError, match="pass embed="):
        stream(hard_class_sampler(data.labels, 2, 3))


def test_bfloat16_is_close_to_float32(
    model: Make, criterion: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    losses = {}
    for precision in ("32-true", "bf16-mixed"):
        network, folder = model(), tmp_path / precision
        wanted = settings(precision=precision, log_every=1, learning_rate=0.01)
        run_training(
            network,
            criterion("multi_similarity"),
            stream(),
            wanted,
            checkpoints=kept_in(folder),
            progress=False,
        )
        assert all(tensor.dtype == torch.float32 and tensor.isfinite().all() for tensor in weights(network))
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        losses[precision] = torch.tensor([json.loads(line)["loss"] for line in lines])
    assert not torch.equal(losses["32-true"], losses["bf16-mixed"])
    torch.testing.assert_close(losses["bf16-mixed"], losses["32-true"], rtol=0.05, atol=0.0)


def test_an_accelerator_that_is_not_there_is_told(model: Make, criterion: Make, stream: Make, settings: Make) -> None:
    absent = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(InputError, match=re.escape(f"accelerator='{absent}'") + ".*Use accelerator='auto'"):
        run_training(model(), criterion(), stream(), settings(accelerator=absent), progress=False)
