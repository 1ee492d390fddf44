"""Networks of transformers as backbones: small random ones, saved and loaded without the hub, none of its code run."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.backbones import BACKBONES, HUB_NETWORKS, build_backbone
from vicinal.backbones.hub import HubImages
from vicinal.embedder import Embedder
from vicinal.embedder.engines import difference, make_engine
from vicinal.errors import InputError, MissingExtra, UnknownName, VicinalError

library = pytest.importorskip("transformers", reason="the extra transformers is not installed")

pytestmark = pytest.mark.unit

PATCHES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
LAYERS = {"hidden_sizes": [4, 8, 12, 16], "depths": [1, 1, 2, 1], "image_size": 32}
CONFIGS = {
    "clip_vision_model": PATCHES,
    "convnext": LAYERS,
    "convnextv2": LAYERS,
    "dinov2": PATCHES,
    "dinov2_with_registers": PATCHES,
    "dinov3_convnext": LAYERS,
    "dinov3_vit": PATCHES,
    "siglip_vision_model": PATCHES,
    "vit": PATCHES,
}
DINO = {
    "size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True, "resample": 3,
    "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Any attempt to reach the hub, or anything else, is an error."""

    def refuse(*_, **__):
        raise AssertionError("something wanted to open a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(params=sorted(CONFIGS))
def kind(request):
    return request.param


@pytest.fixture
def photographs():
    return [
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (40 + i, 60, 3), dtype=np.uint8)) for i in range(3)
    ]


def small(kind, **images):
    torch.manual_seed(0)
    options = {"config": {"model_type": kind, **CONFIGS[kind]}, "images": {"size": 32, **images}}
    return Embedder("transformers", dim=5, options=options).eval()


def pretrained(folder, config, whole=None, preprocessing=DINO):
    """Save a network of transformers with random weights, as it would come from the hub."""
    torch.manual_seed(1)
    (whole or library.AutoModel.from_config)(config).save_pretrained(folder)
    if preprocessing is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(preprocessing))
    return folder


def edit(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config | {"checksum": ""}))


def test_the_table_of_kinds_is_tried_here():
    from vicinal.backbones.hub import NETWORKS

    assert set(CONFIGS) == set(NETWORKS)


def test_it_embeds_trains_and_tells_its_stages(kind):
    embedder = small(kind).train()
    backbone = embedder.backbone
    embeddings = embedder(torch.randn(2, 3, 32, 32))
    assert embeddings.shape == (2, 5)
    embeddings[:, 0].sum().backward()
    reached = [name for name, parameter in backbone.named_parameters() if parameter.grad is not None]
    assert len(reached) > len(list(backbone.parameters())) / 2
    inside = [name for stage in backbone.stages.values() for name in stage]
    held = {id(parameter) for name in inside for parameter in backbone.get_submodule(name).parameters()}
    assert held == {id(parameter) for parameter in backbone.parameters()}
    assert list(backbone.stages)[-1].startswith("block")
    embedder.freeze(train_stages=1)
    free = {name for name, parameter in backbone.named_parameters() if parameter.requires_grad}
    last = backbone.stages[list(backbone.stages)[-1]]
    assert free
    assert all(name.startswith(last) for name in free)


@pytest.mark.filterwarnings("ignore:The head of this embedder is random")
def test_a_saved_folder_needs_nothing_else(kind, tmp_path, photographs):
    embedder = small(kind)
    embedder.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors", ".md"}
    again = Embedder.load(tmp_path)
    assert np.array_equal(again.encode(photographs), embedder.encode(photographs))
    assert again.identity() == embedder.identity()
    assert again.transform == embedder.transform


@pytest.mark.parametrize("kind", ["convnext", "dinov2", "dinov3_vit", "siglip_vision_model"])
@pytest.mark.parametrize("engine", ["folded", "onnxruntime"])
def test_engines_agree_with_the_plain_network(kind, engine):
    embedder = small(kind)
    images = torch.randn(3, 3, 32, 32)
    expected = embedder(images).detach().numpy()
    found = make_engine(torch.nn.Sequential(embedder.backbone, embedder.head), images, engine).run(images[:2])
    assert difference(found.numpy(), expected[:2]).max() < 1e-8


