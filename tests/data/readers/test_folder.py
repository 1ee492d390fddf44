from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from vicinal.data import folder, split
from vicinal.errors import DataError


def test_classes_are_folders(tmp_path: Path, paint) -> None:
    for path in ("dog/1.png", "cat/deep/er/2.jpg", "cat/1.PNG"):
        paint(tmp_path / path)
    (tmp_path / "cat" / "notes.txt").write_text("about the cat")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "readme.md").write_text("hello")
    data = folder(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert [Path(p).name for p in data.items] == ["1.PNG", "2.jpg", "1.png"]
    assert data.labels.tolist() == [0, 0, 1]
    assert data.name == tmp_path.name
    assert data.roles is None


def test_folders_called_as_roles_are_roles(tmp_path: Path, paint) -> None:
    for path in ("train/cat/1.png", "train/dog/1.png", "validation/cow/1.png", "test/emu/1.png"):
        paint(tmp_path / path)
    data = folder(tmp_path)
    assert sorted(data.roles.tolist()) == ["test", "train", "train", "validation"]
    assert split(data, "fixed-validation").validation.class_names == ("cow",)


def test_classes_on_both_sides_can_be_merged(tmp_path: Path, paint) -> None:
    for path in ("train/cat/1.png", "train/dog/1.png", "test/cat/2.png", "test/dog/2.png"):
        paint(tmp_path / path)
    with pytest.raises(DataError) as caught:
        folder(tmp_path)
    assert len(caught.value.problems) == 2
    assert "class on both sides of the split (test, train): cat" in caught.value.problems
    merged = folder(tmp_path, merge=True)
    assert merged.roles is None
    assert merged.labels.tolist() == [0, 1, 0, 1]


def test_bad_files_and_empty_classes(tmp_path: Path, paint) -> None:
    paint(tmp_path / "cat" / "1.png")
    (tmp_path / "cat" / "2.png").write_bytes(b"not a png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError) as caught:
        folder(tmp_path)
    assert [p.split(":")[0] for p in caught.value.problems] == ["unreadable (UnidentifiedImageError)"]
    with pytest.warns(UserWarning, match="skipped 1 of 2 images"):
        left = folder(tmp_path, skip_bad=True)
    assert len(left) == 1
    assert any(note.startswith("class folder without images") for note in left.notes)


def test_an_empty_class_is_a_note_and_a_flat_folder_is_told_what_to_do(tmp_path: Path, paint) -> None:
    paint(tmp_path / "1.png")
    with pytest.raises(DataError, match="one subfolder per class"):
        folder(tmp_path)
    paint(tmp_path / "cat" / "1.png")
    (tmp_path / "dog").mkdir()
    assert [note.split(",")[0].split(":")[0] for note in folder(tmp_path).notes] == [
        "class folder without images",
        "1 image next to the class folders",
    ]


def test_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images were found"):
        folder(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        folder(tmp_path / "absent")
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty: .*1\.png"):
        folder(tmp_path, skip_bad=True)


def test_pipes_loops_and_odd_names_are_told_and_never_waited_for(tmp_path: Path) -> None:
    classes = tmp_path / os.fsdecode(b"caf\xe9")
    classes.mkdir()
    Image.new("RGB", (9, 9)).save(classes / "a.png")
    os.mkfifo(classes / "pipe.png")
    (classes / "loop.png").symlink_to(classes / "loop.png")
    Image.new("LAB", (9, 9)).save(classes / "lab.tif")
    with pytest.raises(DataError) as caught:
        folder(tmp_path)
    assert [problem.partition(":")[0].partition(" (")[0] for problem in sorted(caught.value.problems)] == [
        "not a file",
        "unreadable",
        "unreadable",
    ]
    with pytest.warns(UserWarning, match="skipped 3 of 4 images"):
        data = folder(tmp_path, skip_bad=True)
    assert data.class_names == (r"caf\udce9",)
    assert data.hash() == data.hash()
