"""`vicinal index` and `vicinal search`, as a person types them."""

from __future__ import annotations

import json
import re
import sys
import time

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from starlette.testclient import TestClient
from typer.testing import CliRunner

from vicinal.cli.calibrate import calibrate
from vicinal.cli.classify import classify
from vicinal.cli.embed import embed
from vicinal.cli.index import index
from vicinal.cli.main import app
from vicinal.cli.search import search
from vicinal.cli.serve import serve
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError
from vicinal.index import Index
from vicinal.index.map import lay_out
from vicinal.index.server import ServerSettings, create_app

pytestmark = pytest.mark.unit
LOCAL = {"base_url": "http://127.0.0.1:8765"}


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(["model", "new"]):
        torch.manual_seed(seed)
        Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16}).save(tmp_path / name)
    rng = np.random.default_rng(0)
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 20), dtype=np.uint8)).save(tmp_path / "photos" / name)
    return tmp_path


def run(verb, *arguments):
    app = typer.Typer()
    app.command()(verb)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return re.sub(r"[ \n]+", " ", result.output), result.exit_code


def test_index_and_search(work):
    said, code = run(index, "model", "photos", "--out", "x.index", "--no-progress")
    assert code == 0
    assert "3 items, 3 dimensions, cosine" in said
    assert "3 added" in said
    (work / "photos" / "a" / "2.png").unlink()
    (work / "photos" / "b" / "bad.png").write_bytes(b"no")
    said, _ = run(index, "x.index", "photos", "--no-progress")
    assert "1 removed, 2 unchanged, 1 item skipped" in said
    assert said.count("bad.png") == 1
    assert "bad.png: cannot be read" in said
    said, _ = run(search, "x.index", "photos/b/1.png", "--k", "1", "--sheet", "hits.png")
    assert "exact" in said
    assert "1.000000\tb\t" in said
    with Image.open("hits.png") as page:
        assert page.size[0] > 200
    said, _ = run(search, "x.index", "photos/b/1.png", "--json", "--where", "label = 'a'", "--fast")
    answer = json.loads(said)
    assert answer["recall"] == 1.0
    assert answer["exact"]  # there are few
    assert [hit["label"] for hit in answer["hits"]] == ["a"]
    said, _ = run(search, "x.index", "--item", "photos/b/1.png")
    assert "photos/a/1.png" in said
    np.save("v.npy", np.ones(3, np.float32))
    assert "2 found" in run(search, "x.index", "--vector", "v.npy")[0]
    assert "query drawn towards 2 items" in run(search, "x.index", "--vector", "v.npy", "--expand", "2")[0]
    answer = json.loads(run(search, "x.index", "--vector", "v.npy", "--expand", "2", "--rerank", "--json")[0])
    assert (answer["expanded"], answer["reranked"]) == (2, True)
    with pytest.raises(InputError, match="Give one of"):
        run(search, "x.index")
    with pytest.raises(DataError, match=r"no file none\.png"):
        run(search, "x.index", "none.png")


def test_images_of_a_folder_that_cannot_be_read_are_listed_and_the_others_sought(work):
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    bad = work / "photos" / "a" / "bad.png"
    bad.write_bytes(b"no")
    for verb, how in ((search, ["--k", "1"]), (classify, ["--threshold", "0.5"])):
        said, code = run(verb, "x.index", "photos", *how, "--json")
        assert code == 0
        assert re.search(r"skipped: photos/a/bad.png cannot be read as an image", said)
        assert said.count("similarity") == 3
        with pytest.raises(DataError, match=r"photos: 1 of the 4 images cannot be read\.[\s\S]*--skip-bad"):
            run(verb, "x.index", "photos", *how, "--no-skip-bad")
        with pytest.raises(DataError, match="cannot be read as an image"):
            run(verb, "x.index", bad, *how)
    (work / "worse").mkdir()
    bad.rename(work / "worse" / "bad.png")
    with pytest.raises(DataError, match="worse: none of the 1 images can be read"):
        run(search, "x.index", "worse")