def test_weights_and_images_come_from_a_folder(tmp_path, photographs):
    config = library.Dinov2Config(**PATCHES)
    folder = pretrained(tmp_path / "dino", config)
    embedder = Embedder("transformers", dim=None, normalisation="none", options={"model": str(folder)}).eval()
    assert str(embedder.transform) == ("CentreCrop(size=32, short_side=36, pixels='imagenet', resampling='bicubic')")
    network = library.AutoModel.from_pretrained(folder).eval()
    inputs = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(embedder(inputs), network(inputs).pooler_output, rtol=1e-4, atol=1e-5)
    assert embedder.options["source"] == "dino"
    assert "model" not in embedder.options
    embedder.save(tmp_path / "saved")
    (folder / "model.safetensors").unlink()
    expected = embedder.encode(photographs)
    assert np.array_equal(Embedder.load(tmp_path / "saved").encode(photographs), expected)
    assert str(tmp_path) not in (tmp_path / "saved" / "config.json").read_text()
    assert "transformers source=dino" in (tmp_path / "saved" / "README.md").read_text()


@pytest.mark.parametrize("whole", ["siglip", "clip"])
def test_of_a_model_of_images_and_words_the_part_that_sees_is_taken(tmp_path, whole):
    words = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = library.AutoConfig.for_model(whole, vision_config=PATCHES, text_config={**words, "vocab_size": 20})
    folder = pretrained(tmp_path / whole, config, preprocessing=None)
    embedder = Embedder("transformers", dim=None, normalisation="none", options={"model": str(folder)}).eval()
    network = library.AutoModel.from_pretrained(folder).eval()
    black = torch.zeros(1, 3, 32, 32)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.no_grad():
        expected = network.vision_model((black - mean) / std).pooler_output
        torch.testing.assert_close(embedder((black - mean) / std), expected, rtol=1e-4, atol=1e-5)


def test_a_classifier_lends_its_body(tmp_path):
    config = library.ViTConfig(**PATCHES, num_labels=7)
    folder = pretrained(tmp_path / "vit", config, library.ViTForImageClassification)
    network = library.ViTForImageClassification.from_pretrained(folder).eval()
    embedder = Embedder("transformers", dim=None, normalisation="none", options={"model": str(folder)}).eval()
    inputs = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = network.vit(inputs).last_hidden_state[:, 0]
        torch.testing.assert_close(embedder(inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["vit", "siglip_vision_model", "dinov2", "convnext"])
def test_another_size_of_images(kind):
    embedder = small(kind, size=48)
    assert embedder.transform.size == 48
    assert embedder(torch.randn(1, 3, 48, 48)).shape == (1, 5)


@pytest.mark.peer
@pytest.mark.parametrize(
    ("processor", "described"),
    [
        ("BitImageProcessorPil", DINO),
        ("SiglipImageProcessorPil", {"size": {"height": 32, "width": 32}, "resample": 3, "image_mean": [0.5] * 3,
                                     "image_std": [0.5] * 3}),
        ("ViTImageProcessorPil", {"size": {"height": 32, "width": 32}, "resample": 2, "image_mean": [0.5] * 3,
                                  "image_std": [0.5] * 3}),
        ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 32}, "crop_pct": 0.875, "resample": 3}),
    ],
)  # fmt: skip
def test_images_go_through_what_transformers_does(processor, described):
    from vicinal.backbones.layers import renormalise

    theirs = getattr(library, processor)(**described)
    smooth = np.linspace(0, 255, 64 * 80 * 3).reshape(3, 80, 64).transpose(1, 2, 0).astype(np.uint8)
    image = Image.fromarray(smooth)
    expected = torch.as_tensor(np.asarray(theirs(image)["pixel_values"][0]))
    described = json.loads(theirs.to_json_string())
    config = {"model_type": "dinov2", **PATCHES}
    images = HubImages.of(described, 32)
    embedder = Embedder("transformers", options={"config": config, "images": images.as_dict()})
    found = renormalise(embedder.transform(image)[None], images.mean, images.std)[0]
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 0.02  # one step of 255 is 0.017 here


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({}, (40, None)),
        ({"size": 224, "crop_size": 200, "do_center_crop": True}, (200, 224)),
        ({"size": 224}, (224, None)),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (224, 256)),
        ({"size": {"shortest_edge": 384}, "crop_pct": 1.0}, (384, None)),
        ({"size": {"shortest_edge": 224}}, (224, 224)),
        ({"size": {"height": 224, "width": 224}, "crop_size": {"height": 9, "width": 9}, "do_center_crop": False},
         (224, None)),
    ],
)  # fmt: skip
def test_sizes_however_they_are_said(described, expected):
    images = HubImages.of(described, 40)
    assert (images.size, images.short_side) == expected


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"size": {"height": 224, "width": 200}}, "square images"),
        ({"resample": 0}, "Unknown filter '0'"),
        ({"image_std": [1.0, 0.0, 1.0]}, "three deviations"),
        ({"size": 10**6}, "1 to 4096"),
    ],
)
def test_images_that_no_network_here_takes(described, message):
    with pytest.raises(VicinalError, match=message):
        HubImages.of(described, 32)


