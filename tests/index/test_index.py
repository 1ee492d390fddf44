"""Index: build, bring up to date, search, re-embed, refuse; vectors from elsewhere."""

from __future__ import annotations

import copy
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import vicinal as vc
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError, NotFinite, UnknownName
from vicinal.index import Index

pytestmark = pytest.mark.unit


@pytest.fixture
def built(tmp_path, model, photos):
    with Index.build(tmp_path / "x.index", model, photos) as index:
        yield index


def test_a_folder_is_embedded_and_searched(built, model, photos):
    assert built.changes.added == 3
    assert len(built) == 3
    hits = built.search(photos / "a" / "1.png", k=2)
    assert hits[0].path == str(photos / "a" / "1.png")
    assert hits[0].label == "a"
    assert hits[0].similarity == pytest.approx(1)
    assert hits.recall == 1
    assert len(built.search(photos / "a" / "1.png", k=10)) == 3
    assert [hit.label for hit in built.search(photos / "a" / "1.png", where={"label": "b"})] == ["b"]
    several = built.search(photos / "a")
    assert [hits[0].id for hits in several] == [str(photos / "a" / "1.png"), str(photos / "a" / "2.png")]
    with Image.open(photos / "b" / "1.png") as image:
        assert built.search(image)[0].label == "b"
        assert built.search(np.asarray(image))[0].label == "b"
    vectors = model.encode([str(photos / "b" / "1.png")])
    assert built.nearest(vectors, k=1)[0].tolist() == [[str(photos / "b" / "1.png")]]
    assert built.search(vector=vectors[0], k=1)[0].label == "b"
    assert vc.Index is Index


def test_an_item_finds_others_and_not_itself(built, photos, monkeypatch):
    found = built.search(item=str(photos / "a" / "1.png"))
    assert {hit.id for hit in found} == {str(photos / "a" / "2.png"), str(photos / "b" / "1.png")}
    monkeypatch.chdir(photos)
    assert built.search(item="a/1.png", k=1)[0] == found[0]
    with pytest.raises(InputError, match=r"has no item 'c\.png'"):
        built.search(item="c.png")


def test_refresh_embeds_what_is_new_or_changed_and_removes_what_is_gone(built, photos, tmp_path):
    assert built.refresh(photos).unchanged == 3
    assert Index.build(tmp_path / "x.index", built.embedder(), photos).changes.unchanged == 3
    os.utime(photos / "a" / "1.png")  # another time, the same content
    (photos / "a" / "2.png").unlink()
    shutil.copy(photos / "a" / "1.png", photos / "b" / "1.png")
    Image.new("RGB", (9, 9), "red").save(photos / "b" / "new.png")
    (photos / "b" / "bad.png").write_bytes(b"not an image")
    before = built.get("label = 'b'")[1]
    changes = built.refresh(photos)
    assert (changes.added, changes.updated, changes.removed, changes.unchanged) == (1, 1, 1, 1)
    [(name, reason)] = changes.skipped
    assert name == str(photos / "b" / "bad.png")
    assert "cannot be read as an image" in reason
    assert not np.array_equal(built.get("label = 'b'")[1][0], before[0])
    assert built.verify() == []


def test_values_that_the_data_does_not_give_stay(built, photos):
    assert built.update("label = 'a'", {"year": 1999}) == 2
    assert built.refresh(photos).updated == 0
    assert built.count("year = 1999") == 2
    assert built.remove(ids=[str(photos / "a" / "1.png"), "unknown"]) == 1
    assert built.refresh(photos).added == 1
    assert built.add(str(photos / "a" / "1.png"), labels=["other"]).updated == 1
    (photos / "a" / "1.png").unlink()
    assert built.refresh(photos).removed == 1


def test_a_table_brings_its_columns_along(tmp_path, model, photos):
    table = photos / "birds.csv"
    table.write_text("path,label,year,place\na/1.png,wren,2021,\nb/1.png,crow,2019,Ulm\n")
    with Index.build(tmp_path / "t.index", model, table) as index:
        assert index.columns["year"] == "integer"
        assert [hit.label for hit in index.search(photos / "a" / "1.png", where="year > 2020")] == ["wren"]
        assert [hit.metadata for hit in index.search(photos / "a" / "1.png", where="place is not null")] == [
            {"year": 2019, "place": "Ulm"}
        ]


