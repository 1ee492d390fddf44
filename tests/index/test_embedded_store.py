"""The embedded store: search equals a naive one, transactions are whole, files are what was written."""

from __future__ import annotations

import shutil
import threading
from itertools import count, product

import numpy as np
import pytest

from vicinal.errors import DataError, InputError, UnknownName
from vicinal.index import Index
from vicinal.index.filters import And, In, as_condition
from vicinal.index.item import Header, Item
from vicinal.index.stores import embedded as row_search
from vicinal.index.stores import vectors as fast_codes
from vicinal.index.stores import vectors as vector_file
from vicinal.index.stores.embedded import EmbeddedStore
from vicinal.testing import check_store, naive_search

pytestmark = pytest.mark.unit


def random_case(rng):
    """Items with duplicates, ties, zero vectors and deletions, and queries near them."""
    n, d = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    distance = ["cosine", "euclidean"][int(rng.integers(2))]
    if rng.integers(2):  # a lattice: many exact ties
        vectors = rng.integers(-1, 2, (n, d)).astype(np.float32)
    else:
        vectors = (rng.normal(size=(n, d)) * 10.0 ** int(rng.integers(-3, 4))).astype(np.float32)
        vectors[rng.integers(0, n, n // 3)] = vectors[rng.integers(0, n, n // 3)]
    ids = rng.permutation(n).tolist() if rng.integers(2) else [f"é{name}" for name in rng.permutation(n).tolist()]
    items = [
        Item(key, label=["a", "b", None][int(rng.integers(3))], metadata={"year": int(rng.integers(3))}) for key in ids
    ]
    queries = np.concatenate([vectors[rng.integers(0, n, 2)], rng.normal(size=(1, d)).astype(np.float32)])
    return items, vectors, queries, distance


FILTERS = [None, "label = 'a'", "year > 0 and not label = 'b'", "label is null or year in (0, 2)", "year = 7"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(1, 200))])
def test_search_equals_the_naive_search(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(row_search, "FEW", 2)  # several parts even for a few rows
    rng = np.random.default_rng(seed)
    for case in range(6):
        items, vectors, queries, distance = random_case(rng)
        store = EmbeddedStore.create(tmp_path / str(case), Header(vectors.shape[1], distance))
        store_in_steps(store, items, vectors, rng, queries)
        gone = {item.id for item in items if rng.integers(4) == 0}
        kept = [place for place, item in enumerate(items) if item.id not in gone]
        assert store.delete(In("id", tuple(gone))) == len(gone)
        for text, k in product(FILTERS, (1, 3, 100)):
            where = None if text is None else as_condition(text)
            answer = store.search(queries, k, where)
            for query, names, values in zip(queries, answer.ids.tolist(), answer.similarities, strict=True):
                right = naive_search([items[p] for p in kept], vectors[kept], query, k, distance, where)
                assert list(zip(names, values.tolist(), strict=True)) == right
        assert store.count() == len(kept)
        assert store.verify() == []
        store.close()


def store_in_steps(store, items, vectors, rng, queries):
    start = 0
    while start < len(items):
        finish = start + int(rng.integers(1, 15))
        store.add(items[start:finish], vectors[start:finish])
        store.search(queries, 2)  # prepares what is there so far
        start = finish


def test_it_keeps_the_contract_of_stores(tmp_path):
    numbers = count()

    def reopen(store):
        store.close()
        return EmbeddedStore(store.folder)

    check_store(lambda header: EmbeddedStore.create(tmp_path / str(next(numbers)), header), reopen)


def test_many_rows_with_ties_at_the_end_of_the_list(tmp_path):
    vectors = np.zeros((9000, 4), np.float32)
    vectors[:, 0], vectors[::3, 1] = 1, 1
    store = EmbeddedStore.create(tmp_path, Header(4))
    store.add([Item(9000 - row) for row in range(9000)], vectors)
    answer = store.search(np.float32([[1, 0, 0, 0]]), 3)
    assert answer.ids.tolist() == [[1, 2, 4]]
    store.close()


def test_an_item_takes_the_place_of_the_one_before(tmp_path):
    store = EmbeddedStore.create(tmp_path, Header(2))
    store.add([Item("a", label="old", metadata={"x": 1}), Item("b")], np.eye(2, dtype=np.float32))
    store.add([Item("a", label="new", metadata={"y": "t"})], np.float32([[0, 1]]))
    items, vectors = store.get()
    assert items == [Item("a", label="new", metadata={"y": "t"}), Item("b")]
    assert vectors.tolist() == [[0, 1], [0, 1]]
    assert store.search(np.float32([[1, 0]]), 5).ids.tolist() == [["a", "b"]]
    assert (store.count(), store.dead(), store.verify()) == (2, 1, [])
    assert store.delete(And(())) == 2
    assert store.search(np.float32([[1, 0]]), 5).ids.shape == (1, 0)
    store.close()


def test_columns_have_kinds_and_values_come_back_as_they_were(tmp_path):
    store = EmbeddedStore.create(tmp_path, Header(1))
    one = np.ones((1, 1), np.float32)
    item = Item(2**60, path="p", label=True, metadata={"t": "'", "n": 2.0, "i": -3, "Year": 1, "year": 2, 'a"b': 3})
    store.add([item], one)
    assert store.get()[0] == [item]
    assert store.columns()["label"] == "boolean"
    assert store.count(as_condition('Year = 1 and year = 2 and "a""b" = 3 and n = 2')) == 1
    for wrong in (Item("text"), Item(1, metadata={"t": 1})):
        with pytest.raises(InputError, match="holds"):
            store.add([wrong], one)
    with pytest.raises(UnknownName, match="column"):
        store.search(one, 1, as_condition("z = 1"))
    assert store.count() == 1
    assert store.verify() == []
    store.close()


def test_a_compacted_index_knows_the_columns_that_it_knew(tmp_path):
    with Index.of_vectors(tmp_path / "x.index", [[1.0]], labels=["a"], metadata={"year": [2020]}) as index:
        index.update("id = 0", {"year": None, "label": None})
        before = index.columns
        index.compact()
        assert index.columns == before
        assert index.count("year > 1 or label = 'a'") == 0
        assert index.verify() == []


def test_readers_see_whole_transactions_and_the_latest(tmp_path):
    writer = EmbeddedStore.create(tmp_path, Header(2))
    batch = np.ones((7, 2), np.float32)
    problems, done = [], threading.Event()

    def read():
        reader = EmbeddedStore(tmp_path)
        seen = 0
        while not done.is_set():
            many = reader.search(batch[:1], 1000).ids.shape[1]
            if many % 7 or many < seen:
                problems.append(many)
            seen = many
        reader.close()

    thread = threading.Thread(target=read)
    thread.start()
    for first in range(0, 210, 7):
        writer.add([Item(first + place) for place in range(7)], batch)
    done.set()
    thread.join()
    reader = EmbeddedStore(tmp_path)
    assert reader.count() == 210
    writer.add([Item(1000)], batch[:1])
    assert reader.search(batch[:1], 1000).ids.shape == (1, 211)
    reader.close()
    writer.close()
    assert problems == []


def test_files_that_were_cut_or_are_missing_are_named(tmp_path):
    store = EmbeddedStore.create(tmp_path, Header(2))
    store.add([Item(0)], np.ones((1, 2), np.float32))
    store.close()
    (tmp_path / "vectors.f32").write_bytes(b"1234")
    store = EmbeddedStore(tmp_path)
    with pytest.raises(DataError, match="4 bytes, but 8 were written and committed"):
        store.search(np.ones((1, 2), np.float32), 1)
    assert "cut short" in store.verify()[0]
    store.close()
    (tmp_path / "items.sqlite").write_bytes(b"this is not a database, whatever it is called" * 100)
    with pytest.raises(DataError, match=r"items\.sqlite cannot be used"):
        EmbeddedStore(tmp_path)
    (tmp_path / "items.sqlite").unlink()
    with pytest.raises(DataError, match=r"items\.sqlite is missing"):
        EmbeddedStore(tmp_path)


def test_fast_search_says_how_often_it_is_right(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 32))
    vectors = (centres[rng.integers(0, 60, 3000)] + 0.4 * rng.normal(size=(3000, 32))).astype(np.float32)
    store = EmbeddedStore.create(tmp_path, Header(32))
    store.add([Item(row, label="ab"[row % 2]) for row in range(2500)], vectors[:2500])
    for where in (None, as_condition("label = 'b'"), as_condition("id < 5")):
        exact = store.search(vectors[:50], 5, where)
        fast = store.search(vectors[:50], 5, where, fast=True)
        assert exact.exact
        assert fast.exact == (where == as_condition("id < 5"))  # of which there are too few for codes
        assert bool(fast.measured) != fast.exact
        assert fast.recall > 0.95
        assert (exact.ids == fast.ids).mean() > 0.95
        assert fast.similarities[0, 0] == exact.similarities[0, 0]
    assert (tmp_path / "codes.faiss").is_file()
    store.add([Item(row) for row in range(2500, 3000)], vectors[2500:])
    store.delete(as_condition("id = 2999"))
    assert store.search(vectors[2998:], 1, fast=True).ids[0].tolist() == [2998]
    assert 2999 not in store.search(vectors[2999:], 5, fast=True).ids
    store.close()
    (tmp_path / "codes.faiss").write_bytes(b"damaged")
    store = EmbeddedStore(tmp_path)
    assert store.search(vectors[:1], 1, fast=True).ids.tolist() == [[0]]
    store.close()


