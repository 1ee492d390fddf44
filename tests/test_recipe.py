"""Recipes: TOML and back, and every mistake at once."""

from __future__ import annotations

import json
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vicinal.backbones import BACKBONES
from vicinal.errors import DataError, InputError, UnknownName
from vicinal.mining import MINERS
from vicinal.objectives import OBJECTIVES, options_of
from vicinal.recipes import recipe_names
from vicinal.runs.recipe import SCORES, Recipe, laid_over, read_tables
from vicinal.sampling import SAMPLERS
from vicinal.training.settings import CCP, Settings

pytestmark = pytest.mark.unit

WORDS = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda text: text != "none")
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.lists(st.integers())
OPTIONS = st.dictionaries(WORDS, VALUES | st.dictionaries(WORDS, VALUES, max_size=2), max_size=3)
POSITIVE = st.floats(min_value=1e-12, max_value=1e12)
TRAINING = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.integers(1, 10**9),
        "learning_rate": POSITIVE,
        "clip_norm": st.none() | POSITIVE,
        "clip_value": st.none() | POSITIVE,
        "patience": st.none() | st.integers(1, 100),
        "optimiser": st.sampled_from(get_args(Settings.model_fields["optimiser"].annotation)),
        "score": st.sampled_from(SCORES),
    },
)
RECIPES = st.fixed_dictionaries(
    {"training": TRAINING},
    optional={
        "loss": st.sampled_from(sorted(OBJECTIVES)),
        "loss_options": OPTIONS,
        "mining": st.none() | st.sampled_from(sorted(MINERS)),
        "backbone": st.sampled_from(sorted(BACKBONES)),
        "backbone_options": OPTIONS,
        "weights": st.none() | WORDS,
        "dim": st.none() | st.integers(1, 4096),
        "sampler": st.sampled_from(sorted(SAMPLERS)),
        "train_stages": st.none() | st.integers(0, 5),
        "freeze": st.booleans(),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=RECIPES)
def test_a_recipe_comes_back_from_toml(values: dict[str, Any], tmp_path: Path) -> None:
    recipe = Recipe(**values)
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.toml(), encoding="utf-8")
    assert Recipe.read(path) == recipe
    assert Recipe.read(path).toml() == recipe.toml()


def test_none_where_it_is_not_the_default_is_written() -> None:
    written = tomllib.loads(Recipe(dim=None, training=Settings(clip_value=None)).toml())
    assert written["dim"] == written["training"]["clip_value"] == "none"
    assert "weights" not in written


def test_settings_may_stand_in_the_table_or_by_themselves() -> None:
    recipe = Recipe.of({"training": {"steps": 5, "seed": 1}, "steps": 7, "loss": "triplet"})
    assert (recipe.training.steps, recipe.training.seed, recipe.loss) == (7, 1, "triplet")


def test_a_recipe_on_top_of_another_keeps_the_rest() -> None:
    base = Recipe(loss="triplet", dim=8, training=Settings(steps=5, seed=3))
    changed = base.changed({"steps": 9})
    assert (changed.loss, changed.dim, changed.training.seed, changed.training.steps) == ("triplet", 8, 3, 9)
    assert base.training.steps == 5
    assert base.changed() == base.changed({}) == base


def test_five_mistakes_are_five_lines() -> None:
    with pytest.raises(InputError) as caught:
        Recipe.of(
            {
                "loss": "tripplet",
                "dim": 0,
                "stesp": 100,
                "training": {"learning_rate": "fast", "warmup": 3},
            }
        )
    first, *lines = str(caught.value).splitlines()
    assert first == "The recipe has errors:"
    assert len(lines) == 5
    for expected in (
        "Unknown setting 'warmup'; did you mean 'warm_up'?",
        "Unknown setting 'stesp'; did you mean 'steps'?",
        "loss: Unknown loss 'tripplet'; did you mean 'triplet'? Choose from: arcface,",
        "dim: Input should be greater than or equal to 1; got 0",
        "training.learning_rate: Input should be a valid number",
    ):
        assert any(line.startswith(f"  - {expected}") for line in lines), expected


