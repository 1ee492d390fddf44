"""A comparison of which nothing but the data is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal.comparing import compare
from vicinal.comparing.contestants import drafts
from vicinal.comparing.features import feature_seconds
from vicinal.comparing.plan import PANEL, panel_in_words, states_conditions, with_batches_that_fit
from vicinal.comparing.progress import features_in_words, opening_words
from vicinal.data import Dataset, arrays, digits, split
from vicinal.errors import InputError
from vicinal.runs.build import build_embedder, train_transform
from vicinal.runs.recipe import Recipe
from vicinal.training.feature_cache import missing_features
from vicinal.training.frozen import FrozenEmbedder, training_items

pytestmark = pytest.mark.recipe


def clusters(classes: int, each: int = 3) -> Dataset:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    centres = rng.normal(size=(classes, 4))
    return arrays((centres[labels] + 0.1 * rng.normal(size=(len(labels), 4))).astype(np.float32), labels, name="small")


def test_ways_of_the_panel_differ_in_kind_and_can_be_run() -> None:
    recipes = [draft.recipe for draft in drafts([way.loss for way in PANEL])]
    assert len({way.kind for way in PANEL}) == len({recipe.loss for recipe in recipes}) == len(PANEL) >= 4
    assert {recipe.traits.usual for recipe in recipes} == {"batch", "proxies"}
    assert all(way.literature in line for way, line in zip(PANEL, panel_in_words(), strict=True))


def test_data_alone_is_enough_even_of_eight_small_classes(tmp_path: Path) -> None:
    board = compare(clusters(8), out=tmp_path, steps=2, jobs=1, progress=False, keep_models=False)
    assert len(board.records) == 3 * len(PANEL)
    record = board.records[0]
    assert (record.network[0], record.selected_on, record.protocol) == ("linear", "validation", "cross-validation")
    assert len(record.validation_classes) == 4  # every training class has validated
    said = " ".join(str(board).split())
    assert "Note: Batches are 3 classes x 3 items instead of 16 x 4" in said
    assert "settings selected by cross-validation, models fitted on all training classes" in said


def test_a_protocol_that_is_named_is_used(tmp_path: Path) -> None:
    settings = {"steps": 2, "jobs": 1, "progress": False, "keep_models": False, "protocol": "fixed-validation"}
    board = compare(clusters(8), out=tmp_path, **settings)
    assert len(board.records) == len(PANEL)
    record = board.records[0]
    assert (record.selected_on, record.validation) == ("last", {})
    said = " ".join(str(board).split())
    assert "Note: No validation, because 4 training classes are too few" in said
    assert "the best on test classes" in said


def test_a_budget_of_next_to_nothing_is_said_aloud(tmp_path: Path) -> None:
    board = compare(
        clusters(14, each=12), ["triplet"], out=tmp_path, batch="2x2", steps=4, rates=1, jobs=1, progress=False
    )
    assert "Note: The budget is less than one epoch: 16 images" in " ".join(str(board).split())


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
    fitting = [with_batches_that_fit(draft, sets) for draft in drafts(["triplet", "proxy_anchor"])]
    assert {draft.recipe.batch for draft, _ in fitting} == {"3x3"}
    assert len({note for _, note in fitting}) == 1


def test_folds_are_compared_with_nothing_else_said(tmp_path: Path) -> None:
    board = compare(
        clusters(10), ["triplet"], out=tmp_path, protocol="k-fold", folds=2, steps=2, jobs=1, progress=False
    )
    assert [record.selected_on for record in board.records] == ["last", "last"]


def test_what_is_said_before_anything_runs() -> None:
    recipe = Recipe.of({"backbone": "linear", "steps": 1, "batch": "4x3"})
    said = "\n".join(opening_words(recipe, clusters(8), recipe.split(clusters(8)), ["Batches shrank."], panel=True))
    for words in (
        "Data: small, 24 items in 8 classes (4 training, 4 test).",
        "Network: linear with random weights.",
        "Comparing 5 losses of different types",
        PANEL[0].literature,
        "Budget per run: 12 images in 1 step of 12.",
        "Note: Batches shrank.",
        "Note: No validation",
    ):
        assert words in said
    assert "next to nothing" not in said  # 12 images are one pass
    still = Recipe(backbone="resnet18", weights="imagenet", freeze=True)
    frozen = "\n".join(opening_words(still, digits(), still.split(digits()), [], panel=False))
    assert "resnet18 with pretrained weights; it is frozen" in frozen
    assert "(about 2 min 5 s); they are cached" in features_in_words(125.0)


def test_time_is_estimated_from_the_first_features_which_are_kept(tmp_path: Path) -> None:
    tiny = {"backbone_options": {"widths": [2], "size": 8}, "dim": 2, "freeze": True, "copies": 1}
    recipe, some = Recipe.of({**tiny, "protocol": "default"}), digits().subset(range(300))
    embedder = build_embedder(recipe, some)
    pool, transform = recipe.split(some).train, train_transform(recipe, embedder)
    assert transform is not None
    assert feature_seconds(embedder, some, pool, transform, recipe, tmp_path) > 0
    left = missing_features(embedder, some, embedder.transform, cache=tmp_path)
    assert 0 < len(left) <= 300 - 64


@pytest.mark.parametrize("freeze", [{"freeze": True}, {"freeze": "trunk", "train_stages": 1}])
def test_features_and_maps_that_are_kept_already_take_no_time(tmp_path: Path, freeze: dict[str, Any]) -> None:
    some = digits().subset(range(60))
    tiny = {"backbone_options": {"widths": [2, 4], "size": 8}, "dim": 2, "copies": 1, "protocol": "default"}
    recipe = Recipe.of({**tiny, **freeze})
    embedder = build_embedder(recipe, some)
    pool, transform = recipe.split(some).train, train_transform(recipe, embedder)
    assert transform is not None
    assert feature_seconds(embedder, some, pool, transform, recipe, tmp_path) > 0
    model = FrozenEmbedder(embedder, cache=tmp_path, progress=False)
    model.encode(some)
    training_items(model, pool, transform, 1)
    assert feature_seconds(embedder, some, pool, transform, recipe, tmp_path) == 0
