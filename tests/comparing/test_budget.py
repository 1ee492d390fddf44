"""A budget is a budget: steps, images or a time, the same for all losses."""

import math

import numpy as np
import pytest

from vicinal.comparing import compare
from vicinal.comparing.contestants import drafts
from vicinal.comparing.plan import plan, with_equal_images, with_patience
from vicinal.comparing.progress import opening_words
from vicinal.data import arrays, digits
from vicinal.errors import InputError
from vicinal.runs.draft import Budget, images_per_step, read_budget
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.recipe


def vectors(classes=24, per_class=8):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), per_class)
    return arrays((rng.normal(size=(len(labels), 6)) + labels[:, None] % 5).astype(np.float32), labels)


def split_of(found):
    return found.splits.of(found.grid[0].recipe)


def planned(data, losses, budget=None, **changes):
    asked = Budget() if budget is None else read_budget(budget)
    settings = {"recipe": None, "dims": (), "backbones": (), "seeds": 1, "same_batches": False}
    settings |= {name: changes.pop(name) for name in settings if name in changes}
    return plan(data, losses, **{**settings, "budget": asked, "changes": changes})


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("500", Budget(steps=500)),
        ("2ksteps", Budget(steps=2000)),
        ("64000images", Budget(images=64_000)),
        ("0.5k images", Budget(images=500)),
        ("90s", Budget(seconds=90.0)),
        ("1.5h", Budget(seconds=5400.0)),
    ],
)
def test_a_budget_is_steps_images_or_a_time(text, budget):
    assert read_budget(text) == budget


@pytest.mark.parametrize("text", ["", "0", "1.5", "-3", "5 days", "1kh", "0.0001kimages"])
def test_what_is_no_budget_is_told_with_examples(text):
    with pytest.raises(InputError, match="64000images, 64kimages, 90s, 5m or 1h"):
        read_budget(text)


def test_a_thousand_of_what_is_asked_back():
    with pytest.raises(InputError, match="use 200kimages or 200ksteps"):
        read_budget("200k")


def test_one_budget_takes_the_place_of_another_that_a_recipe_has():
    timed = Recipe.of({"seconds": 5.0})
    for asked in ("300", "5000images"):
        training = planned(vectors(), ["triplet"], asked, recipe=timed).grid[0].recipe.training
        assert training.steps is not None
        assert training.seconds is None


def test_images_become_steps_by_each_loss_s_own_batches_equal_to_the_image(tmp_path):
    (tmp_path / "wide.toml").write_text('loss = "contrastive"\nclasses_per_batch = 6\nsamples_per_class = 4\n')
    entries = drafts(["triplet", tmp_path / "wide.toml"], {"batch": "4x4", "accumulate": 2, "steps": 7})
    assert [images_per_step(entry.recipe) for entry in entries] == [32, 48]
    for images in (None, 1000):
        made = with_equal_images(entries, images)
        seen = {entry.recipe.training.steps * images_per_step(entry.recipe) for entry in made}
        assert seen == {192 if images is None else 960}
    with pytest.raises(InputError, match="less than one batch of 48"):
        with_equal_images(entries, 40)


def test_runs_see_the_images_of_their_budget_and_no_other_number(tmp_path):
    settings = {"backbone": "linear", "dim": 4, "batch": "4x4", "rates": 1, "jobs": 1, "progress": False}
    settings |= {"protocol": "fixed-validation"}
    board = compare(vectors(), ["triplet", "proxy_anchor"], out=tmp_path, budget="330images", **settings)
    assert {record.name: (record.steps, record.images) for record in board.records} == {
        "triplet": (20, 320),
        "proxy_anchor": (20, 320),
    }
    assert len(board.records[0].curve) >= 10  # evaluations suit the number of images, too
    with pytest.raises(InputError, match="give only one of them"):
        compare(vectors(), ["triplet"], out=tmp_path, budget="5", steps=3)


def test_a_time_is_the_whole_budget_whatever_steps_a_recipe_has():
    for changes in ({"budget": "60s"}, {"seconds": 60.0}):
        for recipe in (None, Recipe(training={"steps": 7})):
            found = plan(
                digits(), ["triplet"], recipe=recipe, dims=(), backbones=(), seeds=1, same_batches=False,
                budget=read_budget(changes["budget"]) if "budget" in changes else Budget(),
                changes={name: value for name, value in changes.items() if name != "budget"},
            )  # fmt: skip
            training = found.grid[0].recipe.training
            assert (training.steps, training.seconds) == (None, 60.0)
            said = " ".join(opening_words(found.grid[0].recipe, found.data, split_of(found), (), panel=False))
            assert "Budget per run: 1 min 0 s" in said
    both = planned(digits(), ["triplet"], seconds=60.0, steps=9).grid[0].recipe.training
    assert (both.steps, both.seconds) == (9, 60.0)


def test_a_comparison_by_time_ends_by_time_and_says_so(tmp_path):
    settings = {"backbone": "linear", "dim": 4, "batch": "4x4", "rates": 1, "jobs": 1, "progress": False}
    settings |= {"protocol": "fixed-validation"}
    board = compare(vectors(), ["triplet"], out=tmp_path, budget="0.2s", evaluate_every=5, **settings)
    (record,) = board.records
    assert record.recipe["training"]["steps"] is None
    assert record.seconds >= 0.2
    assert Recipe.read(board.best_trained.runs[0].files.recipe).training.steps is None


def test_long_runs_have_the_same_patience_and_short_or_stated_ones_none():
    made = planned(vectors(), ["triplet", "proxy_anchor"], steps=3000, evaluate_every=100)
    assert {entry.recipe.training.patience for entry in made.grid} == {15}
    assert "stops early after 15 evaluations without improvement" in " ".join(
        opening_words(made.grid[0].recipe, made.data, split_of(made), (), panel=False)
    )
    for changes in ({}, {"steps": 900}, {"steps": 3000, "patience": None}, {"steps": 3000, "evaluate_every": 0}):
        grid = planned(vectors(), ["triplet"], **changes).grid
        assert grid[0].recipe.training.patience is None, changes
    stated = plan(
        vectors(), ["triplet"], recipe=Recipe(training={"steps": 3000}), dims=(), backbones=(), seeds=1,
        same_batches=False, budget=Budget(), changes={},
    )  # fmt: skip
    assert stated.grid[0].recipe.training.patience is None
    assert with_patience(drafts(["triplet"], {"seconds": 5.0}))[0].recipe.training.patience is None


def test_a_recipe_with_a_time_alone_has_no_number_of_steps_and_reads_back(tmp_path):
    recipe = Recipe.of({"seconds": 5.0})
    assert recipe.training.steps is None
    (tmp_path / "mine.toml").write_text(recipe.toml())
    assert Recipe.read(tmp_path / "mine.toml") == recipe
    assert recipe.changed(learning_rate=0.1).training.steps is None
    with pytest.raises(InputError, match="only if seconds limits training"):
        recipe.changed(seconds=None)
    assert math.isfinite(Recipe.of({"seconds": 5.0, "steps": 3}).training.steps)
