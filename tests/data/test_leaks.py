"""Pictures on both sides of a split are found; those on one side are nobody's worry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal.data import arrays, digits, find_leaks, folder, leak_note, split


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        for number in range(3):
            noise = Image.fromarray(rng.integers(0, 255, (6, 6), dtype=np.uint8)).resize((60, 60))
            noise.save(tmp_path / name / f"{number}.png")
    return tmp_path


def test_no_leak(photos: Path) -> None:
    (photos / "d" / "again.png").write_bytes((photos / "d" / "0.png").read_bytes())
    assert leak_note(split(folder(photos))) is None


@pytest.mark.parametrize("kind", ["bytes", "looks"])
def test_a_leak(photos: Path, kind: str) -> None:
    one, other = photos / "a" / "0.png", photos / "d" / "other.png"
    if kind == "bytes":
        other.write_bytes(one.read_bytes())
    else:
        with Image.open(one) as image:
            image.resize((80, 80)).save(other)
    divided = split(folder(photos))
    assert find_leaks(divided) == [(str(one), str(other))]
    note = leak_note(divided)
    assert note is not None
    assert note.startswith("LEAK: a picture is on both sides of the split")


def test_items_in_memory() -> None:
    assert find_leaks(split(digits())) == []
    rows = np.random.default_rng(0).normal(size=(16, 12)).astype(np.float32)
    labels = np.repeat(np.arange(4), 4)
    divided = split(arrays(rows, labels))
    assert leak_note(divided) is None
    rows[14] = rows[2]  # of the first class and of the last
    rows[1] = rows[13] = 0.5  # which says nothing
    leaks = find_leaks(split(arrays(rows, labels)))
    assert leaks == [("item 2 of train", "item 6 of test")]
    note = leak_note(split(arrays(rows, labels)))
    assert note is not None
    assert note.startswith("LEAK: an item is on both sides of the split, the same in every number")


def test_what_was_not_looked_at_is_said(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.data.lookalikes.MOST", 3)
    note = leak_note(split(folder(photos)))
    assert note is not None
    assert note.startswith("The split was checked for files that are the same alone: Pictures were compared by their")
    (photos / "d" / "other.png").write_bytes((photos / "a" / "0.png").read_bytes())
    note = leak_note(split(folder(photos)))
    assert note is not None
    assert note.startswith("LEAK")
    assert "There may be more: Pictures were compared by their bytes alone" in note
    assert leak_note(split(digits())) is None