def test_the_recall_of_codes_is_measured_again_when_the_data_have_changed(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(2000, 16)).astype(np.float32)
    alike = (0.02 * rng.normal(size=(6000, 16)) + np.eye(16)[0]).astype(np.float32)
    clock = count()
    monkeypatch.setattr(fast_codes, "now", lambda: f"time {next(clock)}")

    def told_and_true(store, rows):
        exact, fast = (store.search(rows[::50], 10, fast=way) for way in (False, True))
        shares = [np.isin(right, found).mean() for right, found in zip(exact.ids, fast.ids, strict=True)]
        return fast.recall, float(np.mean(shares)), fast.measured

    store = EmbeddedStore.create(tmp_path, Header(16))
    store.add([Item(row) for row in range(2000)], apart)
    told, true, when = told_and_true(store, apart)
    assert abs(told - true) < 0.05
    assert when == "time 0"
    store.add([Item(row) for row in range(2000, 2100)], alike[:100])
    assert told_and_true(store, apart)[2] == "time 0"  # a twentieth
    store.add([Item(row) for row in range(2100, 8000)], alike[100:])
    again, true, when = told_and_true(store, np.concatenate([apart, alike]))
    assert again < told - 0.05
    assert abs(again - true) < 0.08
    assert when == "time 1"
    store.delete(as_condition("id < 1500"))
    assert told_and_true(store, alike)[2] == "time 2"
    store.close()
    store = EmbeddedStore(tmp_path)  # reads the codes, and measures what was not written with them
    assert abs(told_and_true(store, alike)[0] - told_and_true(store, alike)[1]) < 0.08
    store.close()


