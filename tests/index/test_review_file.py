"""Decisions: a CSV that only grows, that a spreadsheet can open safely, and that reads back as it was meant."""

from __future__ import annotations

import csv

import pytest

from vicinal.errors import DataError, InputError
from vicinal.index.item import Item
from vicinal.index.review import Review, ReviewFile

pytestmark = pytest.mark.unit


def test_the_last_decision_on_an_item_counts(tmp_path) -> None:
    reviews = ReviewFile(tmp_path / "review.csv")
    assert reviews.latest() == {}
    reviews.add(Item(1, "/a/1.png", "wren"), Review("1", "keep", queue="mislabelled"))
    reviews.add(Item(2, None, None), Review("2", "remove"))
    reviews.add(Item(1, "/a/1.png", "wren"), Review("1", "relabel", " robin "))
    assert reviews.latest() == {"1": Review("1", "relabel", "robin"), "2": Review("2", "remove")}
    rows = list(csv.reader((tmp_path / "review.csv").read_text().splitlines()))
    assert rows[0] == ["time", "id", "path", "label", "decision", "new_label", "queue"]
    assert [row[1:] for row in rows[1:]] == [
        ["1", "/a/1.png", "wren", "keep", "", "mislabelled"],
        ["2", "", "", "remove", "", ""],
        ["1", "/a/1.png", "wren", "relabel", "robin", ""],
    ]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", '=cmd|"/c calc"!A1', 'a,"b"\nc', "'quoted", "ünï"])
def test_cells_are_no_formulas_and_read_back(tmp_path, text: str) -> None:
    reviews = ReviewFile(tmp_path / "review.csv")
    reviews.add(Item(text, text, text), Review(text, "relabel", text))
    with reviews.path.open(newline="", encoding="utf-8") as file:
        _, row = csv.reader(file)
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)
    assert reviews.latest() == {text: Review(text, "relabel", text.strip())}


def test_a_new_label_is_needed_to_relabel(tmp_path) -> None:
    reviews = ReviewFile(tmp_path / "review.csv")
    with pytest.raises(InputError, match="new label"):
        reviews.add(Item(1), Review("1", "relabel", "  "))
    assert not reviews.path.exists()
    assert reviews.content().startswith(b"time,id,path")


def test_a_place_that_cannot_be_written_says_so(tmp_path) -> None:
    with pytest.raises(DataError, match=r"review\.csv could not be written"):
        ReviewFile(tmp_path / "gone" / "review.csv").add(Item(1), Review("1", "keep"))


def test_lines_that_somebody_broke_are_passed_over(tmp_path) -> None:
    reviews = ReviewFile(tmp_path / "review.csv")
    reviews.add(Item(1), Review("1", "keep"))
    with reviews.path.open("a") as file:
        file.write("half a row\n2026,2,,,shout,,\n")
    assert reviews.latest() == {"1": Review("1", "keep")}
