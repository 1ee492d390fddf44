"""LeNet-5 and AlexNet: layers, shapes, sizes as published."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vicinal as vc
from vicinal.backbones import cut

pytestmark = pytest.mark.unit

FILE = Path(__file__).parents[2] / "examples" / "classic_networks.py"


@pytest.fixture(scope="module")
def networks() -> dict[str, Any]:
    return runpy.run_path(str(FILE))


def learned(network: nn.Module) -> list[nn.Module]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]


def test_lenet_has_five_layers_with_a_classifier(networks: dict[str, Any]) -> None:
    network = networks["LeNet"]().eval()
    assert len(learned(network)) + 1 == 5
    assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 84, 1, 1)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert parameters + 85 * 10 == 61_706  # 60,000 in the paper, whose second layer leaves out connections


def test_alexnet_has_eight_layers_with_its_full_ones(networks: dict[str, Any]) -> None:
    network = networks["AlexNet"]().eval()
    assert len(learned(network)) + 3 == 8
    images = torch.zeros(1, 3, 224, 224)
    assert network(images).shape == (1, 256, 6, 6)
    assert sum(parameter.numel() for parameter in network.parameters()) == 2_469_696
    assert network.state_dict()["features.10.weight"].shape == (256, 256, 3, 3)  # as in torchvision


@pytest.mark.parametrize(("name", "shape"), [("LeNet", (2, 1, 32, 32)), ("AlexNet", (1, 3, 224, 224))])
def test_a_network_in_two_parts_is_the_whole(networks: dict[str, Any], name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network, images = networks[name]().eval(), torch.randn(*shape)
    first, second = cut(network, 2)
    torch.testing.assert_close(second(first(images)), network(images))
    held = {name for names in network.stages.values() for name in names}
    assert all(any(key.startswith(f"{name}.") for name in held) for key, _ in network.named_parameters())


def test_a_run_takes_it_from_the_file_and_its_model_is_loaded_again(tmp_path: Path) -> None:
    split = vc.split(vc.data.digits(), "fixed-validation", seed=0)
    model = vc.fit(split, backbone=f"{FILE}:LeNet", dim=8, steps=2, folder=tmp_path, progress=False)
    images = split.test.items[:3]
    assert vc.Embedder.load(tmp_path, allow_code=[str(FILE)]).encode(images) == pytest.approx(model.encode(images))
