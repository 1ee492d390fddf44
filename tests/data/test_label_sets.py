"""Items with sets of labels: a Dataset of them, its views, and what is trained and scored on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import vicinal as vc
from vicinal.collection._show_neighbours import show_neighbours
from vicinal.data import Dataset, Split, arrays, contact_sheet, load, split
from vicinal.embedder import Embedder
from vicinal.embedder._calibrate import calibrate
from vicinal.errors import InputError
from vicinal.evaluation import GroundTruth, evaluate
from vicinal.runs._train import fit, train
from vicinal.runs.recipe import Recipe
from vicinal.sampling import batch_that_fits
from vicinal.training.feature_cache import frozen_features

QUICK = {"steps": 60, "dim": 16, "learning_rate": 1e-2, "batch": "8x4", "progress": False}


def planted(groups: int, items: int = 100, labels: int = 10) -> Dataset:
    """Two labels of one group for each item: half of its numbers are their prototypes, the others are loud noise."""
    rng = np.random.default_rng(0)
    prototypes = rng.standard_normal((groups * labels, 16))
    sets = np.zeros((groups * items, groups * labels), dtype=bool)
    for row, mine in enumerate(sets):
        mine[row // items * labels + rng.choice(labels, 2, replace=False)] = True
    rows = np.hstack([sets @ prototypes, 3 * rng.standard_normal((len(sets), 16))]).astype(np.float32)
    return Dataset(rows, sets, tuple(f"tag {label:02}" for label in range(groups * labels)), name="planted")


def small() -> Dataset:
    sets = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)
    return Dataset(np.arange(8.0).reshape(4, 2), sets, ("a", "b", "c", "d"), name="small")


def test_views_keep_the_sets() -> None:
    data = small()
    assert data.classes.tolist() == [0, 1, 2]
    assert data.members(1).tolist() == [0, 2]
    assert data.subset([2, 1]).labels.tolist() == [[False, True, False, False], [False, False, True, False]]
    chosen = data.of_classes([1, 0])
    assert chosen.class_names == ("b", "a")
    assert chosen.labels.tolist() == [[True, True], [True, False]]
    assert chosen.items[:, 0].tolist() == [0, 4]
    other = np.array(data.labels)
    other[3, 3] = True
    assert data.hash() != Dataset(data.items, other, data.class_names, name="small").hash()


def test_no_set_is_cut() -> None:
    with pytest.raises(InputError, match="Labels among a and others: 1 item\\."):
        small().of_classes([0])


@pytest.mark.parametrize("sets", [np.ones((4, 2), dtype=bool), np.ones((4, 4), dtype=np.int64)])
def test_sets_are_booleans_with_a_column_for_each_name(sets: np.ndarray) -> None:
    with pytest.raises(InputError, match="a column for each of 4 class names; got"):
        Dataset(np.eye(4), sets, ("a", "b", "c", "d"))


@pytest.mark.parametrize("options", [{"protocol": "default"}, {"protocol": "k-fold", "fold": 1, "folds": 2}])
def test_a_split_leaves_labels_that_hang_together_on_one_side(options: dict) -> None:
    data = planted(4)
    parts = split(data, **options)
    views = [view for view in (parts.train, parts.validation, parts.test) if view is not None]
    assert sorted(name for view in views for name in view.class_names) == sorted(data.class_names)
    assert sum(map(len, views)) == len(data)
    assert len(parts.test) == 200
    assert parts.test.labels.sum(axis=1).tolist() == [2] * 200


def test_a_split_that_would_share_labels_says_what_to_do() -> None:
    data = planted(1)
    with pytest.raises(InputError, match=r"1 to train, 0 to test.*Split\(data.subset"):
        split(data)
    roles = np.array(["train", "test"] * (len(data) // 2))
    with pytest.raises(InputError, match=r"both sides.*split the items yourself"):
        split(Dataset(data.items, data.labels, data.class_names, roles))


def test_arrays_take_sets_and_names_from_the_command_line_do_not(tmp_path: Path) -> None:
    data = small()
    taken = arrays(data.items, data.labels)
    assert taken.class_names == ("0", "1", "2", "3")
    assert taken.labels.tolist() == data.labels.tolist()
    np.savez(tmp_path / "sets.npz", X=data.items, y=data.labels)
    assert arrays(tmp_path / "sets.npz").has_sets
    with pytest.raises(InputError, match=r"sets has sets of labels: vicinal\.fit"):
        load(tmp_path / "sets.npz")


@pytest.mark.parametrize("loss", ["multi_similarity", "normalised_softmax"])
def test_training_on_sets_helps_new_items(loss: str) -> None:
    data = planted(2, items=200)
    data = data.subset(np.arange(200))  # no item has one of the other labels
    known, new = data.subset(np.arange(0, len(data), 2)), data.subset(np.arange(1, len(data), 2))
    model = fit(Split(known, None, None), loss=loss, **QUICK)
    assert model.encode(new).shape == (100, 16)
    assert evaluate(model, new)["MAP@R"] > evaluate(new.items, new)["MAP@R"] + 0.1


def test_training_on_sets_helps_new_labels_and_a_step_is_chosen_by_others(tmp_path: Path) -> None:
    parts = split(planted(4), "k-fold", fold=0, folds=2)
    model = fit(parts, folder=tmp_path / "run", sampler="hard-classes", evaluate_every=20, **QUICK)
    assert evaluate(model, parts.test)["MAP@R"] > evaluate(parts.test.items, parts.test)["MAP@R"] + 0.05
    record = vc.Run.open(tmp_path / "run").record
    assert record.selected_on == "validation"
    assert record.validation["MAP@R"] == pytest.approx(evaluate(model, parts.validation)["MAP@R"], abs=1e-6)


def test_a_step_is_chosen_by_the_overlap_that_is_trained_by(tmp_path: Path) -> None:
    parts, told = split(planted(4), "k-fold", fold=0, folds=2), {"loss_options": {"overlap": 0.4}, "steps": 5}
    model = fit(parts, folder=tmp_path / "run", **{**QUICK, **told})
    expected, other = (
        evaluate(model, GroundTruth(parts.validation, overlap=overlap))["MAP@R"] for overlap in (0.4, 0.0)
    )
    assert vc.Run.open(tmp_path / "run").record.validation["MAP@R"] == pytest.approx(expected, abs=1e-6)
    assert abs(expected - other) > 0.01


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory": 64}, "need a batch, proxies"),
        ({"loss": "margin", "loss_options": {"boundary": {"start": 1.2, "per_class": True}}}, "learned per class"),
        ({"cover": 2}, "need one label per item"),
    ],
)
def test_what_cannot_train_on_sets_says_so_and_leaves_no_folder(tmp_path: Path, changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fit(Split(planted(1), None, None), folder=tmp_path / "run", **{**QUICK, **changes})
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_what_needs_one_label_says_so(tmp_path: Path) -> None:
    data = planted(2)
    model = Embedder("linear", dim=None, options={"features": 32})
    needs = "needs one label per item, and planted has sets of labels"
    with pytest.raises(InputError, match=needs):
        train(Recipe(backbone="linear"), data=data, progress=False)
    with pytest.raises(InputError, match=needs):
        vc.compare(data, ["triplet"], out=tmp_path / "compared", progress=False)
    with pytest.raises(InputError, match=needs):
        vc.Index.build(tmp_path / "x.index", model, data)
    with pytest.raises(InputError, match=needs):
        calibrate(model, data)


def test_a_batch_of_sets_holds_no_item_twice() -> None:
    sets = np.ones((6, 4), dtype=bool)  # four classes of the same six items
    assert batch_that_fits(sets, 8, 4) == (3, 2)
    assert batch_that_fits(np.hstack([sets, np.zeros((6, 1), dtype=bool)]), 2, 2) == (2, 2)


def test_features_of_sets_are_those_of_every_item(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (4, 16, 16), dtype=np.uint8)
    data = Dataset(images, small().labels, small().class_names)
    torch.manual_seed(0)
    network = Embedder("convnet", dim=None, options={"widths": [4], "size": 16}).eval()
    found = frozen_features(network, data, network.transform, cache=tmp_path, progress=False)[:, 0]
    one_each = Dataset(images, np.zeros(4, dtype=np.int64), ("a",))
    expected = frozen_features(network, one_each, network.transform, cache=tmp_path, progress=False)[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_pictures_of_sets() -> None:
    images = np.random.default_rng(0).integers(0, 255, (4, 16, 16), dtype=np.uint8)
    data = Dataset(images, small().labels, small().class_names)
    assert contact_sheet(data, size=16).size == (12 * 16, 3 * 16)
    model = Embedder("convnet", dim=4, options={"widths": [4], "size": 16})
    colours = {colour for _, colour in show_neighbours(model, data, queries=4, k=3, size=16).getcolors(1 << 16)}
    assert {(0x1A, 0x7F, 0x37), (0xCF, 0x22, 0x2E)} <= colours


def test_classes_without_items_are_not_trained(tmp_path: Path) -> None:
    """Of single labels too: a subset keeps the names of classes that it has no items of."""
    rows = np.random.default_rng(0).standard_normal((24, 4)).astype(np.float32)
    data = Dataset(rows, np.arange(24) % 3 * 2, tuple("abcdef"))
    assert fit(Split(data, None, None), loss="proxy_anchor", steps=2, dim=4, progress=False).dim == 4
