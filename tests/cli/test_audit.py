from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vicinal._util.files import sealed
from vicinal.cli.main import app
from vicinal.data import digits, split
from vicinal.errors import DataError, InputError, UnknownName
from vicinal.runs._train import fit

run = CliRunner().invoke


def test_a_loss_gets_a_verdict_and_figures(tmp_path: Path) -> None:
    result = run(
        app, ["audit", "metric_cross_entropy", "-o", "p=0.9", "--triples", "1", "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    assert "weak-metric, proved" in result.stdout
    assert "it fails" in result.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["slack-surface.png", "worst-triple.png"]


def test_a_verdict_as_json(tmp_path: Path) -> None:
    arguments = ["audit", "metric_cross_entropy", "-o", "p=0.9", "--triples", "1", "--json", "--out", str(tmp_path)]
    found = json.loads(run(app, arguments).stdout)
    assert (found["kind"], found["proved"]) == ("weak-metric", "weak-metric")
    assert len(found["worst"]["x"]) == 3
    assert "the worst triple breaks the triangle inequality" in found["sentence"]


def test_a_distance_gets_one_too() -> None:
    result = run(app, ["audit", "euclidean", "--domain", "cube", "--dim", "2", "--triples", "1"])
    assert "euclidean on the cube [0, 1]^2: metric, proved" in result.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    halves = split(digits(), "default")
    small: dict[str, Any] = {"backbone_options": {"widths": [8, 16], "size": 16}, "classes_per_batch": 5, "steps": 20}
    folders = {}
    for loss in ("metric_cross_entropy", "contrastive"):
        folders[loss] = tmp_path_factory.mktemp(loss)
        fit(halves, loss=loss, folder=folders[loss], evaluate_every=20, progress=False, **small)
    return folders


@pytest.mark.recipe
def test_a_run_gets_bounds_and_scores(trained: dict[str, Path], tmp_path: Path) -> None:
    arguments = ["audit", str(trained["metric_cross_entropy"]), "--triples", "1", "--items", "200"]
    result = run(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "metric, proved" in result.stdout
    assert "epsilon, largest distance of an item to its label" in result.stdout
    assert "200 compared with each other" in result.stdout
    for row in ("seen classes, label distance", "seen classes, features", "new classes, label distance"):
        assert row in result.stdout
    assert (tmp_path / "pair-distances.png").exists()
    found = json.loads(run(app, [*arguments, "--json"]).stdout)
    assert found["bounds"]["compared"] == 200
    assert {(row["classes"], row["by"]) for row in found["scores"]} >= {("seen", "features"), ("new", "cosine")}


@pytest.mark.recipe
def test_a_run_with_another_loss_gets_the_verdict_alone(trained: dict[str, Path]) -> None:
    result = run(app, ["audit", str(trained["contrastive"]), "--triples", "1"])
    assert "cosine (of contrastive)" in result.stdout
    assert "Bounds are for losses on class probabilities" in result.stdout


@pytest.mark.recipe
def test_wrong_data_of_a_run_is_refused(trained: dict[str, Path], tmp_path: Path) -> None:
    folder = str(trained["metric_cross_entropy"])
    changed = shutil.copytree(folder, tmp_path / "changed")
    record = json.loads((changed / "record.json").read_text())
    del record["sha256"]
    (changed / "record.json").write_bytes(sealed(json.dumps(record | {"split": "0" * 64}).encode()))
    wrong = run(app, ["audit", str(changed), "--triples", "1"]).exception
    assert isinstance(wrong, InputError)
    assert "is not the data that" in str(wrong)
    absent = run(app, ["audit", folder, "--triples", "1", "--data", "no-such-folder"]).exception
    assert isinstance(absent, InputError)
    assert "pass it with --data" in str(absent)
    options = run(app, ["audit", folder, "-o", "k=0.5"]).exception
    assert "A run has its own options" in str(options)


def test_wrong_names_are_explained(tmp_path: Path) -> None:
    unknown = run(app, ["audit", "tripplet"]).exception
    assert isinstance(unknown, UnknownName)
    assert str(unknown).count(" cross_entropy,") == 1
    assert "nothing/ does not exist; give a loss" in str(run(app, ["audit", "nothing/"]).exception)
    empty = run(app, ["audit", str(tmp_path)]).exception
    assert isinstance(empty, DataError)
    assert "holds no finished run" in str(empty)
