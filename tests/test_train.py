"""From a recipe to a run: what the record says, against what was done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vicinal as vc
from vicinal.data import Dataset, arrays
from vicinal.errors import DataError, InputError
from vicinal.evaluation import evaluate
from vicinal.runs._train import Bookkeeping
from vicinal.runs.recipe import SCORES, Recipe
from vicinal.runs.run import EmbeddedItems as Items
from vicinal.runs.run import Run, RunFiles
from vicinal.training import Hook
from vicinal.training.state import TrainingState

pytestmark = pytest.mark.recipe

SMALL: dict[str, Any] = {
    "backbone": "linear",
    "dim": 3,
    "classes_per_batch": 3,
    "samples_per_class": 2,
    "steps": 6,
    "evaluate_every": 3,
    "learning_rate": 0.01,
    "validation": 0.4,
}


def recipe(**changes: Any) -> Recipe:
    return Recipe.of({**SMALL, **changes})


@pytest.fixture(scope="module")
def blobs() -> Dataset:
    """Sixteen classes of which all have the same size, so that nothing but their content tells them apart."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), 6)
    points = rng.normal(size=(16, 5))[labels] + rng.normal(size=(96, 5))
    return arrays(points.astype(np.float32), labels, name="blobs")


@pytest.fixture(scope="module")
def shop(blobs: Dataset) -> Dataset:
    """The same with roles: of each test class two queries and four gallery items."""
    roles = np.where(blobs.labels < 8, "train", np.tile(["query", "query", *["gallery"] * 4], 16))
    return replace(blobs, roles=roles, name="shop")


