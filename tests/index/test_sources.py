"""What is put into an index: tables and their numbers, metadata of any kind, names that are no text."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from vicinal.errors import DataError, InputError
from vicinal.index import Index
from vicinal.index.filters import plain_value
from vicinal.index.sources import as_source

pytestmark = pytest.mark.unit


def tables():
    columns = {"year": [1999, None], "place": ["Ulm", "Rom"]}
    yield columns
    yield {"year": np.array([1999, np.nan]), "place": np.array(["Ulm", "Rom"])}
    yield [{"year": 1999, "place": "Ulm"}, {"place": "Rom"}]
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    yield pandas.DataFrame(columns, index=[7, 3])
    yield pandas.DataFrame({"year": pandas.array([1999, None], dtype="Int64"), "place": columns["place"]})
    yield pyarrow.table(columns)


def test_metadata_of_any_kind(tmp_path):
    for number, table in enumerate(tables()):
        with Index.of_vectors(tmp_path / f"{number}.index", np.eye(2), metadata=table) as index:
            first, second = index.get()[0]
            assert (first.metadata, second.metadata) == ({"year": 1999, "place": "Ulm"}, {"place": "Rom"})
            assert index.add(vectors=np.eye(2), ids=[0, 1], metadata=table).updated == 2


def test_metadata_of_no_kind(tmp_path):
    pandas = pytest.importorskip("pandas")
    twice = pandas.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    for table, said in [
        (twice, "a is repeated"),
        ({"year": "1999"}, "must be a list"),
        ({"year": 1999}, "must be a list"),
        (3, "got int"),
        ("year", "got str"),
        ([1, 2], "got list"),
        (pandas.DataFrame({0: [1, 2]}), "Names of columns are texts"),
        ([{"year": 1}], "one entry per item: 2 items, 1 entries"),
    ]:
        with pytest.raises(InputError, match=said):
            as_source(["a.png", "b.png"], metadata=table)


def test_a_text_is_a_text():
    assert plain_value("NaT", "name") == "NaT"
    assert plain_value(np.datetime64("NaT"), "day") is None


def columns_of(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    return as_source(tmp_path / "t.csv")


def test_only_numbers_become_numbers(tmp_path):
    cells = {
        "7,-3,0": [7, -3, 0],
        "7,,0": [7, None, 0],
        "7,nan,0": [7, None, 0],
        "1.50,2,3e-05": [1.5, 2.0, 3e-05],
        "007,8,9": ["007", "8", "9"],
        "01234,01235,1": ["01234", "01235", "1"],
        "1_000,2,3": ["1_000", "2", "3"],
        "+1,2,3": ["+1", "2", "3"],
        "1e5,2e7,3": ["1e5", "2e7", "3"],
        "1,2,inf": ["1", "2", "inf"],
        "1,2,x": ["1", "2", "x"],
        "nan,NaN,": ["nan", "NaN", None],
        f"1,2,{'9' * 20}": ["1", "2", "9" * 20],
        f"1,2,{'9' * 5000}": ["1", "2", "9" * 5000],
        "1.5,1e+999,2": ["1.5", "1e+999", "2"],
        "٣,1,2": ["٣", "1", "2"],
    }
    for line, expected in cells.items():
        rows = "".join(f"{place}.png,{cell}\n" for place, cell in enumerate(line.split(",")))
        found = columns_of(tmp_path, f"path,value\n{rows}").metadata["value"]
        assert found == expected, line
        assert list(map(type, found)) == list(map(type, expected)), line


def test_ids_paths_and_labels_stay_as_they_are_written(tmp_path):
    source = columns_of(tmp_path, "path,id,label\n007,01,3\n8,2,4\n")
    assert [os.path.basename(path) for path in source.paths] == ["007", "8"]
    assert (source.ids, source.labels) == (["01", "2"], ["3", "4"])
    assert columns_of(tmp_path, "path,id\na,1.5\nb,2\n").ids == ["1.5", "2"]
    assert columns_of(tmp_path, "path,id\na,1\nb,2\n").ids == [1, 2]


def test_texts_of_parquet_stay_texts(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"path": ["a", "b"], "code": ["7", "8"], "n": [1, 2]}), tmp_path / "t.parquet")
    assert as_source(tmp_path / "t.parquet").metadata == {"code": ["7", "8"], "n": [1, 2]}


def test_a_list_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "list.txt").write_bytes("café.png\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"list\.txt is not text that can be read.*\n?.*UTF-8"):
        as_source(tmp_path / "list.txt")


def test_a_name_that_is_no_text_is_skipped_and_listed(tmp_path, model, photos):
    try:
        shutil.copy(photos / "a" / "1.png", os.fsencode(photos / "a") + b"/caf\xe9.png")
    except OSError:
        pytest.skip("this file system has no such names")
    with Index.build(tmp_path / "x.index", model, photos) as index:
        [(name, reason)] = index.changes.skipped
        assert name.endswith("caf\\udce9.png")
        assert "not valid Unicode; rename it" in reason
        assert index.changes.added == len(index) == 3
        assert index.refresh(photos).unchanged == 3
    elsewhere = os.fsencode(tmp_path) + b"/\xe9"
    shutil.copytree(os.fsencode(photos), elsewhere)
    with Index.build(tmp_path / "y.index", model, os.fsdecode(elsewhere)) as index:
        assert (len(index), len(index.changes.skipped)) == (0, 4)
