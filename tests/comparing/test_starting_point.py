"""A comparison of which nothing but the data is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vicinal.comparing import compare
from vicinal.comparing.contestants import contestants
from vicinal.comparing.features import feature_seconds, runs_seconds
from vicinal.comparing.plan import PANEL, in_fitting_batches, panel_in_words, states_conditions
from vicinal.comparing.progress import features_in_words, opening_words, time_in_words
from vicinal.data import Dataset, arrays, digits, split
from vicinal.errors import InputError
from vicinal.runs.build import build_embedder, train_transform
from vicinal.runs.recipe import Recipe
from vicinal.training.frozen import FrozenEmbedder, training_items

pytestmark = pytest.mark.recipe


def clusters(classes: int, each: int = 3) -> Dataset:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    centres = rng.normal(size=(classes, 4))
    return arrays((centres[labels] + 0.1 * rng.normal(size=(len(labels), 4))).astype(np.float32), labels, name="small")


def test_ways_of_the_panel_differ_in_kind_and_can_be_run() -> None:
    recipes = [contestant.recipe for contestant in contestants([way.loss for way in PANEL])]
    assert len({way.kind for way in PANEL}) == len({recipe.loss for recipe in recipes}) == len(PANEL) >= 4
    assert {recipe.traits.usual for recipe in recipes} == {"batch", "proxies"}
    assert all(way.literature in line for way, line in zip(PANEL, panel_in_words(), strict=True))


def test_data_alone_is_enough_even_of_eight_small_classes(tmp_path: Path) -> None:
    board = compare(clusters(8), out=tmp_path, steps=2, jobs=1, progress=False, keep_models=False)
    assert len(board.records) == len(PANEL)
    record = board.records[0]
    assert (record.network[0], record.selected_on, record.validation) == ("linear", "last", {})
    assert {run["classes_per_batch"] * run["samples_per_class"] for run in (one.recipe for one in board.records)} == {
        12
    }
    said = " ".join(str(board).split())
    assert "Note: Batches hold 4 classes x 3 instead of 16 x 4" in said
    assert "Note: Nothing is chosen by validation, since 4 training classes are too few" in said
    assert "chosen by test scores" in said


def test_a_budget_of_next_to_nothing_is_said_aloud(tmp_path: Path) -> None:
    board = compare(
        clusters(14, each=12), ["triplet"], out=tmp_path, batch="2x2", steps=4, rates=1, jobs=1, progress=False
    )
    assert "Note: The budget trains next to nothing: 16 images seen, less than one pass" in " ".join(str(board).split())


def test_one_fold_alone_is_not_compared(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"runs all folds of its protocol; got fold = 1: leave it out"):
        compare(clusters(8), ["triplet"], out=tmp_path, protocol="k-fold", folds=2, fold=1, progress=False)


def test_no_losses_are_a_mistake_where_they_were_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one loss"):
        compare("digits", [], out=tmp_path)


def test_a_recipe_states_the_conditions() -> None:
    assert not states_conditions({}, ["triplet"])
    assert states_conditions({"dim": 8}, ["triplet"])
    assert states_conditions({}, ["triplet", "thesis/losses/triplet"])


def test_batches_fit_every_fold() -> None:
    sets = [split(clusters(10), "k-fold", fold=fold, folds=3).train for fold in range(3)]
    assert [len(train.classes) for train in sets] == [3, 3, 4]
    fitting, notes = in_fitting_batches(contestants(["triplet", "proxy_anchor"]), sets)
    assert {(one.recipe.classes_per_batch, one.recipe.samples_per_class) for one in fitting} == {(3, 3)}
    assert len(notes) == 1


def test_folds_are_compared_with_nothing_else_said(tmp_path: Path) -> None:
    board = compare(
        clusters(10), ["triplet"], out=tmp_path, protocol="k-fold", folds=2, steps=2, jobs=1, progress=False
    )
    assert [record.selected_on for record in board.records] == ["last", "last"]


def test_what_is_said_before_anything_runs() -> None:
    recipe = Recipe.of({"backbone": "linear", "steps": 1, "batch": "4x3"})
    said = "\n".join(opening_words(recipe, clusters(8), ["Batches shrank."], panel=True))
    for words in (
        "small: 24 items of 8 classes; of these 4 train, 4 test.",
        "Network: linear with random weights.",
        "No loss is named: 5 are compared",
        PANEL[0].literature,
        "Each run sees 12 images in 1 step of 12.",
        "Note: Batches shrank.",
        "Note: Nothing is chosen by validation",
    ):
        assert words in said
    assert "next to nothing" not in said  # 12 images are one pass
    frozen = "\n".join(
        opening_words(Recipe(backbone="resnet18", weights="imagenet", freeze=True), digits(), [], panel=False)
    )
    assert "resnet18 with pretrained weights; it stands still" in frozen
    assert time_in_words(5, 0.2) == "5 runs will take about 1 s on this machine."
    assert "in about 2 min 5 s, and kept" in features_in_words(125.0)


def test_time_is_estimated_from_a_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe.of({"backbone": "linear", "dim": 2, "steps": 1000, "batch": "3x2", "protocol": "default"})
    few, many = (runs_seconds([recipe] * runs, clusters(8), tmp_path, jobs=2, threads=1) for runs in (2, 40))
    assert 0 < few < many
    taken: list[str] = []

    def lasting(recipe: Recipe, *_: object) -> float:
        taken.append(recipe.loss)
        return {"triplet": 10.0, "circle": 2.0}[recipe.loss]

    monkeypatch.setattr("vicinal.comparing.features._run_seconds", lasting)
    ways = [recipe.changed(loss=loss) for loss in ("triplet", "circle", "circle", "circle")]
    assert runs_seconds(ways, clusters(8), tmp_path, jobs=1, threads=1) == 16.0  # each as long as its own way
    assert runs_seconds(ways, clusters(8), tmp_path, later=4, jobs=2, threads=1) == (16 + 4 * 6) / 2
    assert taken == ["triplet", "circle"] * 2
    monkeypatch.undo()
    assert feature_seconds(recipe, clusters(8), tmp_path) == 0
    some = digits().subset(range(60))
    tiny = {
        "backbone_options": {"widths": [2], "size": 8},
        "dim": 2,
        "freeze": True,
        "copies": 1,
        "protocol": "default",
    }
    frozen = Recipe.of(tiny)
    assert feature_seconds(frozen, some, tmp_path) > 0


def test_time_of_chance_constrained_proxies_is_estimated(tmp_path: Path) -> None:
    settings = {"backbone": "linear", "dim": 2, "steps": 100, "batch": "3x2", "protocol": "fixed-validation"}
    recipe = Recipe.of({**settings, "loss": "contrastive_c2", "ccp": {"preset": "code"}, "evaluate_every": 10})
    assert runs_seconds([recipe], clusters(12), tmp_path, jobs=1, threads=1) > 0


def test_maps_that_are_kept_already_take_no_time(tmp_path: Path) -> None:
    some = digits().subset(range(60))
    trunk = Recipe.of(
        {
            "backbone_options": {"widths": [2, 4], "size": 8},
            "dim": 2,
            "freeze": "trunk",
            "train_stages": 1,
            "copies": 1,
            "protocol": "default",
        }
    )
    assert feature_seconds(trunk, some, tmp_path) > 0
    model = FrozenEmbedder(build_embedder(trunk, some), cache=tmp_path, progress=False)
    model.encode(some)
    training_items(model, trunk.split(some).train, train_transform(trunk, build_embedder(trunk, some)), 1)
    assert feature_seconds(trunk, some, tmp_path) == 0
