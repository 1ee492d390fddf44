"""`vc.connect`: the client against a server that listens, and the library beside it: equal to the last digit."""

from __future__ import annotations

import http.client
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vicinal as vc
from vicinal.embedder import Embedder
from vicinal.embedder.calibration import Calibration, Sameness
from vicinal.embedder.queries import embed_queries
from vicinal.errors import DataError, InputError
from vicinal.index import Index, Item
from vicinal.index.filters import And, Compare, Condition, In, Not, Null, Or, as_condition, as_text, matches
from vicinal.neighbours import Reranking
from vicinal.neighbours.similarity import similarities

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


def test_an_improved_index_answers_the_same_from_afar(live: Any, vectors: Index) -> None:
    queries = np.random.default_rng(3).normal(size=(5, 4))
    with live(vectors) as url, vc.connect(url) as remote:
        plain = remote.search(vector=queries, k=9)
        vectors.improve(
            whiten=np.random.default_rng(4).normal(size=(30, 4)) * [3, 2, 1, 1], augment=4
        )  # while it serves
        better = vectors.search(vector=queries, k=9)
        assert remote.search(vector=queries, k=9) == better != plain
        assert better[0].improved == "whitened to 4 dimensions, augmented by 4"
        key = better[0][0].id
        for where in (None, "label = 'c1'"):
            assert remote.search(item=key, k=5, where=where) == vectors.search(item=key, k=5, where=where)
        assert remote.search(item=key, k=5, expand=3) == vectors.search(item=key, k=5, expand=3)
        vectors.improve()
        assert remote.search(vector=queries, k=9) == plain


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
    with pytest.raises(DataError, match="Is the server running"):
        vc.connect(url)
    with pytest.raises(InputError, match=r"like http://127\.0\.0\.1:8765"):
        vc.connect("127.0.0.1:8765")


def calibrated(index: Index, threshold: float) -> Calibration:
    rule = Calibration(
        threshold,
        0.01,
        "bound",
        "classes",
        0.95,
        600,
        0.007,
        (0.005, 0.01),
        0.5,
        (-0.5, 1.0),
        (0.1, 0.9),
        index.embedder_hash,
    )
    with Index.open(index.path) as beside:  # as `vicinal calibrate` does, in a process of its own
        beside.calibrate(rule)
    return rule


def same_by_the_library(index: Index, one: Any, other: Any) -> Sameness:
    """As the index itself embeds queries and compares vectors."""
    a, b = (embed_queries(index.embedder(), side) for side in (one, other))
    assert index.calibration is not None
    return Sameness.on(float(similarities(a, b[None], index.distance)[0, 0]), index.calibration)


def test_the_same_or_not(live: Any, pictures: Index, photos: Path) -> None:
    files = sorted(photos.rglob("*.png"))
    with live(pictures) as url, vc.connect(url) as remote:
        assert remote.calibration is None
        with pytest.raises(InputError, match="no similarity threshold"):
            remote.same(files[0], files[1])
        rule = calibrated(pictures, 0.9)
        assert remote.calibration == rule
        for one in files:
            for other in files:
                assert remote.same(one, other) == same_by_the_library(pictures, one, other)
        array = np.asarray(Image.open(files[0]))
        assert remote.same(array, files[1].read_bytes()) == same_by_the_library(pictures, array, files[1])
        near = Embedder.load(pictures.store.folder / "model").same(files[0], files[1])  # by the engine of batches
        assert remote.same(files[0], files[1]).similarity == pytest.approx(near.similarity, abs=1e-6)
        assert remote.search(files[1]) == pictures.search(files[1])


def test_same_of_items_and_vectors(asked: Any, pictures: Index) -> None:
    items, rows = pictures.get()
    with asked(pictures) as client:
        one, other = {"item": items[0].id}, {"vector": rows[1].tolist()}
        reply = client.post("/same", json={"a": one, "b": other}).json()
        hits = pictures.search(vector=rows[0], k=len(items))
        assert reply["similarity"] == next(hit.similarity for hit in hits if hit.id == items[1].id)
        assert (reply["same"], reply["probability"]) == (None, None)
        assert client.post("/same", json={"a": one, "b": {"item": "gone"}}).status_code == 404
        assert client.post("/same", json={"a": one}).status_code == 422
        assert client.post("/same", files={"a": b"x"}).status_code == 422


def test_a_new_calibration_reaches_a_server_that_runs(live: Any, pictures: Index, photos: Path) -> None:
    file = sorted(photos.rglob("*.png"))[0]
    with live(pictures) as url, vc.connect(url) as remote:
        assert {hit.same for hit in remote.search(file)} == {None}
        for threshold in (-0.9, 0.99999999):
            assert calibrated(pictures, threshold) == remote.calibration == pictures.calibration
            found = remote.search(file)
            assert [hit.same for hit in found] == [hit.similarity >= threshold for hit in found]
            assert found == pictures.search(file)
        pictures.compact()  # by one that was opened before it was calibrated
        assert pictures.calibration is not None
        assert pictures.calibration.threshold == 0.99999999


