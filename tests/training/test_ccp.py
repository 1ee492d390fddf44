"""Chance-constrained proxies: schedules traced by hand, gradients, exact resume."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from vicinal.criterion import Criterion
from vicinal.data import Dataset
from vicinal.errors import InputError, Interrupted
from vicinal.references import Batch, Proxies
from vicinal.runs.run import RunFiles
from vicinal.training.ccp import ChanceConstrainedProxies, mutual_cosine, proxy_radius, proxy_spread
from vicinal.training.engine import run_training
from vicinal.training.settings import CCP, Settings
from vicinal.training.state import Checkpoints, TrainingState

pytestmark = pytest.mark.recipe

Make = Callable[..., Any]
PLAIN = {"pair_weight": 0.0, "restart": "continue", "monitor": "fresh"}


def kept_in(folder: Path, *, resume: bool = False, identity: str = "") -> Checkpoints:
    return Checkpoints(RunFiles(folder), resume=resume, identity=identity)


def alternation(data: Dataset, **changes: Any) -> ChanceConstrainedProxies:
    """Proxies of five blobs, looked for among all six items of each."""

    def pool(network: nn.Module, instance: int) -> Tensor:
        network.eval()
        with torch.no_grad():
            return network(torch.from_numpy(data.items)).view(5, 6, -1)

    return ChanceConstrainedProxies(CCP(**{"proxies_per_class": 2, **PLAIN, **changes}), pool)


@pytest.fixture
def on_proxies() -> Criterion:
    return Criterion("contrastive_c2", references=[Proxies(5, 4, per_class=2), (Batch(), 0.1)])


def training(network: nn.Module, on_proxies: Criterion) -> TrainingState:
    """A run at its start, chosen by MAP@R."""
    return TrainingState(Fabric(accelerator="cpu"), network, on_proxies, Settings(), scored=True)


def run(ccp: ChanceConstrainedProxies, scores: list[float], on_proxies: Criterion, network: nn.Module) -> list[Any]:
    """Show the driver scores at steps 10, 20, ...; each time the weights have moved by one."""
    state = training(network, on_proxies)
    ccp.start(state)
    ended = []
    for number, score in enumerate(scores, start=1):
        with torch.no_grad():
            network.backbone.bias += 1.0
        state.step = 10 * number
        ended.append(ccp.after_evaluation(state, {"MAP@R": score, "P@1": score / 2}))
    return ended


def test_a_fresh_schedule_by_hand(data: Dataset, model: Make, on_proxies: Criterion) -> None:
    network, ccp = model(), alternation(data)
    start = network.backbone.bias.detach().clone()
    #            best      miss miss miss | forgotten: best, best, miss miss miss | best
    scores = [0.5, 0.5 + 1e-6, 0.4, 0.3, 0.1, 0.2, 0.2, 0.1, 0.0, 0.9]
    ended = run(ccp, scores, on_proxies, network)
    assert [number for number, line in enumerate(ended, start=1) if line] == [4, 9]
    assert [(line["instance"], line["last step"], line["score"], line["best step"]) for line in ccp.history] == [
        (1, 40, 0.5, 10),
        (2, 90, 0.2, 60),
    ]
    assert ccp.instance == 2
    # The anchor is the best of the second instance (after six moves); the network itself went on.
    torch.testing.assert_close(ccp.state_dict()["_anchor"]["backbone.bias"], start + 6)
    torch.testing.assert_close(network.backbone.bias.detach(), start + 10)


def test_a_stale_schedule_is_one_evaluation_late(data: Dataset, model: Make, on_proxies: Criterion) -> None:
    network, ccp = model(), alternation(data, monitor="stale")
    start = network.backbone.bias.detach().clone()
    # Judged by, at 10, 20, ...: nothing, 0.5, 0.4, 0.3, 0.1 (third miss); then 0.2, 0.1, 0.1, 0.0.
    scores = [0.5, 0.4, 0.3, 0.1, 0.2, 0.1, 0.1, 0.0, 0.7]
    run(ccp, scores, on_proxies, network)
    assert [(line["last step"], line["score"], line["best step"]) for line in ccp.history] == [
        (50, 0.5, 20),
        (90, 0.2, 60),
    ]
    assert ccp.history[0]["MAP@R"] == 0.4  # what the kept weights really score
    torch.testing.assert_close(ccp.state_dict()["_anchor"]["backbone.bias"], start + 6)


def test_restart_best_takes_the_network_back(data: Dataset, model: Make, on_proxies: Criterion) -> None:
    network, ccp = model(), alternation(data, restart="best", patience=2)
    start = network.backbone.bias.detach().clone()
    run(ccp, [0.1, 0.3, 0.2, 0.2], on_proxies, network)
    torch.testing.assert_close(network.backbone.bias.detach(), start + 2)
    torch.testing.assert_close(ccp.state_dict()["_anchor"]["backbone.bias"], start + 2)


def test_scores_that_are_nan_end_an_instance_with_the_present_weights(
    data: Dataset, model: Make, on_proxies: Criterion
) -> None:
    network, ccp = model(), alternation(data, patience=2)
    start = network.backbone.bias.detach().clone()
    run(ccp, [math.nan, math.nan, math.nan], on_proxies, network)
    assert [line["last step"] for line in ccp.history] == [20]
    torch.testing.assert_close(ccp.state_dict()["_anchor"]["backbone.bias"], start + 2)


def test_the_pull_is_the_gradient_of_the_proximal_term(
    data: Dataset, model: Make, on_proxies: Criterion, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, ccp = model(), alternation(data, patience=1, proximal_weight=0.3)
    inputs, labels = torch.from_numpy(data.items), torch.from_numpy(data.labels)

    state = training(network, on_proxies)
    scaler = SimpleNamespace(get_scale=lambda: 8.0)

    def gradients(pulled: float | None) -> dict[str, Tensor]:
        network.zero_grad()
        on_proxies.zero_grad()
        on_proxies(network(inputs), labels).backward()
        if pulled is not None:
            with monkeypatch.context() as patch:
                if pulled != 1.0:  # as float16 training has it
                    patch.setattr(state.fabric.strategy.precision, "scaler", scaler, raising=False)
                assert state.loss_scale == pulled
                ccp.before_step(state)
        named = [*network.named_parameters(), ("proxies", on_proxies.references[0].vectors)]
        return {name: parameter.grad.clone() for name, parameter in named}

    ccp.start(state)
    before, pulled = gradients(None), gradients(1.0)
    assert all(torch.equal(before[name], pulled[name]) for name in before)  # nothing pulls in the first instance

    previous = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    for score in (0.5, 0.1):
        ccp.after_evaluation(state, {"MAP@R": score})
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += torch.randn_like(parameter)
    before, pulled, scaled = gradients(None), gradients(1.0), gradients(8.0)
    weights = {name: parameter.detach().clone().requires_grad_() for name, parameter in network.named_parameters()}
    sum((0.3 / 2 * (weights[name] - previous[name]).square()).sum() for name in weights).backward()
    for name, parameter in weights.items():
        torch.testing.assert_close(pulled[name] - before[name], parameter.grad, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(scaled[name] - before[name], 8 * parameter.grad, rtol=1e-4, atol=1e-5)
    assert torch.equal(pulled["proxies"], before["proxies"])


def test_frozen_parameters_are_not_kept(data: Dataset, model: Make, on_proxies: Criterion) -> None:
    network, ccp = model(), alternation(data, patience=1)
    network.backbone.requires_grad_(False)
    run(ccp, [0.5, 0.1], on_proxies, network)
    assert set(ccp.state_dict()["_anchor"]) == {"head.weight", "head.bias"}


def test_proxies_start_far_from_the_origin_and_go_far_from_where_they_were() -> None:
    pool = torch.tensor([[[1.0, 0.0], [3.0, 0.0], [-2.0, 0.0], [2.5, 0.0]]])
    on_proxies = Criterion("contrastive_c2", references=Proxies(1, 2, per_class=2), normalise="none")
    ccp = ChanceConstrainedProxies(CCP(proxies_per_class=2, patience=1, monitor="fresh"), lambda *_: pool)
    state = training(nn.Linear(1, 1), on_proxies)
    ccp.start(state)
    proxies = on_proxies.references[0]
    assert proxies.vectors.tolist() == [[3.0, 0.0], [-2.0, 0.0]]
    assert ccp.after_evaluation(state, {"MAP@R": 0.5}) is None
    ended = ccp.after_evaluation(state, {"MAP@R": 0.5})
    # From 3 and -2 the farthest is 1 (2 away from 3), then 2.5 (0.5 away).
    assert proxies.vectors.tolist() == [[1.0, 0.0], [2.5, 0.0]]
    assert ended is not None
    assert (ended["proxy spread"], ended["next proxy spread"]) == (5.0, 1.5)
    assert (ended["proxy radius"], ended["next proxy radius"]) == (2.0, 3.0)


def test_selection_after_normalisation_sees_directions_only() -> None:
    pool = torch.tensor([[[10.0, 0.0], [0.6, 0.8], [20.0, 0.0]]])
    vectors = {}
    for selection in ("raw", "normalised"):
        on_proxies = Criterion(
            "contrastive_c1", references=Proxies(1, 2, per_class=2), geometry="dot", normalise="ball"
        )
        ccp = ChanceConstrainedProxies(CCP(proxies_per_class=2, selection=selection), lambda *_: pool)
        ccp.start(training(nn.Linear(1, 1), on_proxies))
        vectors[selection] = on_proxies.references[0].vectors.tolist()
    assert vectors["raw"] == [[20.0, 0.0], [10.0, 0.0]]
    assert vectors["normalised"][0] == [1.0, 0.0]
    assert vectors["normalised"][1] == pytest.approx([0.6, 0.8])


def test_the_pull_decays_and_is_told(data: Dataset, model: Make, on_proxies: Criterion) -> None:
    network, ccp = model(), alternation(data, patience=1, proximal_weight=0.4, proximal_decay=0.5)
    assert ccp.proximal_weight == 0.0  # in the first instance
    weights = []
    for score in ([0.5, 0.4], [0.3, 0.2], [0.6, 0.1]):
        for ended in run(ccp, score, on_proxies, network):
            weights += [ccp.proximal_weight] * (ended is not None)
    assert weights == pytest.approx([0.2, 0.1, 0.05])
    assert "distance moved" not in ccp.history[0]
    # Each time the bias of the network moved by one in each of its dimensions, twice from best to best.
    moved = math.sqrt(4 * network.backbone.bias.numel())
    assert [line["distance moved"] for line in ccp.history[1:]] == pytest.approx([moved] * 2, rel=1e-5)
    assert [line["proximal pull"] for line in ccp.history[1:]] == pytest.approx([0.2 * moved, 0.1 * moved], rel=1e-5)
    assert ccp.first["proxy spread"] > 0


def test_the_cosine_between_classes_against_loops() -> None:
    proxies = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    units = proxies / proxies.norm(dim=2, keepdim=True)
    pairs = [units[a, i] @ units[b, j] for a in range(3) for b in range(3) if a != b for i in (0, 1) for j in (0, 1)]
    assert mutual_cosine(proxies) == pytest.approx(float(torch.stack(pairs).mean()), abs=1e-6)
    assert math.isnan(mutual_cosine(proxies[:1]))


def test_spread_and_radius_against_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    pool, proxies = torch.randn(3, 7, 2, generator=generator), torch.randn(3, 4, 2, generator=generator)
    spreads = [(one - other).norm() for mine in proxies for one in mine for other in mine if one is not other]
    assert proxy_spread(proxies) == pytest.approx(sum(map(float, spreads)) / (3 * 12), rel=1e-5)
    radii = [
        max(min(float((item - proxy).norm()) for proxy in mine) for item in items)
        for items, mine in zip(pool, proxies, strict=True)
    ]
    assert proxy_radius(pool, proxies) == pytest.approx(sum(radii) / 3, rel=1e-5)
    assert math.isnan(proxy_spread(proxies[:, :1]))


def test_without_proxies_or_scores_it_says_what_is_missing(
    data: Dataset, model: Make, criterion: Make, stream: Make, settings: Make, on_proxies: Criterion
) -> None:
    with pytest.raises(InputError, match=r"need proxies among the references: pass the criterion references=\[\(Prox"):
        run_training(
            model(),
            criterion(),
            stream(),
            settings(),
            hooks=[alternation(data)],
            score=lambda _: {"score": 0},
            progress=False,
        )
    with pytest.raises(InputError, match="has converged: train with validation classes"):
        run_training(model(), on_proxies, stream(), settings(), hooks=[alternation(data)], progress=False)
    with pytest.raises(InputError, match="got evaluate_every = 0"):
        run_training(
            model(),
            on_proxies,
            stream(),
            settings(evaluate_every=0),
            hooks=[alternation(data)],
            score=lambda _: {"score": 0},
            progress=False,
        )


def script(values: list[float]) -> Callable[[nn.Module], dict[str, float]]:
    """Scores that depend on nothing but their order, from wherever a run is."""
    rest = iter(values)
    return lambda _: {"score": next(rest)}


def test_the_loop_alternates_and_logs(
    data: Dataset, model: Make, stream: Make, settings: Make, on_proxies: Criterion, tmp_path: Path
) -> None:
    ccp = alternation(data, patience=1, proximal_weight=1e-3)
    wanted = settings(steps=24, evaluate_every=4)
    scores = script([0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    outcome = run_training(
        model(),
        on_proxies,
        stream(),
        wanted,
        score=scores,
        hooks=[ccp],
        checkpoints=kept_in(tmp_path),
        progress=False,
    )
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    instances = [line for line in lines if "instance" in line]
    assert [(line["instance"], line["step"], line["score"]) for line in instances] == [
        (1, 8, 0.5),
        (2, 16, 0.3),
        (3, 24, 0.1),
    ]
    assert {"proxy spread", "proxy radius", "next proxy spread", "next proxy radius"} < set(instances[0])
    assert (outcome.best_step, outcome.best_scores) == (4, {"score": 0.5})


@pytest.mark.parametrize("restart", ["best", "continue"])
@pytest.mark.parametrize("monitor", ["fresh", "stale"])
@pytest.mark.parametrize("batch", [3, 6, 9])
def test_resume_in_the_midst_of_an_instance_is_bit_identical(
    restart: str, monitor: str, batch: int, data: Dataset, model: Make, stream: Make, settings: Make, tmp_path: Path
) -> None:
    wanted = settings(steps=20, evaluate_every=2, optimiser="adam")
    values = [0.5, 0.4, 0.6, 0.3, 0.2, 0.5, 0.1, 0.1, 0.3, 0.2]

    def go(folder: Path, source: Any, scores: list[float], *, resume: bool = False) -> tuple[list[Tensor], Any]:
        network = model()
        loss = Criterion("contrastive_c2", references=[Proxies(5, 4, per_class=2), (Batch(), 0.1)])
        ccp = alternation(data, patience=2, proximal_weight=0.01, restart=restart, monitor=monitor)
        options = {
            "score": script(scores),
            "hooks": [ccp],
            "checkpoints": kept_in(folder, resume=resume),
            "progress": False,
        }
        run_training(network, loss, source, wanted, **options)
        return [*network.state_dict().values(), *loss.state_dict().values()], ccp

    whole, expected = go(tmp_path / "whole", stream(), values)
    assert len(expected.history) >= 2

    items = iter(range(10_000))

    def interrupt(vector: np.ndarray, _: np.random.Generator) -> Tensor:
        if next(items) == 6 * batch - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return torch.from_numpy(np.array(vector))

    with pytest.raises(Interrupted):
        go(tmp_path / "run", replace(stream(), transform=interrupt), values)
    resumed, found = go(tmp_path / "run", stream(), values[batch // 2 :], resume=True)
    assert all(map(torch.equal, resumed, whole))
    assert found.history == expected.history
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "run")]
    of_instances = [[line for line in lines if '"instance"' in line] for lines in logs]
    assert of_instances[0] == of_instances[1]
