from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.report.labels import Box, place_boxes, short_names, word_pieces

pytestmark = pytest.mark.unit
ALIKE = ["great spotted woodpecker, male", "great spotted woodpecker, female", "great spotted cuckoo, male"]


def test_what_tells_names_apart_is_kept() -> None:
    found = short_names(ALIKE, 16)
    assert len(set(found)) == 3
    assert all(len(name) <= 16 for name in found)
    assert found[1].endswith("female")


def test_short_names_stay_and_long_ones_lose_their_end() -> None:
    assert short_names(["crow", "laysan albatross of the sea"], 12) == ["crow", "laysan…"]
    assert short_names([], 12) == []


@settings(deadline=None)
@given(st.lists(st.text("ab…12", min_size=1, max_size=24), max_size=12))
def test_different_names_stay_different_and_short(names: list[str]) -> None:
    found = short_names(names, 8)
    assert len(set(found)) == len(set(names))
    assert all(len(text) <= 8 for text in found)
    assert [text for name, text in zip(names, found, strict=True) if len(name) <= 8 and text != name] == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-20, 500), st.floats(-20, 400), st.floats(20, 140)), min_size=1, max_size=12))
def test_boxes_are_on_the_drawing_and_apart(middles: list[tuple[float, float, float]]) -> None:
    found = place_boxes([Box(x, y, width, 14) for x, y, width in middles], 480, 390)
    boxes = [box for box in found if box is not None]
    assert len(boxes) == len(middles)  # there is room for all
    assert not any(first.overlaps(second) for first, second in combinations(boxes, 2))
    for box in boxes:
        assert box.width / 2 - 1e-9 <= box.x <= 480 - box.width / 2 + 1e-9
        assert 7 - 1e-9 <= box.y <= 383 + 1e-9


def test_boxes_that_are_free_stay() -> None:
    wanted = [Box(50, 50, 40, 12), Box(50, 80, 40, 12)]
    assert place_boxes(wanted, 100, 100) == wanted


def test_boxes_without_room_are_left_out() -> None:
    assert place_boxes([Box(10, 10, 20, 20)] * 3, 20, 20) == [Box(10, 10, 20, 20), None, None]


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.floats(0, 480), st.floats(0, 390), st.floats(20, 140)), min_size=1, max_size=8),
    st.lists(st.tuples(st.floats(0, 480), st.floats(0, 390)), min_size=1, max_size=120),
)
def test_boxes_cover_no_points(middles: list[tuple[float, float, float]], points: list[tuple[float, float]]) -> None:
    placed = place_boxes([Box(x, y, width, 14) for x, y, width in middles], 480, 390, points=points, clearance=3)
    for box in filter(None, placed):
        assert not [
            point
            for point in points
            if abs(point[0] - box.x) < box.width / 2 + 3 and abs(point[1] - box.y) < box.height / 2 + 3
        ]


def test_names_break_between_words_only() -> None:
    assert word_pieces("staffordshire_bull-terrier") == ["staffordshire_", "bull-", "terrier"]
    assert word_pieces("MaineCoonXLCat") == ["Maine", "Coon", "XL", "Cat"]
    assert word_pieces("Siamese cat") == ["Siamese cat"]  # spaces break by themselves
    assert word_pieces("__init__") == ["__", "init__"]
    assert word_pieces("") == [""]
