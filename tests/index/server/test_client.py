"""`vc.connect`: the client against a server that listens, and the library beside it: equal to the last digit."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vicinal as vc
from vicinal.errors import DataError, InputError
from vicinal.index import Index, Item
from vicinal.index.columns import matches
from vicinal.index.where import And, Compare, Condition, In, Not, Null, Or, as_condition
from vicinal.index.where_text import as_text

TOKEN = "correct-horse"
VALUES = ("", "it's", 'a "b"', -3, 0, 2.5, 1e-7, 1e22, True, False)
COLUMNS = ("a", 'b"', "and", "not in", "id")


def drawn(rng: random.Random, depth: int = 3) -> Condition:
    if depth and rng.random() < 0.6:
        parts = tuple(drawn(rng, depth - 1) for _ in range(rng.randrange(4)))
        return rng.choice([And(parts), Or(parts), Not(drawn(rng, depth - 1))])
    column, values = rng.choice(COLUMNS), tuple(rng.choices(VALUES, k=rng.randrange(4)))
    return rng.choice([Compare(column, rng.choice(["=", "!="]), rng.choice(VALUES)), In(column, values), Null(column)])


def test_a_filter_sent_as_text_means_the_same() -> None:
    rng = random.Random(0)
    for _ in range(300):
        condition = drawn(rng)
        values = {name: rng.choice(VALUES) for name in COLUMNS if rng.random() < 0.7}
        assert matches(as_condition(as_text(condition)), values) == matches(condition, values)


def test_vectors_and_items(live: Any, vectors: Index) -> None:
    queries = np.random.default_rng(3).normal(size=(20, 4))
    with live(vectors) as url, vc.connect(url) as remote:
        assert (len(remote), remote.dim, remote.distance) == (60, 4, "cosine")
        assert remote.columns == vectors.columns
        assert remote.generation == vectors.generation
        for where in (None, "label = 'c1'", {"year": (">", 30), "label": ["c0", "c2"]}):
            assert remote.search(queries[0], k=7, where=where) == vectors.search(queries[0], k=7, where=where)
            assert remote.search(vector=queries, k=3, where=where) == vectors.search(vector=queries, k=3, where=where)
            mine, theirs = remote.nearest(queries, 5, where), vectors.nearest(queries, 5, where)
            assert (mine[0] == theirs[0]).all()
            assert (mine[1] == theirs[1]).all()
            assert remote.count(where) == vectors.count(where)
            items, rows = remote.get(where)
            assert items == vectors.get(where)[0]
            assert (rows == vectors.get(where)[1]).all()
        assert remote.search(item="n3") == vectors.search(item="n3")
        assert remote.search(queries[0], fast=True) == vectors.search(queries[0], fast=True)


def test_many_threads_get_what_one_gets(live: Any, vectors: Index) -> None:
    queries = np.random.default_rng(4).normal(size=(64, 4))
    with live(vectors) as url, vc.connect(url) as remote, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: remote.search(row, k=4), queries))
    assert found == vectors.search(vector=queries, k=4)


def test_pictures(live: Any, pictures: Index, photos: Path) -> None:
    files = sorted(photos.rglob("*.png"))
    array = np.asarray(Image.open(files[0]))
    with live(pictures) as url, vc.connect(url) as remote:
        assert remote.search(files[1]) == pictures.search(files[1])
        assert remote.search(photos) == pictures.search(photos)
        assert remote.search(files[1].read_bytes()) == pictures.search(files[1])
        assert remote.search(array) == pictures.search(array)
        assert remote.search([array, Image.open(files[2])]) == pictures.search([array, Image.open(files[2])])


def test_changes(live: Any, pictures: Index, photos: Path) -> None:
    file = photos / "b" / "1.png"
    with live(pictures, token=TOKEN, writable=True) as url:
        with pytest.raises(InputError, match="token"):
            vc.connect(url)
        with vc.connect(url, token=TOKEN) as remote:
            changes = remote.add([file], ids=["mine"], labels=["odd"], metadata={"year": [1999]})
            assert (changes.added, changes.skipped) == (1, ())
            (item,), (row,) = remote.get("id = 'mine'")
            assert (item.id, item.label, dict(item.metadata)) == ("mine", "odd", {"year": 1999})
            assert (row == pictures.get("id = 'mine'")[1][0]).all()
            added = remote.add(vectors=[row, -row], ids=["x", "y"], embedder=remote.embedder_hash, labels=["p", None])
            assert added.added == 2
            assert pictures.get("id = 'x'")[0] == [Item("x", label="p")]
            with pytest.raises(InputError, match="embedder"):
                remote.add(vectors=[row], ids=["z"])
            assert remote.remove(ids=["x", "none such"]) == 1
            assert remote.remove("label = 'odd'") == 1
            assert len(remote) == len(pictures) == 4


def test_words_for_what_goes_wrong(live: Any, vectors: Index) -> None:
    with live(vectors) as url, vc.connect(url) as remote:
        with pytest.raises(InputError, match="no such item"):
            remote.search(item="none")
        with pytest.raises(InputError, match="Unknown column 'colour'"):
            remote.search([1, 0, 0, 0], where="colour = 'red'")
        with pytest.raises(InputError, match="4 numbers; got 3"):
            remote.search([1, 0, 0])
        with pytest.raises(InputError, match="no direction"):
            remote.search([0, 0, 0, 0])
        with pytest.raises(InputError, match="writable"):
            remote.remove(ids=["n1"])
    with pytest.raises(DataError, match="Is the server there"):
        vc.connect(url)
    with pytest.raises(InputError, match=r"like http://127\.0\.0\.1:8765"):
        vc.connect("127.0.0.1:8765")