def test_an_item_without_a_label_has_an_empty_field_and_an_empty_index_says_so(work):
    np.save("v.npy", np.ones(3, np.float32))
    with Index.of_vectors(work / "plain.index", np.eye(3)) as plain:
        assert "1\t0.577350\t\t0" in run(search, "plain.index", "--vector", "v.npy")[0]
        plain.remove(ids=[0, 1, 2])
        assert "plain.index is empty" in run(search, "plain.index", "--vector", "v.npy")[0]


def test_json_says_what_was_done(work):
    def told(*arguments):
        result = CliRunner().invoke(app, ["index", *arguments, "--json", "--no-progress"])
        assert result.stderr == ""
        return json.loads(result.stdout), result.exit_code

    (work / "photos" / "b" / "bad.png").write_bytes(b"no")
    made, code = told("model", "photos", "--out", "x.index")
    [skipped] = made.pop("skipped")
    assert code == 0
    assert skipped["item"].endswith("bad.png")
    assert "cannot be read" in skipped["reason"]
    about = {"index": "x.index", "dim": 3, "distance": "cosine", "numbers": "float32"}
    assert made == {**about, "items": 3, "added": 3, "updated": 0, "removed": 0, "unchanged": 0}
    (work / "photos" / "b" / "bad.png").unlink()
    (work / "photos" / "a" / "2.png").unlink()
    changed, _ = told("x.index", "photos", "--remove", "label = 'b'", "--compact", "--export", "x.npz", "--verify")
    counts = {"added": 0, "updated": 0, "removed": 2, "unchanged": 2, "skipped": []}
    assert changed == {**about, "items": 1, **counts, "given_back": 2, "exported": 1, "problems": []}
    assert told("x.index", "--measure")[0]["measured"]["items"] == 1
    for rows in work.glob("x.index/generation-*/vectors.f32"):
        rows.write_bytes(bytes(rows.stat().st_size))
    damaged, code = told("x.index", "--verify")
    assert (len(damaged["problems"]) > 0, code) == (True, 1)


def test_what_cannot_be_read_is_an_error_where_that_is_asked_for(work):
    (work / "photos" / "b" / "bad.png").write_bytes(b"no")
    result = CliRunner().invoke(app, ["index", "model", "photos", "--out", "x.index", "--no-skip-bad", "--no-progress"])
    assert isinstance(result.exception, DataError)
    assert "1 item cannot be read; the others are in x.index" in str(result.exception)
    assert (result.output + str(result.exception)).count("bad.png") == 1
    assert run(index, "x.index", "photos", "--skip-bad", "--no-progress")[1] == 0
    assert "3 items" in run(index, "x.index")[0]


@pytest.mark.parametrize(
    ("extra", "verb", "arguments"),
    [
        ("vicinal.index.server", serve, ["missing.index"]),
        ("faiss", index, ["missing.index", "--export", "x.faiss"]),
        ("pyarrow", index, ["missing.index", "--export", "x.parquet"]),
    ],
)
def test_that_there_is_no_index_is_said_before_a_missing_extra(work, monkeypatch, extra, verb, arguments):
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(DataError, match=r"missing\.index is not an index"):
        run(verb, *arguments)


def test_that_there_is_no_data_is_said_before_a_missing_extra(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DataError, match=r"missing\.csv does not exist"):
        run(index, "model", "missing.csv", "--out", "x.index", "--store", "postgresql://host/database")
    assert not (work / "x.index").exists()  # an empty index would be found, and nothing in it