def test_code_kernels_and_pickles_of_others_are_left_alone(tmp_path):
    """A folder asks for its own class, attention from the hub, packed weights; none of it happens."""
    folder = pretrained(tmp_path / "evil", library.Dinov2Config(**PATCHES))
    (folder / "own.py").write_text("raise AssertionError('code of a repository was run')")

    def ask(config):
        config["auto_map"] = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
        config["_attn_implementation"] = config["attn_implementation"] = "somebody/kernels"

    edit(folder, ask)
    embedder = Embedder("transformers", options={"model": str(folder)})
    assert embedder.backbone.network.config._attn_implementation == "sdpa"
    embedder.save(tmp_path / "saved")
    edit(tmp_path / "saved", lambda config: ask(config["options"]["config"]))
    assert Embedder.load(tmp_path / "saved").backbone.network.config._attn_implementation == "sdpa"
    (folder / "model.safetensors").unlink()
    torch.save(embedder.backbone.network.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="could not get"):
        Embedder("transformers", options={"model": str(folder)})


def test_a_folder_of_others_fetches_nothing(tmp_path):
    embedder = small("dinov2")
    embedder.save(tmp_path)
    edit(tmp_path, lambda config: config["options"].update(model="facebook/dinov2-small"))
    assert np.array_equal(Embedder.load(tmp_path).head.linear.weight.detach(), embedder.head.linear.weight.detach())
    edit(tmp_path, lambda config: config.update(options={"model": "facebook/dinov2-small"}))
    with pytest.raises(VicinalError, match="needs either"):
        Embedder.load(tmp_path)


def test_a_huge_description_is_refused_before_it_is_built(tmp_path):
    small("vit").save(tmp_path)
    edit(tmp_path, lambda config: config["options"]["config"].update(hidden_size=2**24, intermediate_size=2**24))
    with pytest.raises(VicinalError, match="do not fit"):
        Embedder.load(tmp_path)
    edit(tmp_path, lambda config: config["options"]["config"].update(num_hidden_layers=10**9))
    with pytest.raises(VicinalError, match="at most 1000"):
        Embedder.load(tmp_path)


def test_weights_that_lack_something_are_refused(tmp_path):
    folder = pretrained(tmp_path / "dino", library.Dinov2Config(**PATCHES))
    edit(folder, lambda config: config.update(num_hidden_layers=3))
    with pytest.raises(InputError, match=r"its weights lack encoder\.layer\.2"):
        build_backbone("transformers", model=str(folder))


def test_mistakes_are_told(tmp_path, monkeypatch):
    with pytest.raises(UnknownName, match="kind of network"):
        build_backbone("transformers", config={"model_type": "bert"})
    with pytest.raises(InputError, match="dinov2-small"):
        build_backbone("transformers")
    with pytest.raises(InputError, match="could not get"):
        build_backbone("transformers", model=str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="images takes size"):
        build_backbone("transformers", config={"model_type": "vit", **PATCHES}, images={"side": 3})
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vicinal\[transformers\]'"):
        build_backbone("transformers", model="dinov2-small")


def test_the_page_has_the_table_of_the_code():
    page = (Path(__file__).parents[2] / "docs" / "embedders.md").read_text()
    for name, hub in HUB_NETWORKS.items():
        row = [f"`{name}`", f"`{hub.repository}`", hub.licence, hub.size, hub.features, f"{hub.millions} M"]
        assert f"| {' | '.join(map(str, row))} |" in page
    assert not set(HUB_NETWORKS) & set(BACKBONES)
