"""`vicinal compare`: what its flags ask of a comparison."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from vicinal._util.text import in_words
from vicinal.cli.main import app
from vicinal.embedder import Embedder
from vicinal.leaderboard import leaderboards
from vicinal.leaderboard.text import best_in_words
from vicinal.runs import Journal

SMALL = ["--budget", "4", "-o", "evaluate_every=2", "-o", "classes_per_batch=2", "-o", "dim=8", "--jobs", "1"]
TINY = ["-o", 'backbone_options={"widths": [8], "size": 8}', "--no-progress", "--no-models"]


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_ccp_runs_each_loss_with_and_without(tmp_path: Path) -> None:
    run(
        "digits",
        "--losses",
        "contrastive_c2,triplet+ccp",
        "--ccp",
        "--out",
        tmp_path,
        *SMALL,
        *TINY,
        "-o",
        "validation=0.6",
    )
    found = {record.name: record.recipe["ccp"] for record in Journal(tmp_path).records() if record.role == "run"}
    assert set(found) == {"contrastive_c2", "contrastive_c2+ccp", "triplet+ccp"}
    assert found["contrastive_c2"] is None
    assert found["contrastive_c2+ccp"]["monitor"] == "stale"  # as the code has it
    page = (tmp_path / "report.html").read_text()
    assert "contrastive_c2+ccp" in page


def test_a_single_backbone_may_be_called_one(tmp_path: Path) -> None:
    run("digits", "--losses", "triplet", "--backbone", "convnet", "--no-report", "--out", tmp_path, *SMALL, *TINY)
    assert {record.recipe["backbone"] for record in Journal(tmp_path).records()} == {"convnet"}


def test_json_is_all_of_the_standard_output_and_the_same_leaderboard(tmp_path: Path) -> None:
    flags = ["--losses", "triplet,contrastive", "--rates", "1", "--no-report", "--json", "--out", tmp_path]
    done = CliRunner().invoke(app, ["compare", "digits", *map(str, flags), *SMALL, *TINY, "-o", "validation=0.6"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    (board,) = leaderboards([tmp_path])
    assert told == json.loads(json.dumps(board.to_dict()))
    assert {entry["name"]: entry["mean"] for entry in told["entries"]} == {
        entry.name: entry.mean("MAP@R") for entry in board.entries
    }
    assert {entry["name"] for entry in told["baselines"]} >= {"untrained", "chance"}
    assert (told["verdict"]["winner"], told["failed"]) == (board.entries[0].name, [])
    assert [each["about"] for each in told["advice"]] == ["Use this", "Was training worth it?", "Next"]
    assert f"Runs: {tmp_path}" in done.stderr


@pytest.mark.parametrize("second", ["triplet", "circle,margin", "contrastive,triplet,margin"])
def test_a_folder_has_one_leaderboard_whatever_a_later_call_names(tmp_path: Path, second: str) -> None:
    flags = ["--out", str(tmp_path), "--rates", "1", *SMALL, *TINY[:-1], "-o", "validation=0.6"]
    first = run("digits", "--losses", "contrastive,triplet", *flags)
    terminal = run("digits", "--losses", second, *flags)
    (board,) = leaderboards([tmp_path])
    assert {entry.name for entry in board.entries} == {"contrastive", "triplet", *second.split(",")}
    assert _table(terminal) == _table(str(board)) != []
    if second == "triplet":
        assert _table(terminal) == _table(first)
    page = (tmp_path / "report.md").read_text()
    for entry in board.entries:
        assert f"| {entry.label} |" in page
    for advice in board.advice():
        assert " ".join(str(advice).split()) in " ".join(terminal.split())
    assert best_in_words(board) in Embedder.load(tmp_path / "best").card.description
    assert in_words(best_in_words(board)) in page
    # The same folder, read again.
    again = CliRunner().invoke(app, ["report", str(tmp_path), "--no-progress"], catch_exceptions=False)
    assert again.exit_code == 0
    assert (tmp_path / "report.md").read_text() == page


def _table(text: str) -> list[tuple[str, str]]:
    """The name and the score of every row."""
    return re.findall(r"^ *(\S.*?) {2,}(\d\.\d{4})\b", text, re.MULTILINE)


def test_what_is_skipped_is_said_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in range(6):
        (tmp_path / "photos" / f"class {name}").mkdir(parents=True)
        for number in range(3):
            picture = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            picture.save(tmp_path / "photos" / f"class {name}" / f"{number}.png")
    (tmp_path / "photos" / "class 0" / "bad.png").write_bytes(b"no")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run(tmp_path / "photos", "--losses", "triplet", "--skip-bad", "--out", tmp_path / "runs", *SMALL, *TINY)
    assert len([each for each in said if "skipped 1 of 19 images" in str(each.message)]) == 1
