from __future__ import annotations

import builtins
import math
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from vicinal.data import split, table
from vicinal.errors import DataError, MissingExtra

OML = """label,path,split,is_query,is_gallery,x_1,x_2,y_1,y_2
7,images/a.png,train,,,,,,
7,images/b.png,train,,,1,9,2,8
9,images/c.png,validation,True,False,,,,
9,images/d.png,validation,False,True,,,,
9,images/e.png,validation,True,True,,,,
"""


@pytest.fixture
def images(tmp_path: Path, paint) -> Path:
    for name in "abcde":
        paint(tmp_path / "images" / f"{name}.png")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    (folder / "items.csv").write_text(text)
    return folder / "items.csv"


def test_columns_of_open_metric_learning(images: Path) -> None:
    data = table(write(images, OML))
    assert data.name == "items"
    assert data.class_names == ("7", "9")
    assert data.roles.tolist() == ["train", "train", "query", "gallery", "test"]
    assert data.boxes[1].tolist() == [1, 2, 9, 8]
    assert math.isnan(data.boxes[0, 0])
    assert data.image(0).size == (12, 10)
    assert data.image(1).size == (8, 6)
    parts = split(data)
    assert (len(parts.train), len(parts.query), len(parts.gallery)) == (2, 1, 1)


def test_parquet_reads_the_same(images: Path) -> None:
    columns = {
        "label": [7, 7, 9],
        "path": [f"images/{n}.png" for n in "abc"],
        "split": ["train", "train", "test"],
    }
    parquet.write_table(pyarrow.table(columns), images / "items.parquet")
    csv = write(images, "label,path,split\n7,images/a.png,train\n7,images/b.png,train\n9,images/c.png,test\n")
    assert table(images / "items.parquet").hash() == table(csv).hash()


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'vicinal\[parquet\]'"):
        table(tmp_path / "items.parquet")


def test_root_and_absolute_paths(images: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "tables"
    elsewhere.mkdir()
    text = f"path,label\nimages/a.png,x\n{images}/images/b.png,y\n"
    assert len(table(write(elsewhere, text), root=images)) == 2


def test_validation_beside_test_stays_validation(images: Path) -> None:
    text = "path,label,split\nimages/a.png,x,train\nimages/b.png,y,val\nimages/c.png,z,test\n"
    assert table(write(images, text)).roles.tolist() == ["train", "validation", "test"]


def test_a_table_of_features(tmp_path: Path) -> None:
    data = table(write(tmp_path, "label,width,height,split\nbig,3,4.5,train\nsmall,1,2,test\n"))
    assert data.kind == "vectors"
    assert data.items.tolist() == [[3, 4.5], [1, 2]]
    assert data.items.dtype == np.float32
    assert data.roles.tolist() == ["train", "test"]


@pytest.mark.parametrize("header", ["label,size", "label,path"])
def test_numbers_are_ordered_as_numbers(images: Path, header: str) -> None:
    second = ["1", "2"] if header == "label,size" else ["images/a.png", "images/b.png"]
    data = table(write(images, f"{header}\n10,{second[0]}\n9,{second[1]}\n"))
    assert data.class_names == ("9", "10")
    assert data.labels.tolist() == [1, 0]


def test_features_that_are_no_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        table(write(tmp_path, "label,colour,size\na,red,1\nb,blue,big\n"))
    assert len(caught.value.problems) == 2
    assert "column 'colour': could not convert" in caught.value.problems[0]
    with pytest.raises(DataError, match="row 1 is not finite"):
        table(write(tmp_path, "label,size\na,1\nb,\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,class\na.png,x\n", "has no column 'label'(.|\n)*columns: path, class"),
        ("", "is empty"),
        ("path,label\na.png,\nb.png,x\n", "1 row cannot be used.\n.*row 0 has no label"),
        ("path,label\na.png\n", "row 2 has 1 cells"),
        ("path,label,split\na.png,x,trian\n", "holds 'trian'"),
        ("label,split\nx,train\n", "neither a column 'path' nor features"),
        ("path,label\na.png,x\n", r"missing: .*a\.png"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        table(write(tmp_path, text))


def test_missing_tables(tmp_path: Path) -> None:
    for name in ("items.csv", "items.parquet"):
        with pytest.raises(DataError, match="does not exist"):
            table(tmp_path / name)


def test_one_path_with_two_labels_is_dropped_wholly(images: Path) -> None:
    path = write(images, "path,label\nimages/a.png,x\nimages/a.png,y\nimages/b.png,x\nimages/b.png,x\n")
    with pytest.raises(DataError, match=r"listed 2 times as x, y: .*a\.png"):
        table(path)
    with pytest.warns(UserWarning, match="skipped 3 of 4"):
        data = table(path, skip_bad=True)
    assert [Path(item).name for item in data.items] == ["b.png"]
