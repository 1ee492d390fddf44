"""Parameter groups, optimisers and schedules."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from vicinal.criterion import Criterion, Learned
from vicinal.embedder import Embedder
from vicinal.errors import InputError
from vicinal.references import Proxies
from vicinal.training.optimiser import build_optimiser, learning_rate_factor, parameter_groups
from vicinal.training.settings import Settings

pytestmark = pytest.mark.unit


def test_groups_of_an_embedder() -> None:
    embedder = Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16})
    proxies = Proxies(classes=5, dim=3, learning_rate_multiplier=50.0)
    criterion = Criterion("proxy_anchor", references=proxies)
    settings = Settings(learning_rate=0.01, head_multiplier=10.0, weight_decay=0.2)
    groups = parameter_groups(embedder, criterion, settings)
    found = {
        name: (round(group["base"], 6), group["weight_decay"], group["warms_up"])
        for name, parameter in [*embedder.named_parameters(), ("proxies", proxies.vectors)]
        for group in groups
        if any(parameter is other for other in group["params"])
    }
    assert found == {
        "backbone.blocks.0.0.weight": (0.01, 0.2, False),
        "backbone.blocks.0.1.weight": (0.01, 0.0, False),
        "backbone.blocks.0.1.bias": (0.01, 0.0, False),
        "backbone.blocks.1.0.weight": (0.01, 0.2, False),
        "backbone.blocks.1.1.weight": (0.01, 0.0, False),
        "backbone.blocks.1.1.bias": (0.01, 0.0, False),
        "head.linear.weight": (0.1, 0.2, True),
        "head.linear.bias": (0.1, 0.0, True),
        "proxies": (0.5, 0.2, True),
    }
    assert sum(len(group["params"]) for group in groups) == len(found)


def test_frozen_parameters_are_in_no_group() -> None:
    embedder = Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16}).freeze(train_stages=0)
    groups = parameter_groups(embedder, Criterion("contrastive"), Settings())
    trained = {id(parameter) for group in groups for parameter in group["params"]}
    assert trained == {id(parameter) for parameter in embedder.head.parameters()}


def test_a_model_without_a_head_is_all_head() -> None:
    groups = parameter_groups(nn.Linear(2, 2), Criterion("contrastive"), Settings(head_multiplier=3.0))
    assert all(group["warms_up"] for group in groups)
    assert {round(group["base"], 9) for group in groups} == {3e-4}


def test_learned_options_are_trained() -> None:
    criterion = Criterion("margin", boundary=Learned(1.2))
    groups = parameter_groups(nn.Linear(2, 2), criterion, Settings())
    assert any(parameter is criterion.learned["boundary"] for group in groups for parameter in group["params"])


def test_nothing_to_train_is_an_error() -> None:
    embedder = Embedder("convnet", dim=None, options={"widths": [4], "size": 8}).freeze(train_stages=0)
    with pytest.raises(InputError, match="All parameters are frozen"):
        parameter_groups(embedder, Criterion("contrastive"), Settings())


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_optimisers(name: str, kind: type[torch.optim.Optimizer]) -> None:
    optimiser = build_optimiser(nn.Linear(2, 2), Criterion("contrastive"), Settings(optimiser=name))
    assert type(optimiser) is kind
    assert optimiser.defaults.get("momentum", 0.9) == 0.9


def test_schedules() -> None:
    constant, cosine = Settings(steps=10), Settings(steps=10, schedule="cosine")
    assert [learning_rate_factor(step, constant) for step in (0, 9)] == [1.0, 1.0]
    assert [learning_rate_factor(step, cosine) for step in (0, 5)] == pytest.approx([1.0, 0.5])
    assert learning_rate_factor(9, cosine) == pytest.approx((1 + math.cos(0.9 * math.pi)) / 2)
    timed, both = (Settings(steps=steps, seconds=9.0, schedule="cosine") for steps in (None, 10))
    assert [learning_rate_factor(3, timed, (), used) for used in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0])
    assert learning_rate_factor(5, both, (), 0.1) == pytest.approx(0.5)  # whichever ends first
    assert learning_rate_factor(1, both, (), 0.5) == pytest.approx(0.5)
    drops = Settings(steps=10, schedule="step", schedule_every=3, schedule_factor=0.5)
    assert [learning_rate_factor(step, drops) for step in range(7)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