def test_a_dataset_in_memory_and_items_without_labels(tmp_path, model, photos):
    images = np.random.default_rng(0).integers(0, 256, (5, 9, 9), dtype=np.uint8)
    with Index.build(tmp_path / "d.index", model, vc.data.arrays(images, list("ppqqq"), name="tiny")) as index:
        assert {hit.label for hit in index.search(item="tiny/0")} == {"p", "q"}
        assert index.search(images, k=1)[4][0].id == "tiny/4"
    with Index.build(tmp_path / "u.index", model, photos / "a") as index:
        assert [hit.label for hit in index.search(photos / "a" / "1.png")] == [None, None]
        image = np.zeros((5, 5), np.uint8)
        with pytest.raises(InputError, match="need ids"):
            index.add([image])
        assert index.add([image], ids=["black"]).added == 1
        assert index.add([image], ids=["black"]).unchanged == 1


def test_another_embedder_is_refused_with_the_command_that_changes_it(built, photos, tmp_path):
    torch.manual_seed(1)
    other = Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16})
    with pytest.raises(InputError, match=r"vicinal index reembed .*x\.index MODEL"):
        Index.build(tmp_path / "x.index", other, photos)
    other.save(tmp_path / "other")
    with pytest.raises(InputError, match=r"reembed \S+ \S+/other \("):
        Index.build(tmp_path / "x.index", tmp_path / "other", photos)
    row = np.ones((1, 3))
    with pytest.raises(InputError, match="must say which one made them"):
        built.add(vectors=row, ids=["x"])
    with pytest.raises(InputError, match="vicinal index reembed"):
        built.add(vectors=row, ids=["x"], embedder=other)
    assert built.add(vectors=row, ids=["x"], embedder=built.embedder_hash).added == 1


def stopped(*_):
    raise KeyboardInterrupt


