from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from vicinal.cli.data import data, findings
from vicinal.data import digits, find_lookalikes, folder, lookalikes
from vicinal.data.lookalikes import NOT_COMPARED
from vicinal.errors import DataError, UnknownName

app = typer.Typer()
app.command()(data)


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number, name in enumerate(["cat", "cat", "dog"]):
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10 + number, 20), "red").save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_summary_of_a_folder(photos: Path) -> None:
    result = run(str(photos))
    assert result.exit_code == 0, result.output
    for words in ("photos", "3 images", "1 to 2, median 2", "10-12 x 20", "1 class "):
        assert words in result.output


def test_summary_of_an_embedded_set() -> None:
    result = run("digits")
    assert "1,797 images" in result.output
    assert "174 to 183, median 180" in result.output
    assert "8 x 8" in result.output


def test_roles_are_counted(tmp_path: Path) -> None:
    roles = np.array(["train", "train", "query", "gallery"])
    np.savez(tmp_path / "f.npz", X=np.eye(4), y=[0, 1, 2, 2], roles=roles)
    assert "train 2 (2 classes), query 1 (1 class)" in run(str(tmp_path / "f.npz")).output


def test_bad_files_stop_it_or_are_skipped(photos: Path) -> None:
    (photos / "dog" / "3.png").write_text("no image")
    stopped = run(str(photos))
    assert isinstance(stopped.exception, DataError)
    assert "3 images" in stopped.output  # what is left is told all the same
    command = f"vicinal compare {photos} --out runs/which --skip-bad"
    assert f"Next: {command}" in stopped.output
    assert json.loads(run(str(photos), "--json").output)["next"] == command
    assert "1 class has only one item and cannot be scored: dog" in stopped.output
    result = run(str(photos), "--skip-bad")
    assert result.exit_code == 0
    assert "Note: skipped 1 of 4 images" in result.output
    assert "unreadable (UnidentifiedImageError)" in result.output


def test_decoding_finds_more(photos: Path) -> None:
    path = photos / "dog" / "2.png"
    path.write_bytes(path.read_bytes()[:-30])
    assert run(str(photos), "--check", "header").exit_code == 0
    assert isinstance(run(str(photos)).exception, DataError)


def test_the_same_picture_is_found_by_bytes_and_by_eye(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare, calls = lookalikes.lookalike_files, []
    monkeypatch.setattr(lookalikes, "lookalike_files", lambda *given: calls.append(given) or compare(*given))
    noise = np.random.default_rng(0).integers(0, 255, (6, 6, 3), dtype=np.uint8)
    picture = Image.fromarray(noise).resize((90, 90))
    picture.save(photos / "cat" / "one.png")
    picture.save(photos / "dog" / "two.png")
    picture.resize((70, 70)).save(photos / "dog" / "small.jpg", quality=80)
    text = " ".join(run(str(photos)).output.split())
    assert "Note: the same image in two classes:" in text
    assert "nearly the same image in two classes:" in text
    assert "LEAK" in text  # train has cats, the test dogs
    assert "0.png" not in text  # plain colours look like anything, and are not compared by eye
    assert len(calls) == 1  # for notes and split


def test_it_says_which_split_comes_of_it_and_what_to_type(photos: Path) -> None:
    told = json.loads(run(str(photos), "--json").output)
    assert told["summary"]["split"].startswith("train cat (1 class, 2 items); test dog (1 class, 1 item)")
    assert told["next"] == f"vicinal compare {photos} --out runs/which"
    assert told["problems"] == []


def test_nothing_is_next_where_it_would_fail(photos: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", X=np.eye(4), y=[0, 1, 0, 1], roles=np.array(["train", "train", "test", "test"]))
    result = run(str(tmp_path / "f.npz"))
    assert "roles on both sides of the split" in " ".join(result.output.replace("│", "").split())
    assert "Next" not in result.output
    (tmp_path / "list.csv").write_text("path,label\ncat/0.png,cat\ndog/2.png,dog\n")
    told = json.loads(run(str(tmp_path / "list.csv"), "--root", str(photos), "--json").output)
    assert told["summary"]["split"].startswith("train cat")
    assert told["next"] is None  # compare has no --root, and the folder itself holds other images


def test_preview(photos: Path, tmp_path: Path) -> None:
    result = run(str(photos), "--preview", str(tmp_path / "sheet.png"))
    assert "Wrote" in result.output
    sheet = Image.open(tmp_path / "sheet.png")
    assert sheet.size == (12 * 96, 2 * 96)
    assert sheet.getpixel((48, 48)) == (255, 0, 0)


def test_unknown_names() -> None:
    assert isinstance(run("glyps").exception, UnknownName)


def test_pictures_that_were_not_looked_at_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.data.lookalikes.MOST", 1)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            pixels = np.random.default_rng(number + 10 * ord(name)).integers(0, 255, (9, 9), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    photos = folder(tmp_path)
    assert findings(photos, find_lookalikes(photos)) == [NOT_COMPARED]
    assert findings(digits(), find_lookalikes(digits())) == []
