"""LoRA: the same function at first, few weights trained, merged in the end; resumed bit for bit; CCP on adapters."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from vicinal.criterion import Criterion
from vicinal.data import Split, digits, split
from vicinal.embedder import Embedder
from vicinal.embedder.lora import add_lora, merge_lora, merged
from vicinal.errors import InputError, Interrupted, MissingExtra
from vicinal.runs._train import fit
from vicinal.runs.recipe import Recipe
from vicinal.training.ccp import ChanceConstrainedProxies
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.settings import CCP, Settings
from vicinal.training.state import Hook, TrainingState

pytest.importorskip("peft", reason="the extra lora is not installed")

VIT = {
    "model_type": "vit", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "backbone": "transformers",
    "backbone_options": {"config": VIT},
    "dim": 4,
    "lora_rank": 2,
    "classes_per_batch": 2,
    "steps": 6,
    "evaluate_every": 2,
    "learning_rate": 1e-2,
    "progress": False,
}


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Embedder("transformers", dim=4, options={"config": VIT}).eval()


@pytest.fixture(scope="module")
def halves() -> Split:
    return split(digits(), "fixed-validation", validation=0.6)


def drawn(network: nn.Module) -> None:
    """Give the adapters some weight, as training would."""
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)


@pytest.mark.unit
def test_nothing_changes_before_training_and_only_adapters_and_head_are_trained(network):
    images = torch.randn(2, 3, 16, 16)
    before = network(images)
    whole = sum(parameter.numel() for parameter in network.backbone.parameters())
    add_lora(network.backbone, 2)
    torch.testing.assert_close(network(images), before)
    free = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert all("lora_" in name or name.startswith("head.") for name in free)
    # two blocks, each with four maps 8 -> 8 and the maps 8 -> 16 and 16 -> 8, rank 2
    adapters = 2 * 2 * (4 * (8 + 8) + (8 + 16) + (16 + 8))
    assert sum(parameter.numel() for name, parameter in free.items() if "lora_" in name) == adapters < whole


@pytest.mark.unit
def test_merging_is_adding_twice_the_product(network):
    add_lora(network.backbone, 2)
    drawn(network)
    images = torch.randn(2, 3, 16, 16)
    before = network(images)
    name, layer = next((name, module) for name, module in network.named_modules() if hasattr(module, "lora_A"))
    expected = layer.base_layer.weight + 2 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    merge_lora(network)
    torch.testing.assert_close(network.get_submodule(name).weight, expected)
    torch.testing.assert_close(network(images), before)
    assert not any("lora" in key or "base_layer" in key for key in network.state_dict())


@pytest.mark.unit
def test_a_folder_saved_in_the_midst_is_a_plain_one(network, tmp_path):
    assert merged(network) is network
    add_lora(network.backbone, 2)
    drawn(network)
    network.save(tmp_path)
    again = Embedder.load(tmp_path)
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(again(images), network(images))
    assert again.identity() == network.identity()
    assert any("lora_A" in name for name, _ in network.named_parameters())  # and training goes on


@pytest.mark.unit
def test_adapters_only_in_the_stages_that_are_trained(network):
    network.freeze(train_stages=1)
    add_lora(network.backbone, 2)
    assert {name.split(".")[2] for name, _ in network.backbone.named_parameters() if "lora_" in name} == {"1"}


@pytest.mark.unit
def test_mistakes_are_told(network, halves, monkeypatch):
    with pytest.raises(InputError, match="no trainable linear layers"):
        add_lora(Embedder("convnet").backbone, 2)
    with pytest.raises(InputError, match="use only one of them"):
        fit(halves, freeze=True, **SMALL)
    with pytest.raises(InputError, match="lora_rank"):
        Recipe.of({"lora_rank": 0})
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vicinal\[lora\]'"):
        add_lora(network.backbone, 2)


@pytest.mark.unit
def test_earlier_journals_keep_their_keys():
    assert '"lora_rank"' not in json.dumps(Recipe().toml())
    assert Recipe().key() != Recipe(lora_rank=8).key()


class _StopAt(Hook):
    def __init__(self, step: int) -> None:
        self.step = step

    def before_step(self, state: TrainingState) -> None:
        if state.step == self.step:
            raise Interrupted("enough")


@pytest.mark.recipe
def test_a_run_resumes_bit_for_bit_and_leaves_a_plain_folder(halves, tmp_path):
    whole = fit(halves, folder=tmp_path / "whole", **SMALL)
    start = Embedder("transformers", dim=4, options={"config": VIT})
    with pytest.raises(Interrupted):
        fit(halves, folder=tmp_path / "parts", hooks=[_StopAt(5)], **SMALL)
    resumed = fit(halves, folder=tmp_path / "parts", resume=True, hooks=[_StopAt(99)], **SMALL)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert set(whole.state_dict()) == set(start.state_dict())
    loaded = Embedder.load(tmp_path / "whole")
    assert np.array_equal(loaded.encode(halves.train), whole.encode(halves.train))
    assert not [path.name for path in (tmp_path / "whole" / "model").iterdir() if "adapter" in path.name]


@pytest.mark.recipe
def test_ccp_anchors_the_adapters_and_the_head_alone(halves: Split, tmp_path: Path) -> None:
    options = {**SMALL, "loss": "contrastive_c2", "normalisation": "ball", "steps": 10, "learning_rate": 0.05}
    ccp = {"preset": "code", "patience": 1, "proxies_per_class": 2, "pool": 3}
    embedder = fit(halves, folder=tmp_path, ccp=ccp, **options)
    anchor = load_checkpoint(tmp_path / "last.ckpt")["hooks"][0]["_anchor"]
    assert {"lora_" in name or name.startswith("head.") for name in anchor} == {True}
    assert any("lora_" in name for name in anchor)
    assert not any("lora" in name for name in embedder.state_dict())


@pytest.mark.unit
def test_the_proximal_term_of_ccp_pulls_the_adapters(network):
    """A step's gradient is the loss's (here 1) plus lambda times the way from the last instance's adapters."""
    add_lora(network.backbone, 2)
    hook = ChanceConstrainedProxies(CCP(proximal_weight=0.5, proximal_decay=1.0), lambda *_: torch.empty(0))
    free = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    hook._anchor = {name: parameter.detach() - 3.0 for name, parameter in free.items()}
    for parameter in free.values():
        parameter.grad = torch.ones_like(parameter)
    hook.before_step(TrainingState(Fabric(accelerator="cpu"), network, Criterion("triplet"), Settings(), scored=True))
    for name, parameter in free.items():
        torch.testing.assert_close(parameter.grad, torch.full_like(parameter, 1 + 0.5 * 3.0), msg=name)
    assert all(parameter.grad is None for parameter in network.parameters() if not parameter.requires_grad)
