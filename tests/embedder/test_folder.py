"""Saving and loading: exact, and clear about what is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from vicinal.backbones import build_backbone
from vicinal.data import Fit
from vicinal.embedder import Card, Embedder
from vicinal.errors import DataError, InputError, UnknownName, VicinalError

pytestmark = pytest.mark.unit

CARD = Card(
    title="Birds",
    description="Tells birds apart | by feather.",
    data={"dataset": "CUB | a subset", "classes": 100},
    recipe='loss = "triplet"\nmargin = 0.1\n',
    scores={"MAP@R": 0.1234567890123456, "P@1": None},
)


@pytest.fixture
def saved(embedder, tmp_path):
    embedder.card = CARD
    embedder.save(tmp_path / "model")
    return tmp_path / "model"


def edit(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"checksum": ""} | changes))


def test_the_round_trip_is_exact(embedder, saved, images):
    loaded = Embedder.load(saved)
    ours, theirs = embedder.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert loaded.transform == embedder.transform
    assert loaded.card == CARD
    assert not loaded.training
    assert np.array_equal(loaded.encode(images), embedder.encode(images))


@pytest.mark.parametrize("dim", [None, 3])
@pytest.mark.parametrize("normalisation", ["sphere", "ball", "none"])
def test_every_kind_of_head_comes_back(tmp_path, dim, normalisation):
    embedder = Embedder(
        "convnet", dim=dim, pooling="both", normalisation=normalisation, bias=False, transform=Fit(28, "ink")
    )
    embedder.save(tmp_path)
    loaded = Embedder.load(tmp_path)
    inputs = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    assert np.array_equal(loaded.encode(inputs), embedder.encode(inputs))
    assert loaded.head.pooling == "both"
    assert loaded.transform == Fit(28, "ink")


def test_vectors_come_back(tmp_path):
    embedder = Embedder("linear", dim=2, options={"features": 3})
    embedder.save(tmp_path)
    vectors = np.random.default_rng(0).normal(size=(4, 3))
    assert np.array_equal(Embedder.load(tmp_path).encode(vectors), embedder.encode(vectors))


def test_channels_last_parameters_are_saved_too(embedder, saved, images):
    embedder.to(memory_format=torch.channels_last).save(saved)
    loaded = Embedder.load(saved)
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in embedder.state_dict().items())


def test_saving_again_replaces_all_and_leaves_only_the_three_files(embedder, saved, images):
    torch.nn.init.ones_(embedder.head.linear.weight)
    embedder.save(saved)
    assert np.array_equal(Embedder.load(saved).encode(images), embedder.encode(images))
    assert sorted(path.name for path in saved.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_the_card_tells_data_recipe_and_scores(saved):
    text = (saved / "README.md").read_text()
    for line in (
        "# Birds",
        r"Tells birds apart \| by feather.",
        "| MAP@R | 0.1235 |",
        "| P@1 | undefined |",
        "| dataset | CUB \\| a subset |",
        '```toml\nloss = "triplet"\nmargin = 0.1\n```',
        "| embedding | 5 numbers (float32), normalisation: sphere |",
    ):
        assert line in text


def test_a_foreign_transform_or_backbone_cannot_be_saved(embedder, tmp_path):
    embedder.transform = lambda image: torch.zeros(3, 16, 16)
    with pytest.raises(InputError, match="only those of the types CentreCrop and Fit can"):
        embedder.save(tmp_path / "model")
    with pytest.raises(InputError, match="cannot be built again by its name alone"):
        Embedder(build_backbone("convnet")).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_missing_files_are_listed(saved, tmp_path):
    with pytest.raises(DataError, match=r"is not a saved embedder.*\n.*config.json\n.*model.safetensors"):
        Embedder.load(tmp_path / "none")
    (saved / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"missing: model\.safetensors"):
        Embedder.load(saved)


def test_damaged_weights_are_found_by_their_hash(saved):
    content = bytearray((saved / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (saved / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match="is damaged or belongs to another embedder: its SHA-256 is"):
        Embedder.load(saved)


def test_another_version_is_refused_by_number(saved):
    edit(saved, version=2)
    with pytest.raises(DataError, match="format version 2; this vicinal reads version 1"):
        Embedder.load(saved)


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_a_config_that_is_no_json_object_is_refused(saved, content):
    (saved / "config.json").write_text(content)
    with pytest.raises(DataError, match=r"config.json (is not JSON|has format version None)"):
        Embedder.load(saved)


def test_all_that_is_wrong_with_a_config_is_listed(saved):
    edit(saved, dim="many", pooling="mean", colour="red")
    with pytest.raises(DataError, match="does not describe an embedder") as caught:
        Embedder.load(saved)
    assert sorted(problem.split(":")[0] for problem in caught.value.problems) == ["colour", "dim", "pooling"]


def test_names_that_no_table_holds_are_refused(saved):
    edit(saved, backbone="convnit")
    with pytest.raises(UnknownName, match="did you mean 'convnet'"):
        Embedder.load(saved)
    edit(saved, backbone="convnet", transform={"name": "Crop", "size": 3})
    with pytest.raises(UnknownName, match="Unknown transform 'Crop'"):
        Embedder.load(saved)
    edit(saved, transform={"name": "Fit", "sides": 3})
    with pytest.raises(InputError, match="Cannot build a transform from"):
        Embedder.load(saved)


def test_weights_that_do_not_fit_the_config_are_refused(saved):
    edit(saved, dim=6)
    with pytest.raises(DataError, match=r"do not fit its config.json.*\n.*head.linear"):
        Embedder.load(saved)


def test_a_folder_that_asks_for_a_huge_network_costs_nothing(saved):
    edit(saved, dim=10**12)
    with pytest.raises(DataError, match=r"do not fit its config.json.*\n.*1000000000000"):
        Embedder.load(saved)
    edit(saved, dim=-3)
    with pytest.raises(VicinalError):
        Embedder.load(saved)


def test_a_setting_that_was_changed_or_damaged_is_seen(saved):
    path = saved / "config.json"
    text = path.read_text()
    assert '"in_channels": 3' in text
    path.write_text(text.replace('"in_channels": 3', '"in_channels": 1'))
    with pytest.raises(DataError, match="its checksum does not match"):
        Embedder.load(saved)
    values = json.loads(text)
    del values["checksum"]  # as earlier versions wrote it
    path.write_text(json.dumps(values))
    assert Embedder.load(saved).dim == 5
