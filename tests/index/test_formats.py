"""Indexes of the present format, kept as they were written: read; of another version: refused with what to do."""

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


@pytest.mark.parametrize("kept", [FORMATS / "float32.index", FORMATS / "int8.index"], ids=lambda path: path.name)
def test_an_index_that_was_kept_is_read(kept, tmp_path):
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
    shutil.copytree(FORMATS / "with-embedder.index", tmp_path / "x.index")
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


@pytest.mark.parametrize("other", [1, 3])
def test_an_index_of_another_version_is_refused_with_what_to_do(tmp_path, other):
    with Index.of_vectors(tmp_path / "x.index", [[1.0]]) as index:
        path = index._generations.latest().folder / "items.sqlite"
    connection = sqlite3.connect(path)
    [content] = connection.execute("SELECT content FROM header").fetchone()
    content = content.replace('"version": 2', f'"version": {other}')
    connection.execute("UPDATE header SET content = ?, seal = ?", (content, seal(content)))
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match=rf"version {other}; this vicinal reads version 2[\s\S]*vicinal index export"):
        Index.open(tmp_path / "x.index")