def test_fast_search_does_not_call_itself_exact(work):
    pytest.importorskip("faiss")
    np.save("many.npy", np.repeat(np.eye(40, dtype=np.float32), 10, axis=0))
    run(index, "fast.index", "--import", "many.npy")
    assert re.search(
        r"fast, recall [01]\.\d{4} \(measured 20..-", run(search, "fast.index", "--vector", "many.npy", "--fast")[0]
    )
    with pytest.raises(InputError, match="give both"):
        run(index, "fast.index", "--half")
    with pytest.raises(InputError, match="in its own folder"):
        run(index, "fast.index", "--prepare-fast")


def test_looking_after_an_index(work):
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    assert "every byte is as it was written" in run(index, "x.index", "--verify")[0]
    assert "all.parquet: 3 items" in run(index, "x.index", "--export", "all.parquet")[0]
    said, _ = run(index, "fresh.index", "--import", "all.parquet")
    assert "3 added" in said
    with pytest.raises(InputError, match=r"knows its embedder \w{12} by name alone.*--out fresh\.index"):
        run(search, "fresh.index", "photos/b/1.png")
    assert "every byte" in run(index, "fresh.index", "--verify")[0]
    run(index, "fresh.index", "--compact")
    run(index, "model", "--out", "fresh.index")
    assert "1.000000\tb\t" in run(search, "fresh.index", "photos/b/1.png", "-k", "1")[0]
    assert "3 unchanged" in run(index, "fresh.index", "photos", "--no-progress")[0]  # nothing is embedded again
    run(index, "model", "--import", "all.parquet", "--out", "whole.index")
    assert "1.000000\tb\t" in run(search, "whole.index", "photos/b/1.png", "-k", "1")[0]
    with pytest.raises(InputError, match="has the vectors of the embedder"):
        run(index, "new", "--import", "all.parquet", "--out", "other.index")
    with pytest.raises(InputError, match=r"--model new \("):
        run(index, "new", "photos", "--out", "x.index")
    assert "3 updated" in run(index, "x.index", "--model", "new", "--no-progress")[0]
    with pytest.raises(InputError, match="--model FOLDER"):  # vectors of the former model
        run(index, "x.index", "--import", "all.parquet")
    run(index, "x.index", "--rollback")
    assert "3 updated" in run(index, "x.index", "--import", "all.parquet")[0]
    assert "1 item removed" in run(index, "x.index", "--remove", "label = 'b'")[0]
    assert "rows given back" in run(index, "x.index", "--compact")[0]
    assert "recall" in run(index, "x.index", "--measure")[0]
    for vectors in (work / "x.index").glob("generation-*/vectors.f32"):
        vectors.write_bytes(b"\0" * vectors.stat().st_size)
    said, code = run(index, "x.index", "--verify")
    assert code == 1
    assert "are not what was written" in said


def test_what_makes_no_sense_is_refused(work):
    with pytest.raises(InputError, match="say what to index and where"):
        run(index, "model")
    with pytest.raises(DataError, match="is not an index"):
        run(index, "photos")
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    with pytest.raises(InputError, match="--out is for a new index"):
        run(index, "x.index", "photos", "--out", "y.index")


def test_what_would_be_passed_over_is_refused(work):
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    np.savez("v.npz", embeddings=np.eye(3, dtype=np.float32), ids=["p", "q", "r"])
    for arguments, said in [
        (("y.index", "--import", "v.npz", "--verify", "--compact"), r"--verify, --compact cannot go with --import"),
        (("y.index", "photos", "--import", "v.npz"), "DATA cannot go with --import"),
        (("x.index", "--import", "v.npz", "--distance", "cosine"), "--distance cannot go with x.index"),
        (("photos", "--import", "v.npz", "--out", "y.index"), "whose first argument is a model; photos is none"),
        (("model", "--import", "v.npz"), "--out FOLDER"),
        (("model", "photos", "--out", "y.index", "--export", "a.npz"), "--export cannot go with making an index"),
        (("x.index", "--store", "milvus://host:1"), "--store cannot go with an index"),
    ]:
        with pytest.raises(InputError, match=said):
            run(index, *arguments)


