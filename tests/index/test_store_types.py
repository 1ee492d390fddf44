"""Stores that other packages add: found by the scheme of a URL among entry points, and used with what they have."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.index import Index
from vicinal.index.stores import store_type
from vicinal.index.stores.postgres import PostgresStore
from vicinal.testing import check_store

pytestmark = pytest.mark.unit

TOY = '''
import shutil
from pathlib import Path

from vicinal.index import Store
from vicinal.index.stores.embedded import EmbeddedStore


class Toy(Store):
    """A folder that is called a server; without any of the optional methods but `drop`."""

    def __init__(self, url, name="index"):
        self.url = url
        self._inner = EmbeddedStore(folder(url, name))
        self.header = self._inner.header

    @classmethod
    def create(cls, url, header, name="index"):
        EmbeddedStore.create(folder(url, name), header).close()
        return cls(url, name)

    @classmethod
    def exists(cls, url, name):
        return folder(url, name).is_dir()

    def add(self, items, vectors):
        self._inner.add(items, vectors)

    def delete(self, where):
        return self._inner.delete(where)

    def get(self, where=None, *, vectors=True):
        return self._inner.get(where, vectors=vectors)

    def search(self, queries, k, where=None, *, fast=False, items=True):
        return self._inner.search(queries, k, where, items=items)

    def count(self, where=None):
        return self._inner.count(where)

    def verify(self):
        return self._inner.verify()

    def columns(self):
        return self._inner.columns()

    def version(self):
        return self._inner.version()

    def close(self):
        self._inner.close()

    def drop(self):
        shutil.rmtree(self._inner.folder)
        return True


def folder(url, name):
    return Path(url.removeprefix("toy://")) / name
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """An installed package whose entry point names a store."""
    site = tmp_path / "site"
    (site / "toystore-1.0.dist-info").mkdir(parents=True)
    (site / "toystore-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toystore\nVersion: 1.0\n")
    lines = ["[vicinal.stores]", "toy = toystore:Toy", "lost = toystore:Gone", "postgresql = toystore:Toy"]
    (site / "toystore-1.0.dist-info" / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (site / "toystore.py").write_text(TOY)
    monkeypatch.syspath_prepend(site)
    return f"toy://{tmp_path / 'server'}"


def test_an_entry_point_adds_a_store(toy, tmp_path):
    numbers = iter(range(100))
    check_store(lambda header: store_type(toy).create(toy, header, f"tried_{next(numbers)}"))
    rows = np.random.default_rng(0).normal(size=(30, 4))
    paths = [f"/photos/{place}.jpg" for place in range(30)]
    with Index.of_vectors(tmp_path / "x.index", rows, labels=["b", "a"] * 15, paths=paths, store=toy) as index:
        store = index.store
        assert (store.url, len(index)) == (toy, 30)
    with Index.open(tmp_path / "x.index") as index:
        assert index.search(vector=rows[3], k=1)[0].id == 3
        assert index.measure(k=2).disk is None
        with pytest.raises(InputError, match="stored on a database server"):
            index.compact()
        with pytest.raises(InputError, match="needs no preparation"):
            index.prepare_fast()


def test_a_scheme_is_looked_up_among_those_of_vicinal_first(toy):
    assert store_type("postgresql://host/database") is PostgresStore
    with pytest.raises(InputError, match=r"got 'other://host'\. Schemes: lost, milvus, milvus\+https, postgres, .*toy"):
        store_type("other://host")
    with pytest.raises(InputError, match="named by a URL"):
        store_type("toy")
    with pytest.raises(InputError, match="lost:// is installed but cannot be imported"):
        store_type("lost://host")
