"""Indexes that former versions wrote, kept as they were: read, or refused with what to do."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from vicinal.errors import DataError
from vicinal.index import Index
from vicinal.index.sealed_rows import seal

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


def test_an_index_of_a_later_version_is_refused_with_what_to_do(tmp_path):
    with Index.of_vectors(tmp_path / "x.index", [[1.0]]) as index:
        path = index._generations.latest().folder / "items.sqlite"
    connection = sqlite3.connect(path)
    content = connection.execute("SELECT content FROM header").fetchone()[0].replace('"version": 1', '"version": 2')
    connection.execute("UPDATE header SET content = ?, seal = ?", (content, seal(content)))
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match=r"format version 2; this vicinal reads version 1[\s\S]*--export"):
        Index.open(tmp_path / "x.index")
