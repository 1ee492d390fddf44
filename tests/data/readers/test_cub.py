from __future__ import annotations

from pathlib import Path

import pytest

from vicinal.data import cub, split
from vicinal.errors import DataError

SPECIES = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross", "010.Red_winged_Blackbird"]


@pytest.fixture
def official(tmp_path: Path, paint) -> Path:
    root = tmp_path / "CUB_200_2011"
    rows = [(species, f"{species}/bird_{i}.jpg") for species in SPECIES for i in range(2)]
    for _, path in rows:
        paint(root / "images" / path, (20, 16))
    numbered = list(enumerate(rows, start=1))
    (root / "images.txt").write_text("".join(f"{n} {path}\n" for n, (_, path) in numbered))
    labels = {species: label for label, species in enumerate(SPECIES, start=1)}
    (root / "image_class_labels.txt").write_text("".join(f"{n} {labels[s]}\n" for n, (s, _) in numbered))
    (root / "classes.txt").write_text("".join(f"{label} {s}\n" for s, label in labels.items()))
    (root / "train_test_split.txt").write_text("".join(f"{n} {n % 2}\n" for n, _ in numbered))
    (root / "bounding_boxes.txt").write_text("".join(f"{n} 2.0 3.0 10.0 8.0\n" for n, _ in numbered))
    return root


def test_official_layout(official: Path) -> None:
    data = cub(official, strict=False)
    assert data.class_names == tuple(SPECIES)
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.roles is None
    assert data.image(0).size == (20, 16)
    assert split(data).train.class_names == tuple(SPECIES[:2])
    assert any("8 images; the official number is 11,788" in note for note in data.notes)


def test_the_folder_above_will_do(official: Path) -> None:
    assert cub(official.parent, strict=False).hash() == cub(official, strict=False).hash()


def test_crop_to_the_bounding_box(official: Path) -> None:
    assert cub(official, crop=True, strict=False).image(0).size == (10, 8)
    (official / "bounding_boxes.txt").unlink()
    with pytest.raises(DataError, match=r"missing: .*bounding_boxes.txt"):
        cub(official, crop=True, strict=False)


def test_counts_are_checked_unless_told_not_to(official: Path) -> None:
    with pytest.raises(DataError) as caught:
        cub(official)
    assert caught.value.problems == (
        "8 images; the official number is 11,788",
        "4 classes; the official number is 200",
        "4 images of the first half of the classes; the official number is 5,864",
        "4 images of the second half of the classes; the official number is 5,924",
    )
    assert "strict=False" in str(caught.value)


def test_all_problems_are_reported_at_once(official: Path) -> None:
    pictures = sorted((official / "images").rglob("*.jpg"))
    pictures[0].unlink()
    pictures[1].write_bytes(b"")
    pictures[2].write_text("not an image")
    with (official / "images.txt").open("a") as file:
        file.write("9 001.Black_footed_Albatross/unlabelled.jpg\nnonsense\n")
        file.write(f"4 {SPECIES[1]}/bird_1.jpg\n")
    with pytest.raises(DataError) as caught:
        cub(official, strict=False)
    kinds = sorted(problem.split(":")[0].split(" as ")[0].split(" (")[0] for problem in caught.value.problems)
    assert kinds == [
        "empty",
        "image 9 has no class or no box",
        "line 10 of images.txt has 1 columns, not 2",
        "listed 2 times",
        "missing",
        "unreadable",
    ]
    with pytest.warns(UserWarning, match="skipped 4 of 9 images"):
        data = cub(official, skip_bad=True)
    assert len(data) == 5
    assert len(data.class_names) == 4
    assert data.notes[0] == "skipped 4 of 9 images"


def test_a_cut_file_is_found_by_decoding_only(official: Path) -> None:
    picture = min((official / "images").rglob("*.jpg"))
    picture.write_bytes(picture.read_bytes()[:-200])
    assert len(cub(official, strict=False)) == 8
    with pytest.raises(DataError, match=r"unreadable \(OSError: image file is truncated"):
        cub(official, strict=False, check="decode")


def test_folders_by_class_are_merged_and_hidden_files_skipped(tmp_path: Path, paint) -> None:
    for part in ("train", "test"):
        for species in reversed(SPECIES):
            paint(tmp_path / part / species / f"{part}.jpg")
            (tmp_path / part / species / "._hidden.jpg").write_bytes(b"resource fork")
    data = cub(tmp_path, strict=False)
    assert data.class_names == tuple(SPECIES)
    assert len(data) == 8
    assert split(data).train.class_names == tuple(SPECIES[:2])
    with pytest.raises(DataError, match="crop=True needs"):
        cub(tmp_path, crop=True, strict=False)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no images\.txt"):
        cub(tmp_path)
    with pytest.raises(DataError, match="it is not a folder"):
        cub(tmp_path / "absent")


@pytest.mark.real
def test_the_real_birds(real_data: Path) -> None:
    if not (real_data / "CUB_200_2011").is_dir():
        pytest.skip("CUB_200_2011 is absent")
    data = cub(real_data / "CUB_200_2011")
    parts = split(data)
    assert (len(data), len(data.class_names)) == (11_788, 200)
    assert (len(parts.train), len(parts.test)) == (5_864, 5_924)
    assert parts.train.class_names[-1].startswith("100.")
    assert parts.test.class_names[0].startswith("101.")
    folds = [split(data, "reality-check", fold=f) for f in range(4)]
    assert [f.validation.class_names[0][:3] for f in folds] == ["001", "026", "051", "076"]
