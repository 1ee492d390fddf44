"""`vicinal evaluate MODEL DATA`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import vicinal as vc
from vicinal.cli.main import app
from vicinal.errors import InputError
from vicinal.runs.run import RECALL_AT

pytestmark = pytest.mark.recipe


def run(*arguments):
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--no-progress"])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    vc.Embedder("convnet", dim=4, options={"widths": [4], "size": 8}).save(folder / "model")
    return folder


def test_scores_of_a_model_equal_those_in_python(model, tmp_path):
    done = run(model / "model", "digits", "--protocol", "reality-check", "--out", tmp_path / "scores.json")
    assert done.exit_code == 0, done.output
    test = vc.split(vc.data.digits(), "default").test
    expected = vc.evaluate(vc.Embedder.load(model / "model"), test)
    found = json.loads((tmp_path / "scores.json").read_text())["overall"]
    assert found["MAP@R"] == pytest.approx(expected["MAP@R"], abs=1e-12)
    assert f"{len(test):,} queries scored" in done.output


def test_recalls_are_those_of_the_dataset_or_those_that_are_asked_for(model, monkeypatch):
    monkeypatch.setitem(RECALL_AT, "digits", (1, 30))
    assert "R@30" in (known := run(model, "digits", "--draws", "0").output)
    assert "R@2" not in known
    assert "R@2" in run(model, "digits", "--draws", "0", "--k", "1,2").output


def test_a_run_folder_stands_for_its_model_and_all_items_are_scored_without_a_protocol(model):
    assert "1,797 queries" in run(model, "digits", "--workers", "0").output


def test_queries_are_searched_in_the_gallery(model, tmp_path):
    lines = ["path,label,split,is_query,is_gallery"]
    for number in range(8):
        Image.fromarray(np.full((8, 8), 30 * number, np.uint8)).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{number % 2},test,{number < 2},{number >= 2}")
    (tmp_path / "items.csv").write_text("\n".join(lines) + "\n")
    assert "2 queries scored against 6 references" in run(model, tmp_path / "items.csv").output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{model}"], "name the dataset to score its model on"),
        (["{model}", "digits", "--labels", "x.txt"], "are for files of embeddings"),
        (["{model}/model/config.json", "digits"], "config.json is not the folder of one"),
        (["nowhere", "digits"], "nowhere does not exist; give the folder of a model"),
        (["x.npz", "--workers", "2"], "x.npz is not the folder of one"),
    ],
)
def test_wrong_arguments(model, arguments, says):
    with pytest.raises(InputError, match=says):
        run(*(argument.format(model=model) for argument in arguments))


def test_a_model_in_the_ball_is_scored_by_distance(tmp_path):
    model = vc.Embedder("convnet", dim=4, normalisation="ball", options={"widths": [4], "size": 8})
    model.save(tmp_path / "model")
    run(tmp_path, "digits", "--out", tmp_path / "scores.json")
    found = json.loads((tmp_path / "scores.json").read_text())
    assert found["settings"]["distance"] == "euclidean"
    by_distance = vc.evaluate(model, vc.data.digits())
    assert found["overall"]["MAP@R"] == pytest.approx(by_distance["MAP@R"], abs=1e-12)