def test_codes_of_other_vectors_are_made_anew(tmp_path):
    pytest.importorskip("faiss")
    rows = np.random.default_rng(0).normal(size=(2, 1000, 8)).astype(np.float32)
    for name, vectors in zip("ab", rows, strict=True):
        store = EmbeddedStore.create(tmp_path / name, Header(8))
        store.add([Item(row) for row in range(1000)], vectors)
        store.search(vectors[:1], 1, fast=True)
        assert store.space()[1] > 0  # codes are held in memory
        store.close()
    for file in ("codes.faiss", "codes.json"):
        shutil.copy(tmp_path / "a" / file, tmp_path / "b" / file)
    store = EmbeddedStore(tmp_path / "b")
    exact, fast = (store.search(rows[1], 1, fast=way) for way in (False, True))
    assert (exact.ids == fast.ids).mean() > 0.95
    store.close()


def test_vectors_are_synced_before_the_transaction_that_makes_them_exist(tmp_path, monkeypatch):
    store = EmbeddedStore.create(tmp_path, Header(2))
    done = []
    connection = store._catalogue.connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # full: a commit returns when it is on the disk
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.set_trace_callback(done.append)
    monkeypatch.setattr(vector_file, "sync_file", lambda path: done.append("SYNC"))
    store.add([Item(0)], np.ones((1, 2), np.float32))
    order = [step for step in done if step.startswith(("SYNC", "INSERT INTO items", "COMMIT"))]
    assert [step.split()[0] for step in order] == ["SYNC", "INSERT", "COMMIT"]
    store.close()