def test_another_embedder_takes_over_when_it_is_done_and_can_be_undone(built, photos, tmp_path, monkeypatch):
    torch.manual_seed(1)
    other = Embedder("convnet", dim=5, options={"widths": [4, 8], "size": 16})
    reader = Index.open(tmp_path / "x.index")
    before = built.get()[1]
    with monkeypatch.context() as patch:  # stopped before it took over
        patch.setattr("vicinal.index.folder.IndexFolder.finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            built.reembed(other)
    assert reader.dim == 3
    changes = built.reembed(other)
    assert (changes.updated, changes.unchanged) == (0, 3)  # nothing had to be done twice
    for index in (built, reader):
        assert index.dim == 5
        assert index.search(photos / "a" / "1.png", k=1)[0].similarity == pytest.approx(1)
    with pytest.raises(InputError, match="already has this model"):
        built.reembed(other)
    built.rollback()
    assert np.array_equal(reader.get()[1], before)
    assert reader.search(photos / "a" / "1.png", k=1)[0].similarity == pytest.approx(1)
    reader.close()


def test_vectors_from_elsewhere(tmp_path):
    vectors = np.eye(3)
    index = Index.of_vectors(
        tmp_path / "v.index", vectors, ids=["a", "b", "c"], labels=[1, 2, None], metadata={"x": [1.5, None, 3]}
    )
    assert index.search(vectors[1], k=1)[0].label == 2
    assert index.search(vectors, k=1)[2][0].metadata == {"x": 3.0}
    ids, values = index.nearest(vectors, k=2)
    assert ids.tolist() == [["a", "b"], ["b", "a"], ["c", "a"]]
    assert values.tolist() == [[1, 0]] * 3
    assert index.add(vectors=vectors[:1], ids=["c"]).updated == 1
    with pytest.raises(InputError, match="has no embedder"):
        index.add("photo.jpg")
    for query in ("unknown.jpg", ["unknown.jpg"], tmp_path / "unknown.jpg"):
        with pytest.raises(InputError, match=r"has no embedder.*Search with vectors \(vector="):
            index.search(query)
    with pytest.raises(InputError, match="is already an index"):
        Index.of_vectors(tmp_path / "v.index", vectors)
    index.close()


def test_bad_questions_get_one_clear_sentence(built, tmp_path, photos):
    (tmp_path / "cut.png").write_bytes((photos / "a" / "1.png").read_bytes()[:60])
    for ask, kind, said in [
        (lambda: built.search(tmp_path / "cut.png"), DataError, "cannot be read as an image"),
        (lambda: built.search(tmp_path / "none.png"), DataError, "cannot be read as an image"),
        (lambda: built.search(vector=np.ones(4)), InputError, "have 3 numbers; got 4"),
        (lambda: built.nearest([[np.nan, 0, 0]]), NotFinite, "NaN or infinity"),
        (lambda: built.nearest([[1e300, 0, 0]]), NotFinite, "too large for float32"),
        (lambda: built.search(photos / "a" / "1.png", k=0), InputError, "at least 1"),
        (lambda: built.search(vector=np.ones(3), expand=-1), InputError, "expand must be at least 0"),
        (lambda: built.nearest([[1, 2], [3]]), InputError, "rows of different lengths"),
        (lambda: built.search(photos / "a" / "1.png", where="lable = 'a'"), UnknownName, "did you mean 'label'"),
        (lambda: built.search(), InputError, "Give one of"),
        (lambda: built.update("label = 'a'", {"path": "x"}), InputError, "cannot be changed"),
        (lambda: built.update("label = 'a'", {"label": 3}), InputError, "holds texts"),
        (lambda: built.refresh(tmp_path / "nowhere"), DataError, "does not exist"),
        (lambda: Index.open(photos), DataError, "is not an index"),
        (lambda: Index.of_vectors(tmp_path / "e", np.eye(2), ids=["a", "a"]), InputError, "all be different"),
        (
            lambda: Index.of_vectors(tmp_path / "e", np.eye(2), metadata={"id": [1, 2]}),
            InputError,
            "must not be called",
        ),
        (lambda: Index.of_vectors(tmp_path / "e", np.eye(2), distance="taxi"), UnknownName, "distance"),
    ]:
        with pytest.raises(kind, match=said):
            ask()


def test_an_empty_index_answers(tmp_path, model, photos):
    with Index.build(tmp_path / "e.index", model) as index:
        assert len(index) == 0
        assert len(index.search(photos / "a" / "1.png")) == 0
        assert index.nearest(np.ones((2, 3)))[0].shape == (2, 0)
        assert index.remove("label = 'x'") == 0
        assert index.verify() == []
        with pytest.raises(InputError, match="nothing to measure"):
            index.measure()


def test_a_damaged_model_is_reported(built):
    path = built._generations.latest().folder / "model" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "model/ cannot be read" in built.verify()[0]


def test_training_goes_on_without_changing_what_an_index_embeds_with(tmp_path, model, photos):
    mine = copy.deepcopy(model)
    with Index.build(tmp_path / "t.index", mine, photos) as index:
        with torch.no_grad():
            for weight in mine.parameters():
                weight.add_(torch.randn_like(weight))
        assert index.search(photos / "a" / "1.png", k=1)[0].similarity == pytest.approx(1.0, abs=1e-6)
        assert index.embedder().identity() == index.embedder_hash != mine.identity()


def test_it_measures_itself(tmp_path):
    with Index.of_vectors(tmp_path / "m.index", np.random.default_rng(0).normal(size=(400, 8))) as index:
        found = index.measure(k=3)
        assert found.items == 400
        assert found.recall > 0.9
        assert found.codes > 0
        assert "in addition for fast" in str(found)
        hits = index.search(index.get()[1][0], k=3, fast=True)
        assert not hits.exact  # whatever its recall
        assert hits.measured
        with pytest.raises(InputError, match="needs no preparation"):
            index.prepare_fast()


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_exported_and_imported_again_it_is_the_same(built, tmp_path, suffix):
    from vicinal.index.exchange import read_vectors

    built.update("label = 'a'", {"year": 7})
    assert built.export(tmp_path / f"all.{suffix}") == 3
    found = read_vectors(tmp_path / f"all.{suffix}")
    items, vectors = built.get()
    assert np.array_equal(found.vectors, vectors)
    assert list(found.ids) == [item.id for item in items]
    assert list(found.labels) == ["a", "a", "b"]
    assert found.embedder == built.embedder_hash
    assert list(found.metadata["year"][:2]) == [7, 7]


def test_exported_to_faiss(built, tmp_path):
    faiss = pytest.importorskip("faiss")
    built.export(tmp_path / "all.faiss")
    items, vectors = built.get()
    found = faiss.read_index(str(tmp_path / "all.faiss")).search(vectors, 1)[1]
    assert found[:, 0].tolist() == [0, 1, 2]
    assert (tmp_path / "all.ids.txt").read_text().splitlines() == [item.id for item in items]
    with pytest.raises(InputError, match=r"\.csv"):
        built.export(tmp_path / "all.csv")
