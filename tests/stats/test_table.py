"""Tables of scores from CSV files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from vicinal.errors import DataError
from vicinal.stats import read_scores

pytestmark = pytest.mark.unit


def written(folder: Path, text: str) -> Path:
    path = folder / "scores.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_wide_and_long_tables_hold_the_same(tmp_path: Path):
    wide = read_scores(written(tmp_path, "dataset,a,b\ncub,0.5,0.6\n\ncars, 0.7 ,0.8\n"))
    long = read_scores(
        written(tmp_path, "\ufeffexperiment,method,score\ncub,a,0.5\ncars,a,0.7\ncub,b,0.6\ncars,b,0.8\n")
    )
    assert wide == long == {"cub": {"a": 0.5, "b": 0.6}, "cars": {"a": 0.7, "b": 0.8}}


def test_empty_cells_are_missing_scores(tmp_path: Path):
    found = read_scores(written(tmp_path, "dataset,a,b\ncub,0.5,\ncars,nan,0.8\n"))
    assert math.isnan(found["cub"]["b"])
    assert math.isnan(found["cars"]["a"])


def test_all_problems_are_told_at_once(tmp_path: Path):
    text = "dataset,a,a\ncub,0.5,0.6\ncars,0.7\nsop,good,0.8\ncub,0.1,0.2\n"
    with pytest.raises(DataError) as caught:
        read_scores(written(tmp_path, text))
    assert caught.value.problems == (
        "the column 'a' is listed twice",
        "row 3 has 2 cells, the header 3",
        "row 5 scores a in cub again",
    )


def test_scores_that_are_no_numbers(tmp_path: Path):
    with pytest.raises(DataError, match=r"row 2: the score of b is 'good', which is not a number"):
        read_scores(written(tmp_path, "dataset,a,b\ncub,0.5,good\n"))


def test_nothing_to_read(tmp_path: Path):
    with pytest.raises(DataError, match="there are no scores"):
        read_scores(written(tmp_path, ""))
    with pytest.raises(DataError, match=r"absent\.csv does not exist"):
        read_scores(tmp_path / "absent.csv")