@pytest.mark.parametrize("betas", [[], [0.9], [0.9, 0.9, 0.9], 0.9])
def test_betas_are_two(betas: object) -> None:
    with pytest.raises(InputError, match=r"training.betas: two numbers are needed, such as \[0.9, 0.999\]; got "):
        Recipe().changed(betas=betas)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("loss", "supercon", "did you mean 'supcon'"),
        ("mining", "semihard", "Unknown miner 'semihard'; did you mean 'semi_hard'"),
        ("backbone", "resnet51", "did you mean 'resnet50'"),
        ("sampler", "class", "Choose from: classes, hard-classes, random"),
        ("images", "smal", "did you mean 'small'"),
        ("pooling", "mean", "'average', 'max' or 'both'; got 'mean'"),
        ("optimiser", "lion", "'adam', 'adamw' or 'sgd'; got 'lion'"),
        ("accelerator", "tpu", "'auto', 'cpu', 'cuda' or 'mps'"),
        ("learning_rate", float("inf"), "finite number"),
        ("training", 5, "training must be a table of settings; got 5"),
        ("loss_options", 3, "valid dictionary; got 3"),
    ],
)
def test_what_is_wrong_is_said(name: str, value: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        Recipe.of({name: value})
    assert said in str(caught.value)


def test_every_mistake_in_the_training_table_is_told() -> None:
    with pytest.raises(InputError) as caught:
        Recipe.of({"training": {"warmup": 3, "stesp": 1, "patience": 0}})
    text = str(caught.value)
    assert all(word in text for word in ("'warmup'", "'stesp'", "training.patience")), text


def test_a_later_layer_counts_however_it_names_a_setting() -> None:
    forms: list[dict[str, Any]] = [{"steps": 7}, {"training.steps": 7}, {"training": {"steps": 7}}]
    for first in ({"steps": 5}, {"training.steps": 5}, {"training": {"steps": 5}}):
        assert {Recipe.of(laid_over(first, form)).training.steps for form in forms} == {7}
    same = {"training": {"steps": 1}, "steps": 2, "training.steps": 3}  # in one layer the more special name counts
    assert Recipe.of(same).training.steps == 3
    assert Recipe.of({"loss_options": {"threshold": 0.1}, "loss_options.threshold": 0.2}).value("threshold") == 0.2


def test_options_do_not_outlive_their_loss_however_they_are_named() -> None:
    for options in ({"loss_options": {"margin": 0.4}}, {"loss_options.margin": 0.4}):
        assert laid_over({"loss": "triplet", **options}, {"loss": "circle"}) == {"loss": "circle"}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_files_are_laid_over_each_other(tmp_path: Path) -> None:
    base = write(
        tmp_path / "base.toml",
        """
        data = "digits"
        dim = 16
        steps = 50
        loss = "triplet"
        mining = "semi_hard"
        [loss_options]
        margin = 0.3
        [mining_options]
        margin = 0.2
        [training]
        seed = 3
        """,
    )
    middle = write(tmp_path / "middle.toml", '[loss_options]\nwhich = "hardest"\n[training]\nsteps = 70\n')
    top = write(tmp_path / "top.toml", 'loss = "circle"\ndim = "none"\n')
    two = Recipe.read(base, middle)
    assert (two.loss, two.loss_options) == ("triplet", {"margin": 0.3, "which": "hardest"})
    assert (two.training.steps, two.training.seed) == (70, 3)  # a setting by itself and one in the table are the same
    assert Recipe.read(middle, base).training.steps == 50
    three = Recipe.read(base, middle, top, seed=9)
    assert (three.loss, three.loss_options) == ("circle", {})  # what another loss was told does not count
    assert (three.mining_options, three.dim, three.data) == ({"margin": 0.2}, None, "digits")
    assert (three.training.steps, three.training.seed) == (70, 9)
    assert Recipe.of(read_tables(base, middle)) == two


@pytest.mark.parametrize(
    ("base", "top", "expected"),
    [
        ({"ccp": "paper"}, {"ccp": {"pool": 7}}, {"ccp": {"preset": "paper", "pool": 7}}),
        ({"ccp": {"pool": 7}}, {"ccp": "none"}, {"ccp": None}),
        ({"ccp": "none"}, {"ccp": {"pool": 7}}, {"ccp": {"pool": 7}}),
        # The loss that a recipe has by default is no other loss.
        (
            {"loss_options": {"threshold": 0.7}},
            {"loss": "multi_similarity"},
            {"loss": "multi_similarity", "loss_options": {"threshold": 0.7}},
        ),
        ({"mining_options": {"margin": 1}}, {"mining": "hard"}, {"mining": "hard"}),
        ({"backbone": "resnet50", "backbone_options": {"a": 1}}, {"backbone": "convnet"}, {"backbone": "convnet"}),
    ],
)
def test_tables_over_tables(base: dict[str, Any], top: dict[str, Any], expected: dict[str, Any]) -> None:
    before = deepcopy((base, top))
    assert laid_over(base, top) == expected
    assert (base, top) == before


class TestChanged:
    def test_names_with_dots_and_options_by_themselves(self) -> None:
        recipe = Recipe(loss="triplet", mining="semi_hard")
        assert recipe.changed(margin=0.3).loss_options == {"margin": 0.3}
        dotted = recipe.changed({"loss_options.margin": 0.3, "mining_options.margin": 0.2, "training.steps": 7})
        assert (dotted.loss_options, dotted.mining_options) == ({"margin": 0.3}, {"margin": 0.2})
        assert dotted.training.steps == 7
        assert dotted.changed({"loss_options.which": "hardest"}).loss_options == {"margin": 0.3, "which": "hardest"}
        assert dotted.changed(loss_options={"which": "hardest"}).loss_options == {"which": "hardest"}

    def test_an_option_belongs_to_the_loss_that_comes_with_it(self) -> None:
        recipe = Recipe(loss="triplet", loss_options={"margin": 1.0})
        for values in ({"threshold": 0.7, "loss": "multi_similarity"}, {"loss": "multi_similarity", "threshold": 0.7}):
            assert recipe.changed(values).loss_options == {"threshold": 0.7}
        with pytest.raises(InputError, match="Unknown setting 'threshold'"):
            Recipe(loss="triplet").changed(threshold=0.7)

    def test_another_owner_starts_its_options_anew(self) -> None:
        recipe = Recipe(
            loss="triplet",
            loss_options={"margin": 0.3},
            mining="semi_hard",
            mining_options={"margin": 0.2},
            backbone_options={"size": 16},
        )
        other = recipe.changed(loss="circle")
        assert (other.loss_options, other.mining_options) == ({}, {"margin": 0.2})
        assert recipe.changed(loss="triplet") == recipe
        assert recipe.changed(mining="none").mining_options == {}
        assert recipe.changed(backbone="resnet18").backbone_options == {}

    def test_tables_of_ccp(self) -> None:
        assert Recipe().changed({"ccp.patience": 5}).ccp == CCP(patience=5)
        assert Recipe(ccp=CCP(pool=3)).changed({"ccp.patience": 5}).ccp == CCP(pool=3, patience=5)
        both = Recipe().changed({"ccp.patience": 5, "ccp": "paper"}).ccp
        assert both == CCP.model_validate({"preset": "paper", "patience": 5})
        with pytest.raises(InputError, match=r"the paper's lambda is called ccp\.proximal_weight here"):
            Recipe().changed({"ccp.lambda": 0})
        with pytest.raises(InputError, match="Unknown setting of ccp 'patiense'; did you mean 'patience'"):
            Recipe().changed({"ccp.patiense": 3})

    @pytest.mark.parametrize("name", ["loss_options.boundary.start", "boundary.start"])
    def test_a_value_within_an_option(self, name: str) -> None:
        margin = Recipe(loss="margin", loss_options={"boundary": {"start": 1.0, "multiplier": 0.5}})
        assert margin.changed({name: 1.2}).loss_options == {"boundary": {"start": 1.2, "multiplier": 0.5}}
        assert Recipe(loss="margin").changed({name: 1.2}).loss_options == {"boundary": {"start": 1.2}}


def test_values_of_settings_and_options() -> None:
    recipe = Recipe(loss="triplet", loss_options={"margin": 0.3}, mining="semi_hard", ccp="paper")
    assert [recipe.value(name) for name in ("dim", "steps", "training.steps", "margin")] == [64, 1000, 1000, 0.3]
    assert recipe.value("loss_options.which") == recipe.value("which") == "all"
    assert recipe.value("mining_options.margin") == options_of(MINERS["semi_hard"])["margin"]
    assert recipe.value("ccp.monitor") == "fresh"
    for name in ("margn", "loss_options.margn", "threshold", "ccp.pools"):
        with pytest.raises(UnknownName, match="Unknown setting"):
            recipe.value(name)


@pytest.mark.parametrize("name", [name for name in recipe_names() if not name.endswith("/space")])
def test_shipped_recipes_come_back_from_toml(name: str, tmp_path: Path) -> None:
    recipe = Recipe.read(name)
    assert recipe != Recipe()
    assert Recipe.read(write(tmp_path / "again.toml", recipe.toml())) == recipe
    assert Recipe.of(recipe.model_dump(mode="json")) == recipe


def test_none_comes_back_from_every_place_that_may_hold_it(tmp_path: Path) -> None:
    nothing = {
        name: None
        for name, field in {**Recipe.model_fields, **Settings.model_fields}.items()
        if type(None) in get_args(field.annotation) and name != "seconds"  # which ends what has no number of steps
    }
    assert {"normalisation", "dim", "clip_value", "patience", "ccp", "steps"} < set(nothing)
    options = {"loss_options": {"margin": None}, "backbone_options": {"widths": [1, None], "deep": {"er": None}}}
    recipe = Recipe.of({**nothing, **options, "seconds": 5.0})
    assert Recipe.read(write(tmp_path / "recipe.toml", recipe.toml())) == recipe
    assert Recipe.of({**dict.fromkeys(nothing, "none"), "seconds": 5.0}) == Recipe.of({**nothing, "seconds": 5.0})


# Another value for every field, so that a new one cannot be forgotten.
OTHER: dict[str, Any] = {
    "protocol": "k-fold",
    "fold": 1,
    "folds": 3,
    "validation": 0.3,
    "select_on_test": True,
    "skip_bad": True,
    "lora_rank": 8,
    "loss": "triplet",
    "loss_options": {"threshold": 0.7},
    "mining": "hard",
    "mining_options": {"margin": 0.7},
    "memory": 5,
    "prefixes": (4, 8),
    "cover": 2,
    "cover_pool": 5,
    "cover_every": 5,
    "hierarchy": 3,
    "hierarchy_weight": 0.5,
    "memory_start": 5,
    "proxies_per_class": 2,
    "proxy_multiplier": 3.0,
    "ccp": "code",
    "backbone": "resnet18",
    "backbone_options": {"size": 16},
    "weights": "imagenet",
    "start": "runs/a/model",
    "dim": None,
    "head_start": "pca",
    "pooling": "max",
    "head_bias": False,
    "normalisation": "ball",
    "images": "small",
    "sampler": "random",
    "classes_per_batch": 3,
    "samples_per_class": 3,
    "freeze": True,
    "copies": 2,
    "train_stages": 1,
    "freeze_batch_norm": True,
    "steps": 5,
    "seconds": 5.0,
    "optimiser": "sgd",
    "learning_rate": 0.5,
    "head_multiplier": 2.0,
    "betas": (0.9, 0.99),
    "weight_decay": 0.5,
    "decay_before_clipping": True,
    "schedule": "cosine",
    "schedule_every": 5,
    "schedule_patience": 2,
    "schedule_factor": 0.25,
    "warm_up": 5,
    "clip_norm": 5.0,
    "clip_value": None,
    "accumulate": 2,
    "evaluate_every": 5,
    "score": "P@1",
    "patience": 5,
    "min_improvement": 0.5,
    "checkpoint_every": 5,
    "log_every": 5,
    "precision": "bf16-mixed",
    "accelerator": "cpu",
    "seed": 5,
}
NAMES = sorted(OTHER)


def test_the_key_depends_on_every_field_but_the_place_of_the_data() -> None:
    assert set(OTHER) == (set(Recipe.model_fields) | set(Settings.model_fields)) - {"data", "training"}
    keys = {name: Recipe().changed({name: value}).key("hash", "name") for name, value in OTHER.items()}
    assert len({*keys.values(), Recipe().key("hash", "name")}) == len(OTHER) + 1
    assert Recipe(data="/here/photos").key("hash") == Recipe(data="/there/pictures").key("hash") == Recipe().key("hash")
    here, there, other = (Recipe(weights=path).key() for path in ("/here/net.pth", "there/net.pth", "there/web.pth"))
    assert here == there != other
    assert len({Recipe().key(*about) for about in ((), ("hash",), ("", "name"), ("hash", "name"))}) == 4


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
@settings(deadline=None)
def test_two_recipes_have_one_key_only_if_they_are_equal(one: set[str], other: set[str]) -> None:
    first, second = (Recipe().changed({name: OTHER[name] for name in names}) for names in (one, other))
    assert (first.key("hash") == second.key("hash")) == (first == second)
    assert Recipe.of(json.loads(first.model_dump_json())).key("hash") == first.key("hash")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Unknown recipe .*gone\.toml'.*there is no such file"):
        Recipe.read(tmp_path / "gone.toml")
    (tmp_path / "bad.toml").write_text("loss = triplet")
    with pytest.raises(DataError, match=r"bad\.toml is not TOML that can be read: .*line 1"):
        Recipe.read(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"loss = '\xff'")
    with pytest.raises(DataError, match="is not TOML"):
        Recipe.read(tmp_path / "bad.toml")
