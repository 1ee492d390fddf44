"""The timm extra: absent, and with a stand-in for the library."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from vicinal.backbones import build_backbone
from vicinal.errors import InputError, MissingExtra

pytestmark = pytest.mark.unit


class Network(nn.Module):
    """Pooled colours: enough to see what the network is fed."""

    num_features = 3

    def __init__(self):
        super().__init__()
        self.stem = nn.Identity()
        self.body = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.body.weight)

    def forward(self, images):
        return self.body(images.mean(dim=(2, 3)))


@pytest.fixture
def stand_in(monkeypatch):
    def create_model(model, pretrained, num_classes):
        if model != "small":
            raise RuntimeError(f"Unknown model ({model})")
        assert (pretrained, num_classes) == (False, 0)
        return Network()

    settings = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "input_size": (3, 224, 224), "crop_pct": 0.875}
    library = SimpleNamespace(
        create_model=create_model, data=SimpleNamespace(resolve_model_data_config=lambda _: settings)
    )
    monkeypatch.setitem(sys.modules, "timm", library)


def test_its_absence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtra, match=r"timm:vit_small.*pip install 'vicinal\[timm\]'"):
        build_backbone("timm", model="vit_small")


@pytest.mark.usefixtures("stand_in")
def test_facts_come_from_the_library_and_pixels_are_rescaled():
    network = build_backbone("timm", model="small")
    assert network.channels == 3
    assert (network.input.size, network.input.short_side) == (224, 256)
    assert network.stages == {"body": ("network.body",)}
    white = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(network(white.view(1, 3, 1, 1)), torch.ones(1, 3))


@pytest.mark.usefixtures("stand_in")
def test_an_unknown_model_is_named():
    with pytest.raises(InputError, match=r"'large': Unknown model \(large\)"):
        build_backbone("timm", model="large")