def test_the_layout_is_kept_and_made_anew_when_it_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(row_search, "WORTHWHILE", 100)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((9000, 16)).astype(np.float32)
    store = EmbeddedStore.create(tmp_path, Header(16))
    store.add([Item(number) for number in range(8000)], rows[:8000])
    wanted = store.search(rows[:3], 5)
    store.close()
    kept = tmp_path / "layout.npz"
    if not kept.is_file():
        pytest.skip("8-bit integers do not pay on this processor, so that nothing is kept")

    made = []
    monkeypatch.setattr(row_search, "Searcher", _counting(row_search.Searcher, made))
    for damage in (None, "flip", "grow", "cut"):
        made.clear()
        if damage == "flip":
            content = bytearray(kept.read_bytes())
            content[len(content) // 2] ^= 1
            kept.write_bytes(content)
        elif damage == "cut":
            kept.write_bytes(kept.read_bytes()[:1000])
        store = EmbeddedStore(tmp_path)
        if damage == "grow":
            store.add([Item(number) for number in range(8000, 9000)], rows[8000:])
        found = store.search(rows[:3], 5)
        store.close()
        assert made == {None: [], "flip": [8000], "grow": [1000], "cut": [9000]}[damage]
        if damage in (None, "flip"):
            assert found.ids.tolist() == wanted.ids.tolist()
            assert np.array_equal(found.similarities, wanted.similarities)
        else:
            assert found.ids[:, 0].tolist() == [0, 1, 2]


def _counting(searcher, made):
    class Counting(searcher):
        def __init__(self, rows, *args, **options):
            made.append(len(rows))
            super().__init__(rows, *args, **options)

    return Counting


@pytest.mark.parametrize("way", ["removal", "filter"])
def test_fast_search_goes_by_codes_after_a_removal_and_with_a_filter(tmp_path, monkeypatch, way):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((50, 16))
    rows = (centres[rng.integers(0, 50, 5000)] + 0.3 * rng.standard_normal((5000, 16))).astype(np.float32)
    store = EmbeddedStore.create(tmp_path, Header(16))
    store.add([Item(number, label=number % 2) for number in range(5000)], rows)
    where = as_condition("label = 1") if way == "filter" else None
    if way == "removal":
        store.delete(as_condition("id < 10"))
    exact = store.search(rows[100:103], 5, where)
    store.search(rows[:1], 5, fast=True)  # makes the codes

    def refuse(*_args, **_options):
        raise AssertionError("exact search was asked")

    monkeypatch.setattr(store._rows, "nearest", refuse)
    fast = store.search(rows[100:103], 5, where, fast=True)
    assert np.isin(exact.ids, fast.ids).mean() > 0.8
    assert all(number % 2 for number in fast.ids.ravel().tolist()) or way == "removal"
