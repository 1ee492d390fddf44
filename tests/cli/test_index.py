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
    app = verb if isinstance(verb, typer.Typer) else typer.Typer()
    if app is not verb:
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
    said, _ = run(index, "refresh", "x.index", "photos", "--no-progress")
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
    assert "2 results" in run(search, "x.index", "--vector", "v.npy")[0]
    assert "query expanded with 2 items" in run(search, "x.index", "--vector", "v.npy", "--expand", "2")[0]
    answer = json.loads(run(search, "x.index", "--vector", "v.npy", "--expand", "2", "--rerank", "--json")[0])
    assert (answer["expanded"], answer["reranked"]) == (2, True)
    with pytest.raises(InputError, match="Give exactly one query"):
        run(search, "x.index")
    with pytest.raises(DataError, match=r"none\.png does not exist"):
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
        result = CliRunner().invoke(app, ["index", *arguments, "--json"])
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
    counts = {"added": 0, "updated": 0, "removed": 1, "unchanged": 2, "skipped": []}
    assert told("refresh", "x.index", "photos")[0] == {**about, "items": 2, **counts}
    about["items"] = 1
    assert told("remove", "x.index", "label = 'b'")[0] == {**about, "removed": 1}
    assert told("compact", "x.index")[0] == {**about, "freed": 2}
    assert told("export", "x.index", "x.npz")[0] == {**about, "exported": 1}
    assert told("verify", "x.index") == ({**about, "problems": []}, 0)
    assert told("measure", "x.index")[0]["measured"]["items"] == 1
    assert told("info", "x.index")[0]["columns"]["path"] == "text"
    for rows in work.glob("x.index/generation-*/vectors.f32"):
        rows.write_bytes(bytes(rows.stat().st_size))
    damaged, code = told("verify", "x.index")
    assert (len(damaged["problems"]) > 0, code) == (True, 1)


def test_what_cannot_be_read_is_an_error_where_that_is_asked_for(work):
    (work / "photos" / "b" / "bad.png").write_bytes(b"no")
    result = CliRunner().invoke(app, ["index", "model", "photos", "--out", "x.index", "--no-skip-bad", "--no-progress"])
    assert isinstance(result.exception, DataError)
    assert "1 item could not be read; the others were added to x.index" in str(result.exception)
    assert (result.output + str(result.exception)).count("bad.png") == 1
    assert run(index, "refresh", "x.index", "photos", "--skip-bad", "--no-progress")[1] == 0
    assert "3 items" in run(index, "info", "x.index")[0]


