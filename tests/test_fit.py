"""From a split to a trained embedder, and the folder of its run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock

from vicinal.data import Dataset, Split, arrays, digits, split
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError
from vicinal.evaluation import evaluate
from vicinal.runs._train import fit
from vicinal.runs.recipe import Recipe
from vicinal.runs.validation import distractors_of, validation_scores
from vicinal.training.settings import Settings

pytestmark = pytest.mark.recipe

SMALL: dict[str, Any] = {
    "backbone": "convnet",
    "backbone_options": {"widths": [8, 16], "size": 16},
    "dim": 8,
    "classes_per_batch": 2,
    "steps": 30,
    "evaluate_every": 10,
    "learning_rate": 3e-3,
    "progress": False,
}


@pytest.fixture(scope="module")
def halves() -> Split:
    return split(digits(), "fixed-validation", validation=0.6)


def same(one: Embedder, other: Embedder) -> bool:
    return all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


@pytest.fixture(scope="module")
def run(halves: Split, tmp_path_factory: pytest.TempPathFactory) -> tuple[Embedder, Path]:
    folder = tmp_path_factory.mktemp("runs") / "deep" / "first"
    return fit(halves, folder=folder, **SMALL), folder


def test_training_helps_on_unseen_classes(halves: Split, run: tuple[Embedder, Path]) -> None:
    def score(embedder: Embedder) -> float:
        return evaluate(embedder.encode(halves.test), halves.test.labels)["MAP@R"]

    torch.manual_seed(0)
    untrained = Embedder("convnet", dim=8, options=SMALL["backbone_options"])
    assert score(run[0]) > score(untrained) + 0.02


def test_a_run_leaves_all_that_is_needed(halves: Split, run: tuple[Embedder, Path]) -> None:
    embedder, folder = run
    assert sorted(os.listdir(folder)) == [
        ".lock",
        "best.ckpt",
        "last.ckpt",
        "metrics.jsonl",
        "model",
        "recipe.toml",
        "record.json",
    ]
    assert not embedder.training
    assert same(Embedder.load(folder / "model"), embedder)
    record = json.loads((folder / "record.json").read_text())
    assert record["split"] == halves.hash()
    assert Recipe(**record["recipe"]) == Recipe.read(folder / "recipe.toml").changed(data="digits")
    assert record["best_step"] in (10, 20, 30)
    recipe = Recipe(**record["recipe"])
    distractors = distractors_of(halves, recipe, cheap=False)
    best = validation_scores(embedder, halves.validation, recipe, distractors).scores
    validation = record["validation"]
    assert (validation["P@1"], validation["P@R"]) == pytest.approx((best["P@1"], best["P@R"]), abs=1e-6)
    assert validation["MAP@R"] <= best["MAP@R"] + 1e-6  # cross-fitted, and not the best of three steps
    assert f"| MAP@R (validation) | {validation['MAP@R']:.4f} |" in (folder / "model" / "README.md").read_text()


def test_the_same_settings_give_the_same_weights(halves: Split, run: tuple[Embedder, Path]) -> None:
    assert same(fit(halves, **SMALL), run[0])


def test_a_folder_is_not_used_twice(halves: Split, run: tuple[Embedder, Path]) -> None:
    with pytest.raises(InputError, match="already holds a run: add --resume"):
        fit(halves, folder=run[1], **SMALL)
    with pytest.raises(InputError, match=r"started with another recipe(.|\n)*recipe\.toml"):
        fit(halves, folder=run[1], resume=True, **{**SMALL, "dim": 9})


def test_a_finished_run_resumes_to_the_same_embedder(halves: Split, run: tuple[Embedder, Path]) -> None:
    assert same(fit(halves, folder=run[1], resume=True, **SMALL), run[0])


def test_without_validation_the_last_step_is_kept(halves: Split, tmp_path: Path) -> None:
    fit(Split(halves.train, None, None), folder=tmp_path / "run", **{**SMALL, "steps": 12})
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert (record["best_step"], record["validation"]) == (12, {})


def test_test_classes_are_not_needed(halves: Split, run: tuple[Embedder, Path]) -> None:
    assert same(fit(halves.without_test(), **SMALL), run[0])


def test_vectors() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 8)
    telling = 3 * rng.normal(size=(40, 3))[labels] + rng.normal(size=(320, 3))
    points = np.concatenate([telling, 3 * rng.normal(size=(320, 20))], axis=1).astype(np.float32)
    halves = split(arrays(points, labels), "fixed-validation")
    changes = {"steps": 150, "learning_rate": 0.02, "evaluate_every": 50, "progress": False}
    embedder = fit(halves, backbone="linear", dim=3, **changes)
    raw, learned = (
        evaluate(found, halves.test.labels)["MAP@R"] for found in (halves.test.items, embedder.encode(halves.test))
    )
    assert learned > 2 * raw


def test_a_score_that_is_not_computed_is_refused_before_training(halves: Split) -> None:
    with pytest.raises(InputError, match=r"training: Unknown score 'MAP@r'; did you mean 'MAP@R'\?"):
        fit(halves, score="MAP@r", **SMALL)


def test_a_folder_that_cannot_be_made_or_written_to(
    halves: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"Cannot create the run's folder .*file/run: Not a directory"):
        fit(halves, folder=tmp_path / "file" / "run", **SMALL)

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("vicinal._util.files.os.replace", read_only)
    with pytest.raises(DataError, match=r"recipe\.toml: .*Read-only file system"):
        fit(halves, folder=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()  # nothing is left of it


class TestFrozen:
    @pytest.fixture
    def counted(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The items that were opened, in turn."""
        seen: list[int] = []
        real = Dataset.open

        def opened(data: Dataset, index: int) -> Any:
            seen.append(index)
            return real(data, index)

        monkeypatch.setattr(Dataset, "open", opened)
        return seen

    def test_only_the_head_is_trained_and_features_are_computed_once(
        self, halves: Split, counted: list[int], tmp_path: Path
    ) -> None:
        frozen = {**SMALL, "freeze": True, "copies": 2, "cache": tmp_path}
        first = fit(halves, **frozen)
        assert len(counted) == 3 * len(halves.train) + len(halves.validation)  # two copies, and plain as distractors
        counted.clear()
        other = fit(halves, loss="proxy_anchor", **frozen)
        assert counted == []
        torch.manual_seed(0)
        start = Embedder("convnet", dim=8, options=SMALL["backbone_options"])
        for trained in (first, other):
            assert all(map(torch.equal, trained.backbone.state_dict().values(), start.backbone.state_dict().values()))
            assert not torch.equal(trained.head.linear.weight, start.head.linear.weight)

    def test_the_score_of_the_head_is_that_of_the_embedder(self, halves: Split, tmp_path: Path) -> None:
        embedder = fit(halves, freeze=True, cache=tmp_path / "cache", folder=tmp_path / "run", **SMALL)
        record = json.loads((tmp_path / "run" / "record.json").read_text())
        recipe = Recipe(**record["recipe"])
        expected = validation_scores(embedder, halves.validation, recipe, halves.distractors).scores
        assert record["validation"]["P@1"] == pytest.approx(expected["P@1"], abs=1e-4)
        again = fit(halves, freeze=True, cache=tmp_path / "cache", folder=tmp_path / "run", resume=True, **SMALL)
        assert same(again, embedder)

    def test_hard_classes_work_on_copies(self, halves: Split, tmp_path: Path) -> None:
        changes = {**SMALL, "classes_per_batch": 2, "sampler": "hard-classes"}
        embedder = fit(halves, freeze=True, copies=3, cache=tmp_path, **changes)
        assert np.isfinite(embedder.encode(halves.validation)).all()


