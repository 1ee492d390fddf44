from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vicinal.data import Dataset
from vicinal.errors import InputError


def vectors(n: int = 4) -> Dataset:
    return Dataset(np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 2, ("a", "b"), name="toy")


def test_kinds() -> None:
    labels = np.zeros(2, dtype=np.int64)
    assert vectors().kind == "vectors"
    assert Dataset(("x.jpg", "y.jpg"), labels, ("a",)).kind == "paths"
    assert Dataset(np.zeros((2, 4, 4), np.uint8), labels, ("a",)).kind == "images"
    assert Dataset(np.zeros((2, 4, 4, 3), np.uint8), labels, ("a",)).kind == "images"


def test_empty() -> None:
    empty = Dataset((), np.zeros(0, dtype=np.int64), ())
    assert len(empty) == 0
    assert len(empty.classes) == 0
    assert len(empty.hash()) == 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.array([0, 1])}, "4 items, labels .2,."),
        ({"labels": np.array([0, 1, 2, 1])}, r"0\.\.1.*got 0\.\.2"),
        ({"labels": np.array([0, 1, -1, 1])}, r"got -1\.\.1"),
        ({"class_names": ("a", "a")}, "different; repeated: a"),
        ({"roles": np.array(["train"])}, "one entry per item"),
        ({"labels": np.ones((4, 2), dtype=np.int64)}, "Sets of labels are booleans"),
        ({"roles": np.array(["train", "train", "tset", "test"])}, "got tset"),
        ({"boxes": np.zeros((4, 4))}, "belong to image files"),
        ({"items": np.zeros((4, 3), dtype=np.int64)}, "items must be.*got int64"),
        ({"items": np.zeros((4, 3, 8, 8), dtype=np.uint8)}, "Channels come last"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(vectors(), **change)


def test_subset_keeps_labels_and_of_classes_makes_new_ones() -> None:
    data = Dataset(np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 2, 1, 0]), ("a", "b", "c"))
    part = data.subset([4, 0])
    assert part.labels.tolist() == [1, 0]
    assert part.class_names == data.class_names
    assert part.items.tolist() == [[8, 9], [0, 1]]
    chosen = data.of_classes([2, 0])
    assert chosen.class_names == ("c", "a")
    assert chosen.labels.tolist() == [1, 0, 0, 1]
    assert chosen.items[:, 0].tolist() == [0, 4, 6, 10]
    with pytest.raises(InputError, match=r"no such classes: \[3\]"):
        data.of_classes([3])


def test_roles_follow_their_items() -> None:
    data = replace(vectors(), roles=np.array(["train", "query", "train", "gallery"]))
    assert data.with_role("query", "gallery").items[:, 0].tolist() == [2, 6]
    assert data.subset([3]).roles.tolist() == ["gallery"]
    with pytest.raises(InputError, match="no roles"):
        vectors().with_role("train")


def test_images_open_in_their_own_mode_and_in_rgb(tmp_path: Path) -> None:
    Image.new("L", (6, 4), 7).save(tmp_path / "grey.png")
    files = Dataset((str(tmp_path / "grey.png"),), np.zeros(1, dtype=np.int64), ("a",))
    assert files.open(0).mode == "L"
    assert files.image(0).getpixel((0, 0)) == (7, 7, 7)
    arrays = Dataset(np.full((1, 4, 6), 7, np.uint8), np.zeros(1, dtype=np.int64), ("a",))
    assert arrays.image(0).size == (6, 4)
    with pytest.raises(InputError, match="feature vectors"):
        vectors().open(0)


def test_a_box_crops_and_a_row_of_nan_does_not(tmp_path: Path) -> None:
    image = Image.new("RGB", (10, 8))
    image.putpixel((3, 2), (255, 0, 0))
    image.save(tmp_path / "a.png")
    paths = (str(tmp_path / "a.png"),) * 2
    boxes = np.array([[3, 2, 9, 7], [np.nan] * 4])
    data = Dataset(paths, np.zeros(2, dtype=np.int64), ("a",), boxes=boxes)
    assert data.image(0).size == (6, 5)
    assert data.image(0).getpixel((0, 0)) == (255, 0, 0)
    assert data.image(1).size == (10, 8)


def test_hash_of_files_is_of_their_content(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir()
    for name in "ab":
        (first / name).write_bytes(name.encode() * 9)
    shutil.copytree(first, second)
    one, two = (Dataset((str(f / "a"), str(f / "b")), np.array([0, 1]), ("a", "b")) for f in (first, second))
    assert one.hash() == two.hash()
    (second / "b").write_bytes(b"b" * 8 + b"c")
    assert one.hash() != two.hash()


CHANGES = {
    "an item": lambda d: replace(d, items=d.items + np.eye(len(d), 2)),
    "type of items": lambda d: replace(d, items=d.items.astype(np.float32)),
    "labels": lambda d: replace(d, labels=1 - d.labels),
    "order": lambda d: d.subset(np.arange(len(d))[::-1]),
    "a class name": lambda d: replace(d, class_names=("a", "c")),
    "roles": lambda d: replace(d, roles=np.array(["train"] * len(d))),
    "fewer items": lambda d: d.subset(np.arange(len(d) - 1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_hash_changes_with_the_content(change) -> None:
    assert change(vectors()).hash() != vectors().hash()


def test_hash_does_not_depend_on_the_name_or_the_notes() -> None:
    assert replace(vectors(), name="other", notes=("read",)).hash() == vectors().hash()


@given(st.lists(st.text(max_size=3), min_size=2, max_size=2, unique=True), st.data())
@settings(max_examples=50, deadline=None)
def test_no_two_class_names_hash_alike(names: list[str], draw: st.DataObject) -> None:
    """Moving a letter from one name to the next must show."""
    others = draw.draw(st.lists(st.text(max_size=3), min_size=2, max_size=2, unique=True))
    one, two = (replace(vectors(), class_names=tuple(n)) for n in (names, others))
    assert (one.hash() == two.hash()) == (names == others)


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_subset_of_subset_is_a_subset(draw: st.DataObject) -> None:
    data = vectors(8)
    outer = draw.draw(st.lists(st.integers(0, 7), min_size=1, max_size=8))
    inner = draw.draw(st.lists(st.integers(0, len(outer) - 1), max_size=8))
    assert data.subset(outer).subset(inner).hash() == data.subset([outer[i] for i in inner]).hash()


def test_photographs_are_turned_as_their_camera_says(tmp_path):
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[:, :3, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise to see it upright
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    data = Dataset(items=(str(tmp_path / "turned.png"),), labels=np.array([0]), class_names=("a",), name="photos")
    assert data.image(0).size == (4, 6)
    assert data.image(0).getpixel((0, 0)) == (255, 0, 0)
    assert data.image(0).getpixel((0, 5)) == (0, 0, 0)
