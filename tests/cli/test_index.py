"""`vicinal index` and `vicinal search`, as a person types them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from vicinal.cli.index import index
from vicinal.cli.search import search
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError

pytestmark = pytest.mark.unit


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
    assert "bad.png cannot be read" in said
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
    with pytest.raises(InputError, match="Give one of"):
        run(search, "x.index")
    with pytest.raises(DataError, match=r"no file none\.png"):
        run(search, "x.index", "none.png")


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
    assert "vectors from elsewhere" in said
    assert "3 added" in said
    with pytest.raises(InputError, match="--model FOLDER"):
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


def test_the_map_is_exported(work):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
    run(index, "model", "photos", "--out", "i")
    text, code = run(index, "i", "--export-map", "map.parquet")
    assert (text.strip(), code) == ("map.parquet: 3 items", 0)
    assert parquet.read_table("map.parquet")["label"].to_pylist() == ["a", "a", "b"]
