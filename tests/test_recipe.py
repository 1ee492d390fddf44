"""Recipes: TOML and back, and every mistake at once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vicinal.backbones import BACKBONES
from vicinal.errors import InputError
from vicinal.mining import MINERS
from vicinal.objectives import OBJECTIVES
from vicinal.recipe import SCORES, Recipe
from vicinal.sampling import SAMPLERS
from vicinal.training.settings import Settings

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
    assert first == "The recipe has mistakes:"
    assert len(lines) == 5
    for expected in (
        "Unknown setting 'warmup'; did you mean 'warm_up'?",
        "Unknown setting 'stesp'; did you mean 'steps'?",
        "loss: Unknown loss 'tripplet'; did you mean 'triplet'? Choose from: arcface,",
        "dim: Input should be greater than or equal to 1; got 0",
        "training.learning_rate: Input should be a valid number",
    ):
        assert any(line.startswith(f"  - {expected}") for line in lines), expected


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


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Cannot read the recipe .*gone\.toml: there is no such file"):
        Recipe.read(tmp_path / "gone.toml")
    (tmp_path / "bad.toml").write_text("loss = triplet")
    with pytest.raises(InputError, match=r"bad\.toml is not TOML: .*line 1"):
        Recipe.read(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"loss = '\xff'")
    with pytest.raises(InputError, match="is not TOML"):
        Recipe.read(tmp_path / "bad.toml")
