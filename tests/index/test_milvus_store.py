"""The store in Milvus, on milvus-lite, which emulates a server in this process: the contract, and whole indexes."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from vicinal.errors import DataError, InputError
from vicinal.index import Header, Index, Item
from vicinal.index.filters import as_condition
from vicinal.testing import check_store

pytest.importorskip("pymilvus", reason="pymilvus is not installed")
pytest.importorskip("milvus_lite", reason="milvus-lite, the emulation of a server, is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

from vicinal.index.stores import milvus as milvus_rows  # noqa: E402
from vicinal.index.stores.milvus import (  # noqa: E402
    MilvusStore,
    address_of,
)

numbers = count()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"milvus://{tmp_path_factory.mktemp('milvus') / 'lite.db'}"


def fresh(url, header):
    return MilvusStore.create(url, header, f"test_{next(numbers)}")


def test_it_keeps_the_contract_of_stores(url):
    def reopen(store):
        store.close()
        return MilvusStore(store.url, store.name)

    check_store(lambda header: fresh(url, header), reopen)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_it_answers_as_the_embedded_store_does(url, tmp_path, distance):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 24)).astype(np.float32)
    queries = rng.normal(size=(5, 24)).astype(np.float32)
    labels = [["wren", "crow", None][place % 3] for place in range(300)]
    years = rng.integers(2000, 2010, 300).tolist()
    here, there = (
        Index.of_vectors(
            tmp_path / f"{place}.index",
            vectors,
            labels=labels,
            metadata={"year": years},
            distance=distance,
            store=store,
        )
        for place, store in enumerate(["", url])
    )
    for where in (None, "label = 'wren'", "year > 2005 and not label = 'crow'", "label in ('crow') or year = 2001"):
        mine, theirs = here.nearest(queries, 7, where), there.nearest(queries, 7, where)
        assert mine[0].tolist() == theirs[0].tolist()
        assert mine[1].tolist() == theirs[1].tolist()
    there.close()
    again = Index.open(tmp_path / "1.index")
    assert len(again) == 300
    assert again.remove("label = 'crow'") == 100
    assert again.update("id = 0", {"label": "owl"}) == 1
    assert [hit.id for hit in again.search(vectors[0], k=3, where="label = 'owl'")] == [0]
    assert again.count("label = 'wren'") == 99
    again.close()


def test_an_item_that_changes_its_label_is_there_once(url):
    store = fresh(url, Header(3))
    row = np.ones((1, 3), np.float32)
    store.add([Item("a", label="wren")], row)
    store.add([Item("a", label="crow")], row)
    assert store.count() == 1
    assert store.get()[0] == [Item("a", label="crow")]
    assert store.count(as_condition("label = 'wren'")) == 0
    store.drop()


def test_lists_are_for_fast_search_and_exact_search_reads_all_of_them(url, tmp_path, monkeypatch):
    monkeypatch.setattr(milvus_rows, "MESSAGE", 20_000)  # several requests
    vectors = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    with Index.of_vectors(tmp_path / "x.index", vectors, store=url) as index:
        exact = index.nearest(vectors[:5], 3)
        assert index.search(vectors[0], k=3, fast=True).exact  # there are no lists yet
        assert 0 < index.prepare_fast() <= 1
        assert [part.tolist() for part in index.nearest(vectors[:5], 3)] == [part.tolist() for part in exact]
        hits = index.search(vectors[0], k=3, fast=True)
        assert not hits.exact
        assert len(hits) == 3
        with pytest.raises(InputError, match="Half precision is supported only by PostgreSQL"):
            index.prepare_fast(half=True)
        found = index.measure(k=3)
        assert found.disk is None
        assert "unknown (not reported by the store)" in str(found)


def test_addresses():
    assert address_of("milvus://host:19530")["uri"] == "http://host:19530"
    assert address_of("milvus+https://host?token=abc")["token"] == "abc"
    assert address_of("milvus:///a/b.db") == {"uri": "/a/b.db"}
    with pytest.raises(DataError, match=r"milvus\+https://me:\*\*\*@127.0.0.1:1 cannot be reached") as caught:
        MilvusStore("milvus+https://me:s@cret@127.0.0.1:1")
    assert "cret" not in str(caught.value)


def test_vectors_of_one_number(url):
    store = fresh(url, Header(1, "euclidean"))
    store.add([Item(1), Item(2)], np.float32([[3], [5]]))
    assert store.get()[1].tolist() == [[3], [5]]
    assert store.search(np.float32([[4.9]]), 1).ids.tolist() == [[2]]
    store.close()


def test_what_is_not_there_or_not_a_name_is_said(url):
    with pytest.raises(DataError, match="no index"):
        MilvusStore(url, "nothing")
    with pytest.raises(InputError, match="a-z"):
        MilvusStore(url, "x; drop")
    store = fresh(url, Header(3))
    with pytest.raises(InputError, match="already"):
        MilvusStore.create(url, Header(3), store.name)
    store.close()
