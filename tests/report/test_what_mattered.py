"""Chapters on what mattered, on images seen, on classes without a score, and on how to do it again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vicinal._util.files import sealed
from vicinal.leaderboard import Leaderboard, leaderboards
from vicinal.report.blocks import Chart, Code, Prose, Table
from vicinal.report.chapters.costs import repeat
from vicinal.report.chapters.curves import training_curves
from vicinal.report.chapters.equal_conditions import conditions
from vicinal.report.chapters.influences import influence_chapter
from vicinal.report.page import facts
from vicinal.runs import SearchRecord

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, make_comparison: Callable[..., Path]) -> Path:
    made = make_comparison(tmp_path_factory.mktemp("runs"), losses=["proxy_anchor", "triplet"], seeds=[0, 1])
    path = made / "journal.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        del record["sha256"]  # of the line as it was
        record |= {"images": 6400}
        record["per_class"]["MAP@R"][0] = None
    path.write_bytes(b"".join(sealed(json.dumps(record).encode()) + b"\n" for record in records))
    return made


@pytest.fixture
def board(folder: Path) -> Leaderboard:
    return leaderboards([folder])[0]


def test_what_mattered_has_a_bar_for_each_source_and_for_settings_after_a_search(board: Leaderboard) -> None:
    (chapter,) = influence_chapter(board)
    chart = chapter.blocks[1]
    assert isinstance(chart, Chart)
    assert {part.split(":")[0] for part in chart.panels[0].alt.split("; ")} == {
        "loss",
        "seed",
        "test classes",
    }
    importance = {"learning_rate": 0.8, "loss_options.margin": 0.2}
    settings = {"learning_rate": 0.001, "loss_options.margin": 0.3}
    SearchRecord(
        name="triplet", score="MAP@R", scores=(0.0, 0.5, 0.9), importance=importance, given=settings, best=settings
    ).write(board.folders[0])
    (chapter,) = influence_chapter(board)
    said, chart, table = chapter.blocks
    assert isinstance(said, Prose)
    assert said.text.startswith("The choice of settings affects MAP@R most")
    assert isinstance(chart, Chart)
    assert "80 % of it" in chart.panels[0].svg
    assert isinstance(table, Table)
    assert [row[:4] for row in table.rows] == [
        ("triplet", "learning_rate", "80", "0.001"),
        ("", "margin", "20", "0.3"),
    ]


def test_folds_are_not_called_seeds(tmp_path: Path, make_comparison: Callable[..., Path]) -> None:
    made = make_comparison(tmp_path, losses=["proxy_anchor", "triplet"], seeds=[0, 1])
    journal = made / "journal.jsonl"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    for record in records:
        del record["sha256"]
        record["recipe"]["fold"] = record["recipe"].get("training", {}).get("seed", 0)
    journal.write_bytes(b"".join(sealed(json.dumps(record).encode()) + b"\n" for record in records))
    (chapter,) = influence_chapter(leaderboards([made])[0])
    chart = chapter.blocks[1]
    assert isinstance(chart, Chart)
    assert "2 losses, 2 runs of each (seeds and folds), " in chart.caption


def test_curves_are_over_images_seen(board: Leaderboard) -> None:
    (chapter,) = training_curves(board)
    assert isinstance(chapter.blocks[0], Chart)
    assert "at 6,400 images" in chapter.blocks[0].panels[0].alt  # 200 steps of 32


def test_a_class_that_cannot_be_scored_is_counted_once_and_named(board: Leaderboard) -> None:
    scored = len(board.first.classes) - 1
    assert f"{scored} test classes" in facts(board)
    (table,) = [block for block in conditions(board)[0].blocks if isinstance(block, Table) and len(block.head) == 2]
    assert f"{scored}; 1 more class ({board.first.classes[0]}) cannot be scored" in dict(table.rows)["test classes"]


def test_the_command_that_repeats_it_is_shown(board: Leaderboard) -> None:
    codes = [block.text for block in repeat(board)[0].blocks if isinstance(block, Code)]
    assert [text.split()[0] for text in codes] == ["vicinal"]
