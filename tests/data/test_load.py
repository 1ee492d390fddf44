from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vicinal.data
from vicinal.data import READERS, load, recognise
from vicinal.errors import DataError, InputError, UnknownName


def test_all_public_names_exist() -> None:
    assert sorted(vicinal.data.__all__) == sorted(set(vicinal.data.__all__))
    for name in vicinal.data.__all__:
        assert hasattr(vicinal.data, name), name


def test_every_reader_is_public() -> None:
    assert set(READERS) <= set(vicinal.data.__all__)


def test_by_name_and_by_path(tmp_path: Path, paint) -> None:
    assert load("digits", vectors=True).kind == "vectors"
    paint(tmp_path / "photos" / "cat" / "1.png")
    assert load(tmp_path / "photos").hash() == load("folder", root=tmp_path / "photos").hash()
    (tmp_path / "items.csv").write_text("path,label\nphotos/cat/1.png,cat\n")
    assert load(str(tmp_path / "items.csv")).hash() == load(tmp_path / "photos").hash()
    np.savez(tmp_path / "features.npz", X=np.eye(2), y=[0, 1])
    assert load(tmp_path / "features.npz").kind == "vectors"


@pytest.mark.parametrize(
    ("mark", "reader"),
    [
        ("images.txt", "cub"),
        ("cars_annos.mat", "cars196"),
        ("devkit/cars_meta.mat", "cars196"),
        ("Ebay_train.txt", "sop"),
        ("Info_Files/Ebay_train.txt", "sop"),
        ("Eval/list_eval_partition.txt", "inshop"),
        ("images_background.zip", "omniglot"),
        ("cat/1.jpg", "folder"),
    ],
)
def test_layouts_are_recognised(tmp_path: Path, mark: str, reader: str) -> None:
    (tmp_path / mark).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / mark).touch()
    assert recognise(tmp_path) == reader


def test_a_published_set_needs_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VICINAL_DATA", raising=False)
    with pytest.raises(DataError, match="set VICINAL_DATA to a folder that holds CUB_200_2011"):
        load("cub")
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"CUB-200-2011 was not found in .*CUB_200_2011"):
        load("cub")


def test_bad_names_paths_and_options(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'glyphs'"):
        load("glyps")
    with pytest.raises(DataError, match="does not exist"):
        load(tmp_path / "absent")
    with pytest.raises(DataError, match=r"items\.csv does not exist"):
        load("items.csv")
    with pytest.raises(InputError, match="digits has no option root; it has vectors"):
        load("digits", root=tmp_path)
    assert len(load("digits", skip_bad=True)) == 1797
    with pytest.raises(InputError, match="check must be 'header', 'decode', 'content' or 'looks'; got 'deep'"):
        load(tmp_path, check="deep")
