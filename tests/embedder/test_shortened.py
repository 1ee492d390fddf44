"""Embedders whose embeddings take fewer bytes: file, index and the curve of sizes say one thing of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.data import arrays
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError
from vicinal.evaluation import evaluate, score_sizes
from vicinal.evaluation.files import read_table
from vicinal.index import Index
from vicinal.index.exchange import read_vectors
from vicinal.neighbours.rounding import as_bits, as_int8, middle_of, pack_rows, unpack_rows


@pytest.fixture
def items() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 6)
    rows = rng.normal(size=(8, 24))[labels] + 1.2 * rng.normal(size=(48, 24)) + 0.5
    return rows.astype(np.float32), labels


@pytest.fixture
def model() -> Embedder:
    return Embedder("linear", dim=None, options={"features": 24})


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_rounding_by_loops(items: tuple[np.ndarray, np.ndarray]) -> None:
    rows = items[0].astype(np.float64)
    small, bits, middle = as_int8(rows), as_bits(rows, middle_of(rows)), middle_of(rows)
    for place, row in enumerate(rows):
        largest = max(abs(value) for value in row)
        length = sum(value * value for value in row) ** 0.5
        for column, value in enumerate(row):
            assert small[place, column] == round(127 * value / largest)
            assert bits[place, column] == (1 if value > middle[column] else -1)
            ordered = sorted(other[column] / np.linalg.norm(other) for other in rows)
            assert middle[column] == pytest.approx((ordered[23] + ordered[24]) / 2)
        assert length > 0
    assert not as_int8(np.zeros((1, 3))).any()


@pytest.mark.parametrize("numbers", ["int8", "bits"])
@pytest.mark.parametrize("dim", [1, 7, 8, 24])
def test_what_is_rounded_stays_as_it_is(items: tuple[np.ndarray, np.ndarray], numbers: str, dim: int) -> None:
    once = unpack_rows(pack_rows(items[0][:, :dim], numbers), numbers, dim)
    assert np.array_equal(unpack_rows(pack_rows(once, numbers), numbers, dim), once)
    assert np.array_equal(as_int8(unpack_rows(as_int8(once), "int8", dim)), as_int8(once))  # as an index keeps both
    assert np.linalg.norm(once, axis=1) == pytest.approx(1.0)
    assert pack_rows(once, numbers).nbytes == 48 * (dim if numbers == "int8" else -(-dim // 8))


@pytest.mark.parametrize("dim", [None, 10])
@pytest.mark.parametrize("numbers", ["float32", "int8", "bits"])
def test_a_point_of_the_curve(
    items: tuple[np.ndarray, np.ndarray], model: Embedder, tmp_path: Path, numbers: str, dim: int | None
) -> None:
    rows, labels = items
    np.savez(tmp_path / "data.npz", X=rows, y=labels)
    model.save(tmp_path / "whole")
    run("embed", str(tmp_path / "whole"), str(tmp_path / "data.npz"), "--out", str(tmp_path / "whole.npz"))
    table = read_table(tmp_path / "whole.npz")
    expected = {size.kind: size for size in score_sizes(table.embeddings, table.labels, dims=[dim or 24])}[numbers]
    flags = [] if dim is None else ["--dim", str(dim)]
    flags += ["--middle", str(tmp_path / "whole.npz")] if numbers == "bits" else []
    flags += ["--numbers", numbers, "--json"]
    told = json.loads(run("shorten", str(tmp_path / "whole"), "--out", str(tmp_path / "short"), *flags))
    assert (told["dim"], told["numbers"], told["before"]) == (dim or 24, numbers, 96)
    assert told["bytes"] == int(np.ceil(expected.kept))

    run("embed", str(tmp_path / "short"), str(tmp_path / "data.npz"), "--out", str(tmp_path / "short.npz"))
    with np.load(tmp_path / "short.npz") as file:
        assert file["embeddings"].nbytes == 48 * told["bytes"]
    table = read_table(tmp_path / "short.npz")
    by_file = evaluate(table.embeddings, table.labels, intervals=None)
    assert {name: by_file[name] for name in expected.scores} == pytest.approx(expected.scores, abs=1e-12)
    by_model = evaluate(Embedder.load(tmp_path / "short"), arrays(rows, labels), intervals=None)
    assert {name: by_model[name] for name in expected.scores} == pytest.approx(expected.scores, abs=1e-12)

    run("index", "import", str(tmp_path / "x.index"), str(tmp_path / "short.npz"), "--model", str(tmp_path / "short"))
    with Index.open(tmp_path / "x.index") as index:
        assert index.numbers == ("float32" if numbers == "float32" else "int8")
        hits = index.search(rows[3], k=2)
        assert hits[0].similarity == pytest.approx(1.0)
        own, found = index.store.get()
        assert np.array_equal(found, table.embeddings[[item.id for item in own]])


@pytest.mark.parametrize("fast", [False, True])
def test_an_index_of_integers_is_exact_among_what_it_keeps(tmp_path: Path, fast: bool) -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(700, 20)).astype(np.float32)
    queries = rng.normal(size=(9, 20)).astype(np.float32)
    kept = unpack_rows(as_int8(rows), "int8", 20).astype(np.float64)
    with Index.of_vectors(tmp_path / "x.index", rows[:500], numbers="int8") as index:
        index.add(vectors=rows[500:], ids=list(range(500, 700)))
        assert "int8" in repr(index)
        assert not index.verify()
        files = {path.name: path.stat().st_size for path in (tmp_path / "x.index").rglob("vectors.*")}
        assert files == {"vectors.i8": 700 * 20}
        for query, hits in zip(queries, index.search(vector=queries, k=5, fast=fast), strict=True):
            cosines = kept @ query / np.linalg.norm(query)
            assert [hit.similarity for hit in hits] == pytest.approx(np.sort(cosines)[::-1][:5], abs=1e-7)
            assert [hit.id for hit in hits] == np.argsort(-cosines)[:5].tolist()
        index.remove("id < 100")
        index.compact()
        assert np.array_equal(index.store.get()[1], kept[100:].astype(np.float32))
        index.export(tmp_path / "all.npz")
        index.export(tmp_path / "all.parquet")
    for name in ("all.npz", "all.parquet"):
        assert read_vectors(tmp_path / name).numbers == "int8"
        with Index.import_file(tmp_path / f"{name}.index", tmp_path / name) as again:
            assert again.numbers == "int8"
            assert np.array_equal(again.store.get()[1], kept[100:].astype(np.float32))


def test_photographs_are_rounded_in_the_index_as_by_the_model(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 28, 28), dtype=np.uint8)
    short = Embedder("convnet", dim=16).shortened(8, "int8")
    with Index.build(tmp_path / "x.index", short, arrays(images, np.arange(12))) as index:
        assert (index.dim, index.numbers, index.embedder().numbers) == (8, "int8", "int8")
        for image in images:
            assert index.search(image)[0].similarity == pytest.approx(1.0, abs=1e-9)
        rows = index.store.get()[1]
    assert np.array_equal(unpack_rows(as_int8(rows), "int8", 8), rows)
    assert np.sort(rows, axis=0) == pytest.approx(np.sort(short.encode(images), axis=0), abs=0.02)


def test_it_is_another_embedder(model: Embedder, tmp_path: Path) -> None:
    plain, short = model.identity(), model.shortened(numbers="int8")
    assert short.identity() != plain == model.identity()
    assert model.shortened().identity() == plain
    short.save(tmp_path / "short")
    assert Embedder.load(tmp_path / "short").identity() == short.identity()
    model.save(tmp_path / "plain")
    assert "rounding" not in (tmp_path / "plain" / "config.json").read_text()
    with Index.of_vectors(tmp_path / "x.index", np.eye(24), embedder=model) as index:
        with pytest.raises(InputError, match="embedder"):
            Index.build(tmp_path / "x.index", short)
        index.close()


def test_a_threshold_of_other_similarities_is_left_out(model: Embedder, items: tuple[np.ndarray, np.ndarray]) -> None:
    from vicinal.embedder import calibrate

    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(80), 3)
    rows = (3 * rng.normal(size=(80, 24))[labels] + rng.normal(size=(240, 24))).astype(np.float32)
    model.calibration = calibrate(model, arrays(rows, labels), false_matches=0.1)
    assert model.shortened(8).calibration is None
    assert model.calibration is not None


def test_what_cannot_be_shortened(model: Embedder, tmp_path: Path) -> None:
    euclidean = Embedder("linear", dim=None, normalisation="none", options={"features": 4})
    assert euclidean.shortened(2).encode(np.float32([[3, 4, 5, 6]])).tolist() == [[3.0, 4.0]]
    cases = [
        (lambda: euclidean.shortened(numbers="int8"), "euclidean"),
        (lambda: model.shortened(25), "1 to 24"),
        (lambda: model.shortened(0), "1 to 24"),
        (lambda: Index.of_vectors(tmp_path / "y.index", np.eye(3), numbers="int4"), "int4"),
        (lambda: model.shortened(numbers="int8").shortened(2), "already"),
        (lambda: model.shortened(numbers="int8", middle=np.eye(24)), "numbers='bits'"),
        (lambda: model.shortened(numbers="bits", middle=np.eye(3)), "24 numbers"),
        (
            lambda: Embedder("linear", dim=3, normalisation="softmax", options={"features": 4}).shortened(2),
            "Class probabilities",
        ),
        (lambda: model.shortened(numbers="bits").export_onnx(tmp_path / "x.onnx"), "ONNX"),
        (lambda: Index.of_vectors(tmp_path / "y.index", np.eye(3), distance="euclidean", numbers="int8"), "euclid"),
    ]
    for call, said in cases:
        with pytest.raises(InputError, match=said):
            call()


def test_a_row_that_is_not_finite_is_not_made_up(model: Embedder) -> None:
    rows = np.ones((2, 24), np.float32)
    rows[1, 3] = np.nan
    for numbers in ("int8", "bits"):
        rounded = model.shortened(numbers=numbers).rounded(rows)
        assert np.isfinite(rounded[0]).all()
        assert np.isnan(rounded[1]).all()


def test_damaged_files(model: Embedder, tmp_path: Path) -> None:
    short = model.shortened(numbers="bits", middle=np.random.default_rng(0).normal(size=(5, 24)))
    short.save(tmp_path / "short")
    config = json.loads((tmp_path / "short" / "config.json").read_text())
    config["rounding"]["middle"].pop()
    config["checksum"] = ""
    (tmp_path / "short" / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="23"):
        Embedder.load(tmp_path / "short")
    good = {"embeddings": np.zeros((2, 3), np.uint8), "numbers": np.array("bits"), "dim": np.array(24)}
    for change in (
        {"dim": np.array(30)},
        {"dim": np.array("24")},
        {"numbers": np.array("int8")},
        {"numbers": np.array("x")},
    ):
        np.savez(tmp_path / "bad.npz", **(good | change))
        with pytest.raises(DataError, match="number"):
            read_vectors(tmp_path / "bad.npz")
    np.savez(tmp_path / "good.npz", **good)
    assert read_vectors(tmp_path / "good.npz").vectors.shape == (2, 24)
