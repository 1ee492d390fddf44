"""The map as a Parquet table: what is in it, and that other programs can read it."""

from __future__ import annotations

import io

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.index import Index
from vicinal.index.map import export_map, lay_out, map_table

parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
pytestmark = pytest.mark.unit


@pytest.fixture
def index(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)).astype(np.float32)
    labels = [None if place == 3 else "ab"[place % 2] for place in range(30)]
    return Index.of_vectors(tmp_path / "i", vectors, labels=labels, metadata={"year": list(range(30))})


def test_rows_are_the_items_with_places_and_neighbours(index, tmp_path) -> None:
    assert export_map(index, tmp_path / "map.parquet") == 30
    table = parquet.read_table(tmp_path / "map.parquet").to_pydict()
    assert list(table) == ["id", "path", "label", "x", "y", "neighbours", "year"]
    items, vectors = index.get()
    assert table["id"] == [item.id for item in items]
    assert table["label"][3] is None
    places = lay_out(vectors).positions
    assert np.float32(table["x"]).tobytes() == np.ascontiguousarray(places[:, 0]).tobytes()
    for place, near in enumerate(table["neighbours"]):
        hits = index.search(item=items[place].id, k=10)
        assert [items[other].id for other in near["ids"]] == [hit.id for hit in hits]
        assert near["distances"] == pytest.approx([1 - hit.similarity for hit in hits])


def test_private_columns_stay_at_home(index) -> None:
    items, vectors = index.get()
    content = map_table(items, vectors, lay_out(vectors), private={"path", "year"})
    assert parquet.read_table(io.BytesIO(content)).column_names == ["id", "label", "x", "y", "neighbours"]


def test_one_item_has_no_neighbours(tmp_path) -> None:
    index = Index.of_vectors(tmp_path / "one", [[1.0, 0.0]])
    export_map(index, tmp_path / "map.parquet")
    assert parquet.read_table(tmp_path / "map.parquet").to_pydict()["neighbours"] == [None]


def test_only_parquet(index, tmp_path) -> None:
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        export_map(index, tmp_path / "map.csv")
