from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from vicinal.data import Fit, batches, omniglot, split
from vicinal.errors import DataError


@pytest.fixture
def folders(tmp_path: Path, paint) -> Path:
    for part, alphabets in (("images_background", ["Greek", "Latin"]), ("images_evaluation", ["Angelic"])):
        for alphabet in alphabets:
            for character in (1, 2):
                for drawing in (1, 2, 3):
                    name = f"{part}/{alphabet}/character{character:02}/0001_{drawing:02}.png"
                    paint(tmp_path / "omniglot" / name, mode="L")
    return tmp_path / "omniglot"


@pytest.fixture
def zips(folders: Path, tmp_path: Path) -> Path:
    target = tmp_path / "zipped"
    target.mkdir()
    for part in ("images_background", "images_evaluation"):
        with zipfile.ZipFile(target / f"{part}.zip", "w") as archive:
            for path in sorted((folders / part).rglob("*.png")):
                archive.write(path, path.relative_to(folders))
    return target


def test_folders(folders: Path) -> None:
    data = omniglot(folders, strict=False)
    assert data.class_names[:2] == ("Greek/character01", "Greek/character02")
    assert data.class_names[-1] == "Angelic/character02"
    parts = split(data)
    assert (len(parts.train), len(parts.test)) == (12, 6)
    assert omniglot(folders.parent, strict=False).hash() == data.hash()


def test_zips_are_read_in_place(folders: Path, zips: Path) -> None:
    data = omniglot(zips, strict=False)
    assert data.hash() == omniglot(folders, strict=False).hash()
    assert data.image(0).size == (12, 10)
    assert sorted(path.name for path in zips.iterdir()) == ["images_background.zip", "images_evaluation.zip"]


def test_a_missing_half(zips: Path) -> None:
    (zips / "images_evaluation.zip").unlink()
    with pytest.raises(DataError, match=r"no images in .*images_evaluation"):
        omniglot(zips, strict=False)


def test_counts(folders: Path) -> None:
    with pytest.raises(DataError, match="4 train classes; the official number is 964"):
        omniglot(folders)


@pytest.mark.real
def test_the_real_drawings(real_data: Path) -> None:
    if not (real_data / "omniglot").is_dir():
        pytest.skip("omniglot is absent")
    parts = split(omniglot(real_data / "omniglot"))
    assert (len(parts.train), len(parts.train.class_names)) == (964 * 20, 964)
    assert (len(parts.test), len(parts.test.class_names)) == (659 * 20, 659)
    images, labels, _ = next(batches(parts.test, Fit(28, pixels="ink"), [range(40)], workers=2))
    assert images.shape == (40, 1, 28, 28)
    assert labels.tolist() == [0] * 20 + [1] * 20
    assert 0.01 < images.mean() < 0.3