def test_hard_classes_get_embeddings_of_the_training_set(halves: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Dataset] = []
    real = Embedder.encode

    def encode(embedder: Embedder, data: Dataset, **options: Any) -> np.ndarray:
        encoded.append(data)
        return real(embedder, data, **options)

    monkeypatch.setattr(Embedder, "encode", encode)
    fit(halves, **{**SMALL, "sampler": "hard-classes", "classes_per_batch": 2})
    validated = [data for data in encoded if data is halves.validation]
    assert len(validated) == 3
    assert sum(data is halves.train for data in encoded) >= 3


def test_bfloat16_is_close_to_float32(halves: Split, tmp_path: Path) -> None:
    found = {}
    for precision in ("32-true", "bf16-mixed"):
        changes = {**SMALL, "log_every": 5, "learning_rate": 3e-4}
        embedder = fit(halves, folder=tmp_path / precision, precision=precision, **changes)
        assert np.isfinite(embedder.encode(halves.validation)).all()
        lines = map(json.loads, (tmp_path / precision / "metrics.jsonl").read_text().splitlines())
        found[precision] = [line["loss"] for line in lines if "loss" in line]
    assert found["bf16-mixed"] != found["32-true"]
    assert found["bf16-mixed"] == pytest.approx(found["32-true"], rel=0.05)


def test_a_recipe_and_changes_on_top_of_it(halves: Split, run: tuple[Embedder, Path]) -> None:
    changes = {name: value for name, value in SMALL.items() if name != "progress"}
    recipe = Recipe.of({**changes, "steps": 999, "loss": "triplet"})
    assert recipe.training == Settings(steps=999, evaluate_every=10, learning_rate=3e-3)
    assert same(fit(halves, recipe, steps=30, loss="multi_similarity", progress=False), run[0])


def test_a_second_process_in_the_same_folder_is_refused(
    halves: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["vicinal.runs.run"], "PATIENCE", 0)
    left = tmp_path / ".last.ckpt.1.partial"  # of the process at work
    left.touch()
    with FileLock(tmp_path / ".lock"), pytest.raises(InputError, match="Another process is using the run in"):
        fit(halves, folder=tmp_path, resume=True, steps=1, progress=False)
    assert left.exists()
