"""Indexes that former versions wrote, kept as they were: read, or refused with what to do."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from vicinal.errors import DataError
from vicinal.index import Index
from vicinal.index.stores.catalogue import seal

FORMATS = Path(__file__).parent / "formats"


@pytest.mark.parametrize("kept", sorted(FORMATS.glob("version-*.index")), ids=lambda path: path.name)
def test_an_index_of_a_former_version_is_read(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "x.index")
    with Index.open(tmp_path / "x.index") as index:
        assert index.verify() == []
        assert [(hit.id, hit.label, dict(hit.metadata)) for hit in index.search([1.0, 0.0], k=2)] == [
            ("a", "wren", {"year": 2020}),
            ("c", None, {"wet": True}),
        ]
        assert index.count("year > 2000") == 1
        index.add(vectors=[[0.0, 1.0]], ids=["d"])
        assert len(index) == 3


def test_one_with_embedder_calibration_and_improvement_is_read(tmp_path):
    shutil.copytree(FORMATS / "with-embedder-1.index", tmp_path / "x.index")
    with Index.open(tmp_path / "x.index") as index:
        assert index.verify() == []
        assert index.embedder().identity() == index.embedder_hash
        assert index.improvement.augment == 1
        assert index.calibration.threshold == 0.9
        hits = index.search(np.float32([1, 0, 0]), k=3)
        assert [(hit.id, hit.label, dict(hit.metadata), hit.same) for hit in hits] == [
            ("set/0", "wren", {}, True),
            ("set/1", "crow", {"year": 2020}, False),
            ("set/3", "wren", {}, False),
        ]
        assert [hit.similarity for hit in hits] == pytest.approx([1, 0.2193322, -0.8518918], abs=1e-6)
        assert index.store.dead() == 2  # one was removed, one has other values


def test_an_index_of_a_later_version_is_refused_with_what_to_do(tmp_path):
    with Index.of_vectors(tmp_path / "x.index", [[1.0]]) as index:
        path = index._generations.latest().folder / "items.sqlite"
    connection = sqlite3.connect(path)
    content = connection.execute("SELECT content FROM header").fetchone()[0].replace('"version": 1', '"version": 3')
    connection.execute("UPDATE header SET content = ?, seal = ?", (content, seal(content)))
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match=r"format version 3; this vicinal reads 1 and 2[\s\S]*--export"):
        Index.open(tmp_path / "x.index")
