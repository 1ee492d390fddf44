"""`vicinal embed`: what it reads, what it writes, what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from vicinal.cli.embed import embed, open_inputs
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError

pytestmark = pytest.mark.unit


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16}).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("b/1.png", "a/1.png", "a/2.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 20), dtype=np.uint8)).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def run(*arguments):
    """Run the verb as the command line does; give back its errors as they are."""
    app = typer.Typer()
    app.command()(embed)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return re.sub(r"\s+", " ", result.output), result.exit_code


def read(path):
    with np.load(path, allow_pickle=False) as content:
        return dict(content)


def test_a_folder_of_classes_gives_embeddings_labels_and_paths(model, photos, tmp_path):
    output, code = run(model, photos, "--out", tmp_path / "new" / "e.npz")
    assert code == 0
    assert "3 embeddings of dimension 3" in output
    found = read(tmp_path / "new" / "e.npz")
    assert found.keys() == {"embeddings", "paths", "labels", "class_names", "embedder", "distance"}
    assert str(found["embedder"]) == Embedder.load(model).identity()
    assert str(found["distance"]) == "cosine"
    assert found["paths"].tolist() == [str(photos / name) for name in ("a/1.png", "a/2.png", "b/1.png")]
    assert found["labels"].tolist() == [0, 0, 1]
    assert found["class_names"].tolist() == ["a", "b"]
    assert found["embeddings"].dtype == np.float32
    expected = Embedder.load(model).encode(found["paths"].tolist())
    assert np.array_equal(found["embeddings"], expected)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["e.npz"]


def test_json_says_what_was_written(model, photos, tmp_path):
    text, code = run(model, photos, "--out", tmp_path / "out.npz", "--json", "--no-progress")
    told = json.loads(text)
    assert code == 0
    assert told["items"] == len(np.load(tmp_path / "out.npz")["embeddings"])
    assert (told["dim"], told["labelled"], told["distance"]) == (3, True, "cosine")
    assert told["model"] == Embedder.load(model).identity()


def test_a_flat_folder_has_no_labels(model, photos, tmp_path):
    run(model, photos / "a", "--out", tmp_path / "e.npz", "--no-progress")
    found = read(tmp_path / "e.npz")
    assert found.keys() == {"embeddings", "paths", "embedder", "distance"}
    assert found["paths"].tolist() == [str(photos / "a" / "1.png"), str(photos / "a" / "2.png")]


def test_a_list_names_files_beside_itself_in_its_order(model, photos, tmp_path):
    (photos / "list.txt").write_text("b/1.png\n\na/1.png\n")
    run(model, photos / "list.txt", "--out", tmp_path / "e.npz")
    found = read(tmp_path / "e.npz")
    assert found.keys() == {"embeddings", "paths", "embedder", "distance"}
    assert found["paths"].tolist() == [str(photos / "b/1.png"), str(photos / "a/1.png")]
    (photos / "list.txt").write_text("b/1.png\tsparrow\na/1.png\tcrow\n")
    run(model, photos / "list.txt", "--out", tmp_path / "e.npz")
    found = read(tmp_path / "e.npz")
    assert [found["class_names"][label] for label in found["labels"]] == ["sparrow", "crow"]


def test_half_a_list_of_labels_is_refused(photos):
    (photos / "list.txt").write_text("b/1.png\tsparrow\na/1.png\n")
    with pytest.raises(DataError, match="must have a label after a tab, or none"):
        open_inputs(str(photos / "list.txt"))


def test_arrays_with_and_without_labels(model, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 20, 20), dtype=np.uint8)
    np.save(tmp_path / "x.npy", images)
    np.savez(tmp_path / "x.npz", X=images, y=np.array(["q", "p", "p", "q"]))
    run(model, tmp_path / "x.npy", "--out", tmp_path / "1.npz")
    run(model, tmp_path / "x.npz", "--out", tmp_path / "2.npz")
    first, second = read(tmp_path / "1.npz"), read(tmp_path / "2.npz")
    assert first.keys() == {"embeddings", "embedder", "distance"}
    assert second["labels"].tolist() == [1, 0, 0, 1]
    assert np.array_equal(first["embeddings"], second["embeddings"])


def test_a_known_set_goes_by_its_name(model, tmp_path):
    run(model, "digits", "--out", tmp_path / "e.npz", "--batch-size", "256")
    assert read(tmp_path / "e.npz")["embeddings"].shape == (1797, 3)


def test_bad_files_stop_it_unless_they_are_to_be_skipped(model, photos, tmp_path):
    whole = (photos / "a" / "1.png").read_bytes()
    (photos / "a" / "cut.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.png cannot be read as an image"):
        run(model, photos, "--out", tmp_path / "e.npz")
    assert not (tmp_path / "e.npz").exists()
    with pytest.warns(UserWarning, match=r"skipped 1 of 4 images; the first problem: .*cut\.png"):
        run(model, photos, "--out", tmp_path / "e.npz", "--skip-bad")
    assert len(read(tmp_path / "e.npz")["embeddings"]) == 3


def test_pickled_or_absent_arrays_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"x\.npy is not a file of arrays"):
        open_inputs(str(tmp_path / "x.npy"))
    with pytest.raises(DataError, match=r"y\.npy does not exist"):
        open_inputs(str(tmp_path / "y.npy"))
    np.savez(tmp_path / "z.npz", vectors=np.ones(3))
    with pytest.raises(DataError, match="it contains: vectors"):
        open_inputs(str(tmp_path / "z.npz"))


def test_the_output_must_be_an_npz_file(model, photos):
    with pytest.raises(InputError, match=r"must end in \.npz; got e\.csv"):
        run(model, photos, "--out", "e.csv")


def test_the_engine_is_named_and_the_former_flag_has_no_effect(model, photos, tmp_path):
    output, code = run(model, photos, "--out", tmp_path / "plain.npz", "--engine", "eager", "--channels-last")
    assert code == 0
    assert "--channels-last has no effect" in output
    assert "engine eager" in output
    output, _ = run(model, photos, "--out", tmp_path / "fast.npz", "--engine", "onnxruntime")
    assert "engine onnxruntime" in output
    plain, fast = (read(tmp_path / name)["embeddings"] for name in ("plain.npz", "fast.npz"))
    np.testing.assert_allclose(fast, plain, atol=1e-5)
    output, code = run(model, photos, "--engine", "onnx")
    assert code != 0
    assert run("--help")[0].count("--channels-last") == 0