@pytest.fixture(scope="module")
def kept(shop: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "shop"
    return vc.train(recipe(protocol="query-gallery"), data=shop, folder=folder, progress=False)


def by_hand(embeddings: np.ndarray, data: Dataset, distance: str) -> dict[str, float]:
    """P@1, P@R and MAP@R of every query, in loops."""
    roles = np.full(len(data), "both") if data.roles is None else data.roles
    apart = "query" in roles
    found: dict[str, list[float]] = {name: [] for name in SCORES}
    for i in np.flatnonzero(roles == "query") if apart else range(len(data)):
        others = [j for j in range(len(data)) if (roles[j] == "gallery" if apart else j != i)]
        if distance == "cosine":
            near = [-float(embeddings[i] @ embeddings[j]) for j in others]
        else:
            near = [float(np.linalg.norm(embeddings[i] - embeddings[j])) for j in others]
        hits = [data.labels[others[j]] == data.labels[i] for j in np.argsort(near, kind="stable")]
        wanted = sum(hits)
        found["P@1"].append(hits[0])
        found["P@R"].append(sum(hits[:wanted]) / wanted)
        found["MAP@R"].append(sum(sum(hits[: k + 1]) / (k + 1) for k in range(wanted) if hits[k]) / wanted)
    return {name: float(np.mean(values)) for name, values in found.items()}


def test_queries_are_searched_in_the_gallery(kept: Run, shop: Dataset) -> None:
    test = kept.recipe.split(shop).test
    embeddings = kept.embedder().encode(test)
    assert kept.record.gallery
    assert {name: kept.record.test[name] for name in SCORES} == pytest.approx(by_hand(embeddings, test, "cosine"))
    whole = evaluate(embeddings, test.labels)
    assert kept.record.test["MAP@R"] != pytest.approx(whole["MAP@R"], abs=1e-3)  # or the test would show nothing
    assert kept.record.queries == (2,) * 8
    assert kept.record.classes == test.class_names
    for name in SCORES:
        assert np.mean(kept.record.per_class[name]) == pytest.approx(kept.record.test[name])


def test_the_record_says_all_that_was_done(kept: Run, shop: Dataset) -> None:
    record = kept.record
    assert (record.dataset, record.data, record.protocol) == ("shop", shop.hash(), "query-gallery")
    assert record.split == kept.recipe.split(shop).hash(data=shop.hash())
    assert (record.steps, record.images, record.best_step in (3, 6)) == (6, 6 * 3 * 2, True)
    assert (record.threads, record.selected_on, record.distance) == (torch.get_num_threads(), "validation", "cosine")
    assert (record.fold, record.folds, record.recipe["skip_bad"], record.name) == (
        None,
        None,
        False,
        "multi_similarity",
    )
    assert record.key == kept.recipe.key(shop.hash(), "multi_similarity")
    assert set(record.validation) == set(SCORES)
    assert kept.recipe == recipe(protocol="query-gallery", data="shop")


def test_the_folder_holds_the_same(kept: Run, shop: Dataset) -> None:
    opened = Run.open(kept.folder)
    assert opened.record == kept.record
    assert opened.recipe == kept.recipe
    assert json.loads(kept.files.record.read_text())["version"] == 4
    test = kept.recipe.split(shop).test
    ours, theirs = kept.embedder(), opened.embedder()
    assert not theirs.training
    assert np.array_equal(ours.encode(test), theirs.encode(test))
    items = opened.test_items()
    np.testing.assert_allclose(items.embeddings, ours.encode(test), rtol=1e-6)
    assert items.labels.tolist() == test.labels.tolist()
    assert items.roles is not None
    assert items.roles.tolist() == test.roles.tolist()
    scores = opened.record.test
    text = (opened.files.model / "README.md").read_text()
    assert f"| MAP@R (test) | {scores['MAP@R']:.4f} |" in text
    assert [line["step"] for line in opened.log if "score" in line] == [3, 6]


def test_damage_to_the_record_is_seen(kept: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(kept.files.folder, tmp_path / "run")
    path = folder / "record.json"
    text = path.read_text()
    assert '"best_step": ' in text
    path.write_text(text.replace('"best_step": ', '"best_step": 1'))
    with pytest.raises(DataError, match="its checksum does not match"):
        Run.open(folder)
    path.write_text(json.dumps({name: value for name, value in json.loads(text).items() if name != "sha256"}))
    with pytest.raises(DataError, match="its checksum does not match"):
        Run.open(folder)


def test_a_run_whose_recipe_was_changed_is_not_resumed(kept: Run, shop: Dataset, tmp_path: Path) -> None:
    folder = shutil.copytree(kept.files.folder, tmp_path / "run")
    path = folder / "recipe.toml"
    path.write_text(path.read_text().replace("classes_per_batch = 3", "classes_per_batch = 2"))
    with pytest.raises(InputError, match=r"started with other settings than its recipe.toml has now"):
        vc.train(Recipe.read(path), data=shop, folder=folder, resume=True, progress=False)


def test_without_a_folder_the_run_is_the_same(kept: Run, shop: Dataset) -> None:
    run = vc.train(recipe(protocol="query-gallery"), data=shop, progress=False)
    clocks = {"seconds", "finished", "peak_memory_mib"}
    assert run.record.model_dump(exclude=clocks) == kept.record.model_dump(exclude=clocks)
    test = run.recipe.split(shop).test
    assert np.array_equal(run.embedder().encode(test), kept.embedder().encode(test))
    assert (run.has_model, run.has_test_items, run.log) == (True, False, [])
    with pytest.raises(InputError, match="were not saved"):
        run.test_items()


def test_test_items_come_back_with_and_without_roles(kept: Run, tmp_path: Path) -> None:
    run = Run(kept.record, tmp_path)
    vectors, labels = np.eye(3, dtype=np.float32), np.arange(3)
    for roles in (np.array(["query", "gallery", "gallery"]), None):
        run.save_test_items(Items(vectors, labels, roles))
        found = run.test_items()
        assert np.array_equal(found.embeddings, vectors)
        assert found.labels.tolist() == [0, 1, 2]
        assert (None if found.roles is None else found.roles.tolist()) == (None if roles is None else roles.tolist())


@pytest.mark.parametrize("normalisation", ["sphere", "ball", None])
def test_the_record_says_how_it_measured(normalisation: str | None, blobs: Dataset) -> None:
    run = vc.train(recipe(normalisation=normalisation, loss="contrastive"), data=blobs, progress=False)
    assert run.record.distance == ("cosine" if normalisation == "sphere" else "euclidean")
    test = run.recipe.split(blobs).test
    embeddings = run.embedder().encode(test)
    expected = by_hand(embeddings, test, run.record.distance)
    assert {name: run.record.test[name] for name in SCORES} == pytest.approx(expected)
    assert not run.record.gallery
    assert run.record.queries == (6,) * 8


def test_folds_are_recorded(blobs: Dataset) -> None:
    folds = [
        vc.train(recipe(protocol="reality-check", fold=fold, folds=folds), data=blobs, progress=False).record
        for fold, folds in ((1, None), (2, 3))
    ]
    assert [(record.fold, record.folds) for record in folds] == [(1, 4), (2, 3)]
    assert folds[0].experiment.endswith("fold 1")
    default = vc.train(recipe(protocol="default"), data=blobs, progress=False).record
    assert (default.folds, default.selected_on, default.validation, default.best_step) == (None, "last", {}, 6)


def test_what_the_caller_knows_is_recorded(blobs: Dataset) -> None:
    facts = {"name": "mine", "data": "a hash", "tuning_trials": 3, "demands": ("1 item per class",)}
    record = vc.train(recipe(), data=blobs, bookkeeping=Bookkeeping(facts=facts), progress=False).record
    assert (record.name, record.data, record.tuning_trials, record.demands) == (*facts.values(),)
    assert record.key == recipe().key("a hash", "mine")


def test_choosing_on_the_test_classes_searches_queries_in_the_gallery(shop: Dataset, tmp_path: Path) -> None:
    """Every step's score on the test classes is by query and gallery, and the best of them is reported."""
    wanted = recipe(protocol="query-gallery", select_on_test=True, evaluate_every=1, learning_rate=0.1)
    seen: list[Mapping[str, float]] = []

    class Seen(Hook):
        def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> None:
            seen.append(scores)

    run = vc.train(wanted, data=shop, folder=tmp_path / "run", hooks=[Seen()], progress=False)
    test = wanted.split(shop).test
    best = by_hand(run.embedder().encode(test), test, "cosine")
    assert len(seen) == 6
    assert seen[run.record.best_step - 1] == pytest.approx(best)
    assert best["MAP@R"] == pytest.approx(max(scores["MAP@R"] for scores in seen), abs=1e-5)
    assert {name: run.record.test[name] for name in SCORES} == pytest.approx(best)
    assert (run.record.selected_on, run.record.validation) == ("test", {})


@pytest.fixture(scope="module")
def first(blobs: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("resumed") / "run"
    return vc.train(recipe(protocol="k-fold", fold=0, folds=4), data=blobs, folder=folder, progress=False)


class TestResume:
    def test_a_finished_run_is_found_again(self, first: Run, blobs: Dataset) -> None:
        again = vc.train(first.recipe.changed(data=None), data=blobs, folder=first.folder, resume=True, progress=False)
        clocks = {"seconds", "finished", "peak_memory_mib"}
        assert again.record.model_dump(exclude=clocks) == first.record.model_dump(exclude=clocks)

    def test_other_data_is_refused(self, first: Run, blobs: Dataset) -> None:
        points = blobs.items.copy()
        points[0, 0] += 1e-3
        other = replace(blobs, items=points)
        with pytest.raises(InputError, match=r"trained on other data, or on another split of it"):
            vc.train(first.recipe.changed(data=None), data=other, folder=first.folder, resume=True, progress=False)

    def test_another_fold_is_refused(self, first: Run, blobs: Dataset) -> None:
        other = first.recipe.changed(data=None, fold=1)
        with pytest.raises(InputError, match="started with another recipe"):
            vc.train(other, data=blobs, folder=first.folder, resume=True, progress=False)

    def test_another_fold_of_a_split_by_hand_is_refused(self, blobs: Dataset, tmp_path: Path) -> None:
        """Classes of one size, and a recipe that says nothing of them: only the identity of the data tells."""
        splits = [replace(vc.split(blobs, "reality-check", fold=fold), protocol="mine", fold=None) for fold in (0, 1)]
        assert {len(part.train) for part in splits} == {36}
        vc.fit(splits[0], recipe(), folder=tmp_path, progress=False)
        with pytest.raises(InputError, match=r"trained on other data, or on another split of it"):
            vc.fit(splits[1], recipe(), folder=tmp_path, resume=True, progress=False)
        vc.fit(splits[0], recipe(), folder=tmp_path, resume=True, progress=False)


def test_fit_records_the_split_it_was_given(blobs: Dataset, tmp_path: Path) -> None:
    """The split counts, and not what the recipe says of one."""
    parts = vc.split(blobs, "reality-check", fold=1, folds=2)
    vc.fit(parts, recipe(select_on_test=True, protocol="k-fold", fold=0), folder=tmp_path, progress=False)
    record = Run.open(tmp_path).record
    assert (record.protocol, record.fold, record.folds) == ("reality-check", 1, 2)
    assert (record.selected_on, set(record.validation), record.test) == ("validation", set(SCORES), {})
    assert record.split == parts.hash()
    usual = vc.split(blobs, "reality-check", fold=2)
    vc.fit(usual, recipe(), folder=tmp_path / "usual", progress=False)
    assert Run.open(tmp_path / "usual").recipe.folds is None


def test_bad_images_are_left_out_where_the_recipe_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label in range(8):
        for number in range(4):
            path = tmp_path / "photos" / f"class{label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (12, 12), dtype=np.uint8)).save(path)
    (tmp_path / "photos" / "class6" / "1.png").write_bytes(b"not an image")
    wanted = recipe(
        data=str(tmp_path / "photos"),
        backbone="convnet",
        backbone_options={"widths": [4], "size": 8},
        classes_per_batch=2,
        steps=1,
    )
    with pytest.raises(DataError, match=r"1\.png"):
        vc.train(wanted, progress=False)
    with pytest.warns(UserWarning, match=r"1\.png"):
        run = vc.train(wanted.changed(skip_bad=True), progress=False)
    assert run.record.recipe["skip_bad"] is True
    assert run.record.queries == (4, 4, 3, 4)
    assert run.record.dataset == str(tmp_path / "photos")


def test_what_is_missing_is_said(blobs: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"names no data: pass data=, or add it to the recipe"):
        vc.train(recipe(), progress=False)
    with pytest.raises(DataError, match=r"holds no finished run(.|\n)*--resume"):
        Run.open(tmp_path)
    RunFiles(tmp_path).record.write_text('{"version": 9}')
    with pytest.raises(DataError, match="is not a record that this vicinal reads"):
        Run.open(tmp_path)
    kept = Bookkeeping(keep_model=False)
    run = vc.train(recipe(), data=blobs, folder=tmp_path / "run", bookkeeping=kept, progress=False)
    assert not run.files.model.exists()
    assert not Run.open(tmp_path / "run").has_model


def test_a_run_divides_its_data_once(blobs: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    divided, real = [], Recipe.split
    monkeypatch.setattr(Recipe, "split", lambda self, data: divided.append(data) or real(self, data))
    vc.train(recipe(), data=blobs, folder=tmp_path / "run", progress=False)
    assert divided == [blobs]


def test_files_that_are_decoded_once_are_divided_as_the_files_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label in range(8):
        for number in range(3):
            path = tmp_path / "photos" / f"class{label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(path)
    data = vc.data.folder(tmp_path / "photos")
    small = {"backbone": "convnet", "backbone_options": {"widths": [4], "size": 8}, "dim": 4, "classes_per_batch": 2}
    wanted = Recipe.of({**small, "steps": 2, "samples_per_class": 2, "protocol": "k-fold", "folds": 2, "fold": 1})
    run = vc.train(wanted, data=data, folder=tmp_path / "run", progress=False)
    split = wanted.split(data)
    assert split.test is not None
    assert run.record.split == split.hash(data=data.hash())
    assert run.record.classes == split.test.class_names
    assert np.array_equal(run.test_items().labels, split.test.labels)
    np.testing.assert_allclose(run.test_items().embeddings, run.embedder().encode(split.test), atol=1e-5)


def test_a_run_holds_the_scores_that_it_has_just_computed(blobs: Dataset, tmp_path: Path) -> None:
    plain = vc.train(recipe(), data=blobs, progress=False)
    assert plain.scores is not None
    assert plain.scores.intervals == {}
    full = vc.train(
        recipe(), data=blobs, folder=tmp_path / "run", progress=False, bookkeeping=Bookkeeping(full_scores=True)
    )
    assert full.scores is not None
    assert {"mAP", "MRR"} <= full.scores.overall.keys()
    assert full.scores.intervals
    assert full.record.test == plain.record.test  # whatever is computed beside it
    assert Run.open(tmp_path / "run").scores is None


def test_a_run_builds_its_network_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vicinal.embedder import embedder as module

    built = []
    real = module.build_backbone
    monkeypatch.setattr(module, "build_backbone", lambda *a, **o: built.append(a[0]) or real(*a, **o))
    small = {"backbone_options": {"widths": [4], "size": 8}, "dim": 4, "classes_per_batch": 2, "validation": 0.6}
    vc.train(Recipe(data="digits", **small).changed(steps=2), folder=tmp_path / "run", progress=False)
    assert built == ["convnet"]


@pytest.mark.parametrize(
    ("name", "ks"), [("sop", (1, 10, 100, 1000)), ("inshop", (1, 10, 20, 30)), ("blobs", (1, 2, 4, 8))]
)
def test_recall_is_reported_at_the_k_of_the_dataset(name: str, ks: tuple[int, ...], blobs: Dataset) -> None:
    data = arrays(blobs.items, blobs.labels, name=name)
    tested = vc.train(recipe(steps=2), data=data, progress=False).record.test
    assert [found for found in tested if found.startswith("R@")] == [f"R@{k}" for k in ks]
