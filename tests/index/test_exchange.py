"""Files that an index is exported to and imported from: nothing is lost on the way, nothing raw comes of damage."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest

from vicinal.errors import DataError, InputError, VicinalError
from vicinal.index import Index
from vicinal.index.exchange import read_vectors

pytestmark = pytest.mark.unit

KINDS = ["parquet", "npz"]


def content(index):
    items, vectors = index.get()
    return items, vectors.tolist(), index.distance, index.embedder_hash, index.columns


@pytest.mark.parametrize("kind", KINDS)
def test_exported_and_imported_it_is_the_same(tmp_path, kind):
    whole = {"year": [7, None, 8], "weight": [1.5, None, 2.0], "wet": [True, False, None], "place": ["", None, "Ulm"]}
    vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    with Index.of_vectors(
        tmp_path / "x.index",
        vectors,
        ids=["a", "b", "c"],
        labels=["wren", None, ""],
        metadata=whole,
        paths=["/p/a.png", None, "/p/c.png"],
        distance="euclidean",
        embedder="f" * 64,
    ) as index:
        before = content(index)
        index.export(tmp_path / f"all.{kind}")
        with Index.import_file(tmp_path / "y.index", tmp_path / f"all.{kind}") as again:
            assert content(again) == before
            assert again.changes.added == 3
            assert not again.can_embed
        index.remove("id = 'b'")
        assert Index.import_file(tmp_path / "x.index", tmp_path / f"all.{kind}").changes.updated == 2
        assert content(index) == before
    with pytest.raises(InputError, match="compared by euclidean, not by cosine"):
        Index.import_file(tmp_path / "z.index", tmp_path / f"all.{kind}", distance="cosine")
    with (
        Index.of_vectors(tmp_path / "cosine.index", vectors, ids=["a", "b", "c"]) as other,
        pytest.raises(InputError, match="one index has one distance"),
    ):
        Index.import_file(other.path, tmp_path / f"all.{kind}")


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_pictures_goes_on_after_the_journey(tmp_path, model, photos, kind):
    with Index.build(tmp_path / "x.index", model, photos) as index:
        before = content(index)
        index.export(tmp_path / f"all.{kind}")
    with Index.import_file(tmp_path / "y.index", tmp_path / f"all.{kind}", embedder=model) as again:
        assert content(again) == before
        assert again.search(photos / "b" / "1.png", k=1)[0].label == "b"
        (photos / "a" / "2.png").unlink()
        changes = again.refresh(photos)
        assert (changes.unchanged, changes.removed) == (2, 1)  # as if it had been built here


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_index_makes_the_journey(tmp_path, model, kind):
    with Index.build(tmp_path / "x.index", model) as index:
        assert index.export(tmp_path / f"none.{kind}") == 0
        with Index.import_file(tmp_path / "y.index", tmp_path / f"none.{kind}") as again:
            assert (len(again), again.dim, again.embedder_hash) == (0, 3, index.embedder_hash)


def test_queries_of_another_embedder_are_refused(tmp_path, model):
    with Index.of_vectors(tmp_path / "x.index", np.eye(3), embedder=model) as index:
        row = [1.0, 0.0, 0.0]
        for same in (model, model.identity(), None):
            assert index.search(vector=row, k=1, embedder=same)[0].id == 0
            assert index.nearest([row], k=1, embedder=same)[0].tolist() == [[0]]
        for ask in (lambda: index.search(vector=row, embedder="0" * 64), lambda: index.nearest([row], embedder="0")):
            with pytest.raises(InputError, match="what another embedder makes cannot be compared"):
                ask()
    with pytest.raises(InputError, match="gives 3 numbers, compared by cosine"):
        Index.of_vectors(tmp_path / "y.index", np.eye(4), embedder=model)


def test_what_a_killed_one_began_is_not_in_the_index(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("vicinal.index.folder.IndexFolder.finish", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            Index.of_vectors(tmp_path / "x.index", np.eye(2), ids=["a", "b"])
    with Index.of_vectors(tmp_path / "x.index", np.eye(2), ids=["c", "d"]) as index:
        assert [item.id for item in index.get()[0]] == ["c", "d"]


def huge_header() -> bytes:
    """The start of an .npy file whose header promises 10^12 numbers."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


