"""LeNet-5 and AlexNet: layers, shapes, sizes as published."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vicinal.backbones import build_backbone, cut, small_images

pytestmark = pytest.mark.unit


def learned(network: nn.Module) -> list[nn.Module]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]


def test_lenet_has_five_layers_with_a_classifier() -> None:
    network = build_backbone("lenet").eval()
    assert len(learned(network)) + 1 == 5
    assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 84, 1, 1)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert parameters + 85 * 10 == 61_706  # 60,000 in the paper, whose second layer leaves out connections
    assert small_images("lenet", {}) == (32, 1)


def test_alexnet_has_eight_layers_with_its_full_ones() -> None:
    network = build_backbone("alexnet").eval()
    assert len(learned(network)) + 3 == 8
    images = torch.zeros(1, 3, 224, 224)
    assert network(images).shape == (1, 256, 6, 6)
    assert sum(parameter.numel() for parameter in network.parameters()) == 2_469_696
    assert network.state_dict()["features.10.weight"].shape == (256, 256, 3, 3)  # as in torchvision


@pytest.mark.parametrize(("name", "shape"), [("lenet", (2, 1, 32, 32)), ("alexnet", (1, 3, 224, 224))])
def test_a_network_in_two_parts_is_the_whole(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network, images = build_backbone(name).eval(), torch.randn(*shape)
    first, second = cut(network, 2)
    torch.testing.assert_close(second(first(images)), network(images))
    held = {name for names in network.stages.values() for name in names}
    assert all(any(key.startswith(f"{name}.") for name in held) for key, _ in network.named_parameters())