def test_queries_drawn_towards_what_they_find(live: Any, vectors: Index) -> None:
    queries = np.random.default_rng(3).normal(size=(6, 4))
    with live(vectors) as url, vc.connect(url) as remote:
        for where in (None, "label = 'c1'"):
            assert remote.search(vector=queries, k=5, where=where, expand=3) == [
                vectors.search(vector=query, k=5, where=where, expand=3) for query in queries
            ]
            expected = vectors.search(item="n3", k=5, where=where, expand=3)
            assert remote.search(item="n3", k=5, where=where, expand=3) == expected
            plain = {hit.id: hit for hit in remote.search(item="n3", k=60, where=where)}
            assert list(expected) == [plain[hit.id] for hit in expected]  # verdicts are about the query itself


def test_verdicts_of_drawn_queries_are_the_plain_ones(live: Any, pictures: Index, photos: Path) -> None:
    calibrated(pictures, 0.999)
    with live(pictures) as url, vc.connect(url) as remote:
        for file in photos.rglob("*.png"):
            plain = {hit.id: (hit.similarity, hit.same) for hit in remote.search(file)}
            drawn = remote.search(file, expand=2)
            assert {hit.id: (hit.similarity, hit.same) for hit in drawn} == plain
            assert (drawn.expanded, drawn.reranked) == (2, False)


def test_hits_in_the_order_of_shared_neighbours(live: Any, vectors: Index) -> None:
    queries = np.random.default_rng(5).normal(size=(4, 4))
    anew = {"k": 5, "rerank": Reranking()}
    plain = [vectors.search(vector=query, k=5) for query in queries]
    with live(vectors) as url, vc.connect(url) as remote:
        for how in ({}, {"where": "label = 'c1'"}, {"expand": 3}):
            expected = [vectors.search(vector=query, **anew, **how) for query in queries]
            assert remote.search(vector=queries, **anew, **how) == expected
            assert expected != plain
            assert remote.search(item="n3", **anew, **how) == vectors.search(item="n3", **anew, **how)
        vectors.add(vectors=[queries[0]], ids=["new"])
        assert remote.search(vector=queries[0], **anew) == vectors.search(vector=queries[0], **anew)
        assert remote.search(vector=queries[0], k=1, rerank=Reranking())[0].id == "new"
        assert remote.search(vector=queries[0], rerank=True) == remote.search(vector=queries[0], rerank=Reranking())
        with pytest.raises(InputError, match=r"re-ranks as Reranking\(\) says; got Reranking\(near=3"):
            remote.search(vector=queries[0], rerank=Reranking(near=3))
    with live(vectors, max_reranked=60) as url, vc.connect(url) as remote:
        with pytest.raises(InputError, match="of at most 60 items; this one has 61"):
            remote.search(vector=queries[0], rerank=Reranking())
        assert remote.search(vector=queries[0]) == vectors.search(vector=queries[0])


def test_values_are_changed(live: Any, vectors: Index) -> None:
    with live(vectors, token=TOKEN, writable=True) as url, vc.connect(url, token=TOKEN) as remote:
        assert remote.update("year < 10", {"label": "old", "secret": None}) == 10
        assert vectors.count("label = 'old'") == 10
        assert vectors.count("secret is null") == 10
        assert remote.update({"id": "none such"}, {"label": "old"}) == 0
        with pytest.raises(InputError, match="cannot be changed"):
            remote.update("year < 10", {"id": "other"})
        with pytest.raises(InputError, match="where is missing"):
            remote.update(" ", {"label": "old"})


def test_values_of_added_pictures_keep_their_kind(live: Any, tmp_path: Path, photos: Path, model: Any) -> None:
    files = sorted(photos.rglob("*.png"))[:3]
    with Index.build(tmp_path / "new.index", model) as index, live(index, token=TOKEN, writable=True) as url:
        with vc.connect(url, token=TOKEN) as remote:
            given = {"tall": [True, False, None], "share": [0.5, float("nan"), 1.0]}
            remote.add(files, ids=[1, 2, 3], labels=[True, False, None], metadata=given)
        assert [(item.id, item.label, dict(item.metadata)) for item in index.get()[0]] == [
            (1, True, {"tall": True, "share": 0.5}),
            (2, False, {"tall": False}),
            (3, None, {"share": 1.0}),
        ]


def test_few_connections_are_kept(live: Any, vectors: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    connect = http.client.HTTPConnection.connect
    monkeypatch.setattr(http.client.HTTPConnection, "connect", lambda self: (opened.append(self), connect(self))[1])
    queries = np.random.default_rng(4).normal(size=(20, 4))
    with live(vectors) as url:
        with vc.connect(url) as remote:
            for _ in range(5):
                remote.search(vector=queries, k=2)
            assert len(opened) <= 8
        assert all(connection.sock is None for connection in opened)