@pytest.mark.parametrize(
    ("extra", "verb", "arguments"),
    [
        ("vicinal.index.server", serve, ["missing.index"]),
        ("faiss", index, ["export", "missing.index", "x.faiss"]),
        ("pyarrow", index, ["export", "missing.index", "x.parquet"]),
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
    run(index, "import", "fast.index", "many.npy")
    assert re.search(
        r"fast, recall [01]\.\d{4} \(measured 20..-", run(search, "fast.index", "--vector", "many.npy", "--fast")[0]
    )
    with pytest.raises(InputError, match="needs no preparation"):
        run(index, "prepare-fast", "fast.index")


def test_looking_after_an_index(work):
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    assert "no corruption found" in run(index, "verify", "x.index")[0]
    assert "all.parquet: 3 items" in run(index, "export", "x.index", "all.parquet")[0]
    said, _ = run(index, "import", "fresh.index", "all.parquet")
    assert "3 added" in said
    with pytest.raises(InputError, match=r"knows its embedder \w{12} by name alone.*--out fresh\.index"):
        run(search, "fresh.index", "photos/b/1.png")
    assert "no corruption found" in run(index, "verify", "fresh.index")[0]
    run(index, "compact", "fresh.index")
    run(index, "model", "--out", "fresh.index")
    assert "1.000000\tb\t" in run(search, "fresh.index", "photos/b/1.png", "-k", "1")[0]
    assert (
        "3 unchanged" in run(index, "refresh", "fresh.index", "photos", "--no-progress")[0]
    )  # nothing is embedded again
    run(index, "import", "whole.index", "all.parquet", "--model", "model")
    assert "1.000000\tb\t" in run(search, "whole.index", "photos/b/1.png", "-k", "1")[0]
    with pytest.raises(InputError, match="has the vectors of the embedder"):
        run(index, "import", "other.index", "all.parquet", "--model", "new")
    with pytest.raises(InputError, match=r"vicinal index reembed x\.index new \("):
        run(index, "new", "photos", "--out", "x.index")
    assert "3 updated" in run(index, "reembed", "x.index", "new", "--no-progress")[0]
    with pytest.raises(InputError, match="vicinal index reembed"):  # vectors of the former model
        run(index, "import", "x.index", "all.parquet")
    run(index, "rollback", "x.index")
    assert "3 updated" in run(index, "import", "x.index", "all.parquet")[0]
    assert "1 item removed" in run(index, "remove", "x.index", "label = 'b'")[0]
    assert "rows freed" in run(index, "compact", "x.index")[0]
    assert "recall" in run(index, "measure", "x.index")[0]
    for vectors in (work / "x.index").glob("generation-*/vectors.f32"):
        vectors.write_bytes(b"\0" * vectors.stat().st_size)
    said, code = run(index, "verify", "x.index")
    assert code == 1
    assert "are corrupted" in said


def test_what_makes_no_sense_is_refused_in_one_sentence(work):
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    for arguments, sentence in [
        (("model", "photos"), "no command 'model'. To use an existing index, put a command first"),
        (("veriffy", "x.index"), "no command 'veriffy'; did you mean 'verify'?"),
        (("x.index", "--verify"), "vicinal index info x.index"),
        (("build", "model", "photos"), "Missing option '--out'"),
        (("export", "x.index"), "Missing argument 'FILE'"),
        (("verify", "x.index", "--half"), "No such option: --half"),
    ]:
        said, code = run(index, *arguments)
        assert code == 2
        assert sentence in said.replace("│ ", "")
    assert run(index)[0].count("Maintain:") == 1  # the list of commands
    with pytest.raises(DataError, match="is not an index"):
        run(index, "info", "photos")
    with pytest.raises(InputError, match=r"The index y\.index does not exist yet"):
        run(index, "model", "--out", "y.index")
    with pytest.raises(InputError, match=r"x\.index is an index, not a model.*vicinal index refresh x\.index photos"):
        run(index, "x.index", "photos", "--out", "y.index")


def test_what_was_settled_when_an_index_was_made_is_not_changed(work):
    run(index, "--out=x.index", "model", "photos", "--no-progress")  # the short form, in any order
    np.savez("v.npz", embeddings=np.eye(3, dtype=np.float32), ids=["p", "q", "r"])
    with pytest.raises(InputError, match="uses the cosine distance; drop distance="):
        run(index, "import", "x.index", "v.npz", "--distance", "euclidean")
    for words in (("model", "photos", "--out", "x.index"), ("import", "x.index", "v.npz")):
        with pytest.raises(InputError, match="its store cannot be changed"):
            run(index, *words, "--store", "milvus://host:1")


def test_add_removes_nothing(work):
    run(index, "model", "photos/a", "--out", "x.index", "--no-progress")
    said, _ = run(index, "add", "x.index", "photos/b", "--no-progress")
    assert "3 items" in said
    assert "1 added" in said


def test_outputs_are_checked_before_the_work(work, monkeypatch):
    run(index, "model", "photos", "--out", "x.index", "--no-progress")
    (work / "file").touch()
    for place in ("file/hits.png", "photos"):
        with pytest.raises((DataError, InputError), match=r"Cannot write|must end in"):
            run(search, "x.index", "photos/b/1.png", "--sheet", place)
    with pytest.raises(InputError, match="--sheet must end in"):
        run(search, "x.index", "photos/b/1.png", "--sheet", "hits.docx")
    for place in ("all.npz", "all.faiss", "map.parquet"):
        words = ["map", "x.index", "--out"] if place == "map.parquet" else ["export", "x.index"]
        with pytest.raises(DataError, match="Cannot write"):
            run(index, *words, f"file/{place}")
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
    assert "3 results" in run(search, "x.index", "--vector", "model.npz")[0]
    with pytest.raises(InputError, match="vicinal index reembed"):
        run(search, "x.index", "--vector", "new.npz")
    assert "3 updated" in run(index, "import", "x.index", "model.npz")[0]  # under the same ids
    with pytest.raises(InputError, match="vicinal index reembed"):
        run(index, "import", "x.index", "new.npz")


def test_the_map_is_exported(work):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
    run(index, "model", "photos", "--out", "i")
    text, code = run(index, "map", "i", "--out", "map.parquet")
    assert (text.strip(), code) == ("map.parquet: 3 items", 0)
    assert parquet.read_table("map.parquet")["label"].to_pylist() == ["a", "a", "b"]


def test_the_map_is_made_with_the_index_and_found_by_whoever_looks(work, monkeypatch):
    said, code = run(index, "model", "photos", "--out", "x.index", "--map", "--no-progress")
    assert code == 0
    assert "map of 3 items saved (PCA)" in said
    with Index.open("x.index") as opened:
        assert opened.verify() == []
        expected = lay_out(opened.get()[1]).positions
    with monkeypatch.context() as patched:
        patched.setattr("vicinal.index.map.lay_out", None)  # nobody makes it again
        said, _ = run(index, "map", "x.index", "--no-progress")
        assert "map of 3 items saved" in said
        with Index.open("x.index") as opened, TestClient(create_app(opened, ServerSettings()), **LOCAL) as client:
            while (head := client.get("/map")).status_code == 202:
                time.sleep(0.01)
            assert head.json()["count"] == 3
            assert client.get("/map/points").content[:24] == expected.tobytes()
    (work / "photos" / "a" / "2.png").unlink()
    said, _ = run(index, "refresh", "x.index", "photos", "--map", "--no-progress")
    assert "map of 2 items saved" in said


def test_a_map_that_cannot_be_kept_is_said(work, monkeypatch):
    run(index, "model", "photos", "--out", "x.index", "--map", "--no-progress")
    (work / "photos" / "a" / "2.png").unlink()  # and the map that is there is of other items
    run(index, "refresh", "x.index", "photos", "--no-progress")

    def refuse(path):
        raise DataError(f"{path} cannot be written.")

    monkeypatch.setattr("vicinal._util.files.replacing", refuse)
    with pytest.raises(DataError, match="The map cannot be saved in "):
        run(index, "map", "x.index", "--no-progress")