def test_outputs_are_checked_before_the_work(work, monkeypatch):
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    (work / "file").touch()
    for place in ("file/hits.png", "photos"):
        with pytest.raises((DataError, InputError), match=r"Cannot write|must end in"):
            run(search, "x.index", "photos/b/1.png", "--sheet", place)
    with pytest.raises(InputError, match="--sheet must end in"):
        run(search, "x.index", "photos/b/1.png", "--sheet", "hits.docx")
    for place in ("all.npz", "all.faiss", "map.parquet"):
        flag = "--export-map" if place == "map.parquet" else "--export"
        with pytest.raises(DataError, match="Cannot write"):
            run(index, "x.index", "--remove", "label = 'a'", flag, f"file/{place}")
    assert "3 items" in run(index, "x.index")[0]  # nothing had been removed
    with pytest.raises(DataError, match=r"file/y\.index cannot be written"):
        run(index, "model", "photos", "--out", "file/y.index", "--no-progress")
    monkeypatch.setattr("vicinal.embedder.Embedder.encode", lambda *_, **__: pytest.fail("the work had begun"))
    monkeypatch.setattr("vicinal._util.files._beside", lambda path: work / "file" / path.name)
    with pytest.raises(DataError, match="Cannot write model"):
        run(calibrate, "model", "digits")


def test_vectors_of_another_model_are_refused(work):
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    for name in ("model", "new"):
        run(embed, name, "photos", "--out", f"{name}.npz", "--no-progress")
    assert "3 found" in run(search, "x.index", "--vector", "model.npz")[0]
    with pytest.raises(InputError, match="--model FOLDER"):
        run(search, "x.index", "--vector", "new.npz")
    assert "3 updated" in run(index, "x.index", "--import", "model.npz")[0]  # under the same ids
    with pytest.raises(InputError, match="--model FOLDER"):
        run(index, "x.index", "--import", "new.npz")


def test_the_map_is_exported(work):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
    run(index, "model", "photos", "--out", "i")
    text, code = run(index, "i", "--export-map", "map.parquet")
    assert (text.strip(), code) == ("map.parquet: 3 items", 0)
    assert parquet.read_table("map.parquet")["label"].to_pylist() == ["a", "a", "b"]


def test_the_map_is_made_with_the_index_and_found_by_whoever_looks(work, monkeypatch):
    said, code = run(index, "model", "photos", "--out", "x.index", "--map", "--no-progress")
    assert code == 0
    assert "the map of 3 items is kept, by PCA" in said
    with Index.open("x.index") as opened:
        assert opened.verify() == []
        expected = lay_out(opened.get()[1]).places
    with monkeypatch.context() as patched:
        patched.setattr("vicinal.index.map.lay_out", None)  # nobody makes it again
        said, _ = run(index, "x.index", "--map", "--no-progress")
        assert "the map of 3 items is kept" in said
        with Index.open("x.index") as opened, TestClient(create_app(opened, ServerSettings()), **LOCAL) as client:
            while (head := client.get("/map")).status_code == 202:
                time.sleep(0.01)
            assert head.json()["count"] == 3
            assert client.get("/map/points").content[:24] == expected.tobytes()
    (work / "photos" / "a" / "2.png").unlink()
    said, _ = run(index, "x.index", "photos", "--map", "--no-progress")
    assert "the map of 2 items is kept" in said


def test_a_map_that_cannot_be_kept_is_said(work, monkeypatch):
    run(index, "model", "photos", "--out", "x.index", "--map", "--no-progress")
    (work / "photos" / "a" / "2.png").unlink()  # and the map that is there is of other items
    run(index, "x.index", "photos", "--no-progress")

    def refuse(path):
        raise DataError(f"{path} cannot be written.")

    monkeypatch.setattr("vicinal.index.map.replacing", refuse)
    with pytest.raises(DataError, match="The map cannot be kept in "):
        run(index, "x.index", "--map", "--no-progress")