def flipped(sound: bytes) -> bytes:
    damaged = bytearray(sound)
    damaged[150] ^= 64
    return bytes(damaged)


def test_damaged_files_are_named(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    with Index.of_vectors(tmp_path / "x.index", vectors, labels=["a"] * 30) as index:
        sound = {}
        for kind in KINDS:
            index.export(tmp_path / f"all.{kind}")
            sound[kind] = (tmp_path / f"all.{kind}").read_bytes()
    cases = {"cut.npz": sound["npz"][:-40], "flipped.npz": flipped(sound["npz"]), "huge.npy": huge_header()}
    cases |= {"cut.parquet": sound["parquet"][:-9], "no.parquet": b"PAR1", "empty.npz": b"", "text.npy": b"1, 2"}
    for name, damaged in cases.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(DataError, match=rf"{name} is not .* that can be read"):
            Index.import_file(tmp_path / "y.index", tmp_path / name)
    assert not (tmp_path / "y.index").exists()


def test_files_that_hold_something_else_are_named(tmp_path):
    rows, path = np.eye(3), tmp_path / "f.npz"
    for arrays, said in [
        ({"Y": rows}, "must hold an array 'embeddings'"),
        ({"embeddings": np.ones((2, 2, 2))}, "must be a matrix of numbers"),
        ({"embeddings": np.array([["a"]])}, "must be a matrix of numbers"),
        ({"embeddings": rows, "labels": [1, 2]}, "3 embeddings, but 2 entries of 'labels'"),
        ({"embeddings": rows, "labels": [0, 1, 9], "class_names": ["a", "b"]}, "indices into the 2 class_names"),
        ({"embeddings": rows, "ids": np.eye(3)}, "'ids' must be a list"),
        ({"embeddings": rows, "distance": np.array("taxi")}, "unknown distance 'taxi'"),
        ({"embeddings": rows, "labels": [1, 2, 3], "missing_labels": [True]}, "whether it is missing"),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=said):
            read_vectors(path)
    with pytest.raises(DataError, match="does not exist"):
        read_vectors(tmp_path / "none.npy")
    (tmp_path / "v.csv").touch()
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        read_vectors(tmp_path / "v.csv")


def test_ragged_parquet_is_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for column in ([[1.0], [1.0, 2.0]], [[1.0], None], [None, None], [["a"], ["b"]], ["a", "b"]):
        parquet.write_table(pyarrow.table({"embedding": column}), tmp_path / "f.parquet")
        with pytest.raises(DataError, match=r"f\.parquet"):
            read_vectors(tmp_path / "f.parquet")


def test_no_damage_is_raw(tmp_path):
    rng = np.random.default_rng(0)
    with Index.of_vectors(tmp_path / "x.index", rng.normal(size=(5, 4)), labels=list("aab") + [None] * 2) as index:
        for kind in KINDS:
            path = tmp_path / f"all.{kind}"
            index.export(path)
            sound = path.read_bytes()
            for _ in range(60):
                damaged = bytearray(sound)
                for place in rng.integers(len(sound), size=3):
                    damaged[place] = rng.integers(256)
                path.write_bytes(damaged[: rng.integers(len(sound) // 2, len(sound) + 1)])
                with suppress(VicinalError):
                    read_vectors(path)


def test_a_column_that_parquet_has_no_room_for(tmp_path):
    with Index.of_vectors(tmp_path / "x.index", np.eye(2), metadata={"embedding": [1, 2]}) as index:
        with pytest.raises(InputError, match=r"export to an \.npz file"):
            index.export(tmp_path / "all.parquet")
        index.export(tmp_path / "all.npz")
        assert read_vectors(tmp_path / "all.npz").metadata == {"embedding": [1, 2]}
