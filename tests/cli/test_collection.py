"""duplicates, mislabelled, outliers, clusters: from data with a model, a file of embeddings, and an index."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner

import vicinal as vc
from vicinal.cli.main import app
from vicinal.errors import DataError, InputError


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of drawn pictures; one is there twice by its bytes, one also in another size."""
    root = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (root / label).mkdir(parents=True)
        for number in range(3):
            image = Image.new("L", (64, 64))
            pen = ImageDraw.Draw(image)
            for _ in range(12):
                left, top, wide, high, grey = rng.integers(0, 64, 5).tolist()
                pen.rectangle((left, top, left + wide, top + high), fill=4 * grey)
            image.save(root / label / f"{number}.png")
    (root / "dog" / "copy.png").write_bytes((root / "cat" / "0.png").read_bytes())
    with Image.open(root / "dog" / "1.png") as image:
        image.resize((96, 96), Image.Resampling.BICUBIC).save(root / "dog" / "larger.png")
    return root


@pytest.fixture
def embeddings(tmp_path: Path) -> Path:
    """Three clouds; item 5 has a wrong label, item 7 is far away, items 20 and 21 are the same but for their role."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 20)
    rows = np.eye(5)[labels] + 0.05 * rng.normal(size=(60, 5))
    rows[7], rows[21] = [0, 0, 0, 0, 1], rows[20]
    labels[5] = 2
    roles = np.array(["train"] * 60)
    roles[21] = "test"
    path = tmp_path / "e.npz"
    names = np.array(["ant", "bee", "cow"])
    np.savez(path, embeddings=rows, labels=labels, class_names=names, metadata_role=roles)
    return path


def test_duplicates_of_a_folder_without_a_model(photos: Path, tmp_path: Path) -> None:
    result = run("duplicates", str(photos), "--out", str(tmp_path / "d.csv"), "--sheet", str(tmp_path / "d.png"))
    assert result.exit_code == 0, result.output
    assert "identical files, with different labels" in result.output
    assert "2 groups of duplicates among 8 items; 2 could be removed." in result.output
    assert "0 leak between training and test, 1 have different labels." in result.output
    groups = {row["item"]: row["group"] for row in rows_of(tmp_path / "d.csv")}
    assert groups[str(photos / "cat" / "0.png")] == groups[str(photos / "dog" / "copy.png")]
    assert groups[str(photos / "dog" / "1.png")] == groups[str(photos / "dog" / "larger.png")]
    with Image.open(tmp_path / "d.png") as sheet:
        assert sheet.height > 2 * 128


def test_duplicates_say_what_was_not_compared(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.data.lookalikes.MOST", 2)
    (photos / "dog" / "copy.png").unlink()
    result = run("duplicates", str(photos))
    assert "Note: Pictures were compared by their bytes alone, not by their looks" in result.output
    assert "No duplicates found so far among 7 items." in result.output
    assert "Pictures were compared by their bytes alone" in run("duplicates", str(photos), "--json").stderr
    rows = np.random.default_rng(0).normal(size=(9, 3))
    with vc.Index.of_vectors(tmp_path / "far.index", rows, distance="euclidean"):
        pass
    result = run("duplicates", str(tmp_path / "far.index"))
    assert "Note: Embeddings were not compared" in result.output
    assert "No duplicates found so far" in result.output
    assert "No duplicates among" in run("duplicates", str(tmp_path / "far.index"), "--threshold=-1e-6").output


def test_pictures_in_memory_need_a_model_to_be_compared() -> None:
    with pytest.raises(InputError, match="--model"):
        CliRunner().invoke(app, ["duplicates", "digits"], catch_exceptions=False)


def test_duplicates_of_embeddings_leaks_first(embeddings: Path) -> None:
    result = run("duplicates", str(embeddings), "--json", "--threshold", "0.9999999")
    (group,) = [json.loads(line) for line in result.output.splitlines()]
    assert group["indices"] == [20, 21]
    assert group["leaks"]
    assert group["kinds"] == ["embedding"]
    assert "LEAK between test and train" in run("duplicates", str(embeddings)).output


def test_an_index_is_read_with_its_files(photos: Path, tmp_path: Path) -> None:
    model = vc.Embedder("convnet", dim=8)
    with vc.Index.build(tmp_path / "photos.index", model, photos):
        pass
    result = run("duplicates", str(tmp_path / "photos.index"), "--json", "--threshold", "0.99999999")
    groups = [json.loads(line) for line in result.output.splitlines()]
    assert groups[0]["labels"] == ["cat", "dog"]
    assert groups[0]["kinds"] == ["bytes", "embedding"]
    (photos / "dog" / "copy.png").unlink()  # what has gone looks like nothing; its embedding is still there
    result = run("duplicates", str(tmp_path / "photos.index"), "--json", "--threshold", "0.99999999")
    assert json.loads(result.output.splitlines()[0])["kinds"] == ["embedding"]


def test_mislabelled(embeddings: Path, tmp_path: Path) -> None:
    result = run("mislabelled", str(embeddings), "--out", str(tmp_path / "m.csv"), "--sheet", str(tmp_path / "m.png"))
    assert result.exit_code == 0, result.output
    assert "cow\t-> ant\t5\n" in result.output
    assert "1 of 60 labels is suspicious." in result.output
    (row,) = rows_of(tmp_path / "m.csv")
    assert (row["item"], row["label"], row["proposed"]) == ("5", "cow", "ant")
    with Image.open(tmp_path / "m.png") as sheet:
        assert sheet.width > 11 * 128
    suspect = json.loads(run("mislabelled", str(embeddings), "--json").output)
    assert suspect["item"] == "5"
    assert len(suspect["own"]) == len(suspect["other"]) == 5


def test_outliers(embeddings: Path, tmp_path: Path) -> None:
    result = run("outliers", str(embeddings), "--out", str(tmp_path / "o.csv"), "--sheet", str(tmp_path / "o.png"))
    assert result.exit_code == 0, result.output
    assert rows_of(tmp_path / "o.csv")[0]["item"] == "7"
    assert (tmp_path / "o.png").is_file()
    assert json.loads(run("outliers", str(embeddings), "--json").output.splitlines()[0])["item"] == "7"


def test_clusters_get_names(embeddings: Path, tmp_path: Path) -> None:
    names, out, sheet = tmp_path / "names.csv", tmp_path / "labelled.csv", tmp_path / "c.png"
    result = run("clusters", str(embeddings), "--names", str(names), "--sheet", str(sheet))
    assert result.exit_code == 0, result.output
    assert "3 clusters of 60 items" in result.output
    rows = rows_of(names)
    assert {row["name"] for row in rows} == {""}
    names.write_text(names.read_text().replace(f"{rows[0]['example']},\n", f"{rows[0]['example']},wren\n", 1))
    run("clusters", str(embeddings), "--names", str(names), "--out", str(out))
    labelled = rows_of(out)
    assert len(labelled) == int(rows[0]["items"])
    assert {row["label"] for row in labelled} == {"wren"}
    names.write_text("cluster,items,example,name\n0,5,elsewhere,x\n")
    refused = run("clusters", str(embeddings), "--names", str(names), "--out", str(out))
    assert isinstance(refused.exception, DataError)
    assert "other clusters" in str(refused.exception)
    header = "cluster,items,example,name"
    for content in (b"caf\xe9", b"", b"a,b\n", f"{header}\n0,5\n".encode(), f"{header}\nx,5,e,n\n".encode()):
        names.write_bytes(content)  # refused before the work, whatever is wrong with it
        assert isinstance(run("clusters", str(tmp_path / "not there"), "--names", str(names)).exception, DataError)
    assert "a folder" in str(run("clusters", str(embeddings), "--names", str(tmp_path)).exception)


def test_what_is_missing_is_said(photos: Path, embeddings: Path, tmp_path: Path) -> None:
    assert "--model" in str(run("mislabelled", str(photos)).exception)
    assert isinstance(run("outliers", str(embeddings), "--model", "m").exception, InputError)
    assert ".csv" in str(run("outliers", str(embeddings), "--out", "o.txt").exception)
    np.savez(tmp_path / "bare.npz", embeddings=np.eye(4))
    assert "no labels" in str(run("mislabelled", str(tmp_path / "bare.npz")).exception)


def test_data_with_a_model(photos: Path, tmp_path: Path) -> None:
    vc.Embedder("convnet", dim=8).save(tmp_path / "model")
    result = run("outliers", str(photos), "--model", str(tmp_path / "model"), "--no-progress", "--least", "-100")
    assert result.exit_code == 0, result.output
    assert "8 of 8 items are outliers." in result.output
