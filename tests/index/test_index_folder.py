"""The folder of an index: generations that are in use, begun, copied or damaged; readers who may not write."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from vicinal.errors import DataError
from vicinal.index import Index
from vicinal.index.folder import IndexFolder
from vicinal.index.stores import catalogue as sqlite_file

pytestmark = pytest.mark.unit


def made(path, ids="abc"):
    return Index.of_vectors(path, np.eye(len(ids)), ids=list(ids))


def generations(path):
    return sorted(folder.name for folder in path.glob("generation-*"))


def test_a_generation_stays_for_as_long_as_somebody_has_it_open(tmp_path):
    path = tmp_path / "x.index"
    with made(path) as index:
        reader = Index.open(path, follow=False)
        for _ in range(3):
            index.compact()
        assert generations(path) == ["generation-1", "generation-3", "generation-4"]
        assert [hit.id for hit in reader.search([0.0, 1.0, 0.0], k=1)] == ["b"]
        assert len(reader.get()[1]) == 3
        reader.close()
        index.compact()
        assert generations(path) == ["generation-4", "generation-5"]


def test_folders_of_other_names_are_let_alone(tmp_path):
    path = tmp_path / "x.index"
    with made(path) as index:
        shutil.copytree(path / "generation-1", path / "generation-1-copy")
        (path / "building-site").mkdir()
        for _ in range(2):
            index.compact()
    assert generations(path) == ["generation-1-copy", "generation-2", "generation-3"]
    assert (path / "building-site").is_dir()


def test_what_was_begun_and_given_up_goes_and_what_can_go_on_stays(tmp_path):
    path = tmp_path / "x.index"
    with made(path) as index:
        for name in ("new", "compact", "0123456789abcdef", "fedcba9876543210"):
            (path / f"building-{name}").mkdir()
        index.compact()
        assert {folder.name for folder in path.glob("building-*")} == {
            "building-0123456789abcdef",
            "building-fedcba9876543210",
        }
        folder = IndexFolder(path)
        with folder.writing():
            shutil.copytree(path / "generation-2", path / "building-0123456789abcdef", dirs_exist_ok=True)
            folder.finish(path / "building-0123456789abcdef")  # another embedder took over
        assert not list(path.glob("building-*"))


def test_vectors_that_were_left_unfinished_are_not_mixed_with_others(tmp_path, monkeypatch):
    path = tmp_path / "x.index"

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            made(path, "abcd")
    with made(path, "xy") as index:
        assert [item.id for item in index.get()[0]] == ["x", "y"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_server_that_cannot_be_reached_leaves_nothing_behind(tmp_path, monkeypatch, killed):
    pytest.importorskip("psycopg")
    from vicinal.index.stores.postgres import PostgresStore

    path, address = tmp_path / "x.index", "postgresql://me:s@cret@127.0.0.1:1/none"
    if killed:

        def stopped(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(PostgresStore, "create", stopped)
            with pytest.raises(KeyboardInterrupt):
                Index.of_vectors(path, np.eye(2), store=address)
        assert list(path.rglob("store.json"))
    with pytest.raises(DataError, match=r"PostgreSQL at postgresql://me:\*\*\*@127.0.0.1:1/none cannot be") as caught:
        Index.of_vectors(path, np.eye(2), store=address)
    assert "cret" not in str(caught.value)
    assert not list(path.rglob("store.json"))
    with Index.of_vectors(path, np.eye(2)) as index:  # a second try, without a server
        assert len(index) == 2
    assert not list(path.rglob("store.json"))


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    "content", ["", DEEP, "[]", "3", '{"generation": 3, "previous": ""}', '{"generation": "generation-1"}', "\0\xff"]
)
def test_damaged_names_of_generations_are_said_in_a_sentence(tmp_path, content):
    made(tmp_path / "x.index").close()
    (tmp_path / "x.index" / "current").write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match="current"):
        Index.open(tmp_path / "x.index")


@pytest.mark.parametrize("content", ["", DEEP, "[]", '{"url": 3}', '{"url": "postgresql://h/d"}'])
def test_damaged_names_of_servers_are_said_in_a_sentence(tmp_path, content):
    made(tmp_path / "x.index").close()
    (tmp_path / "x.index" / "generation-1" / "store.json").write_text(content)
    with pytest.raises(DataError, match=r"store\.json"):
        Index.open(tmp_path / "x.index")


def test_a_generation_outside_the_folder_is_refused(tmp_path):
    made(tmp_path / "x.index").close()
    (tmp_path / "x.index" / "current").write_text('{"generation": "generation-1/../../y", "previous": ""}')
    with pytest.raises(DataError, match="which does not exist"):
        Index.open(tmp_path / "x.index")


def test_below_a_file_there_is_no_index(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is not an index"):
        Index.open(tmp_path / "file" / "x.index")
    for path in (tmp_path / "file", tmp_path / "file" / "x.index"):
        with pytest.raises(DataError, match="cannot be written"):
            made(path)


@contextmanager
def acting_as(user):
    """Be another user in the meantime; root may write everywhere."""
    before = os.geteuid()
    os.setresuid(user, user, 0)
    try:
        yield
    finally:
        os.setresuid(before, before, 0)


@pytest.fixture
def guarded():
    """A folder that others may reach and read: those of pytest are for its user alone."""
    folder = Path(tempfile.mkdtemp(prefix="vicinal-read-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(
    not hasattr(os, "getresuid") or os.geteuid() != 0, reason="only root can be somebody else for a while"
)
def test_who_may_not_write_searches_all_the_same(guarded):
    path = guarded / "x.index"
    made(path).close()
    with acting_as(65534), Index.open(path) as reader:
        assert [hit.id for hit in reader.search([0.0, 1.0, 0.0], k=1)] == ["b"]
        assert reader.verify() == []
        assert sorted(os.listdir(path / "generation-1")) == ["items.sqlite", "vectors.f32"]
        with pytest.raises(DataError, match="cannot be written"):
            reader.remove("id = 'a'")
        with acting_as(0):
            writer = Index.open(path)
            writer.remove("id = 'b'")
        assert len(reader) == 2  # while the writer is there
        with acting_as(0):
            writer.remove("id = 'c'")
            writer.close()
        assert [hit.id for hit in reader.search([0.0, 1.0, 0.0], k=3)] == ["a"]  # and when it is gone


def test_a_file_that_changes_under_a_reader_who_cannot_be_told_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "x.index"
    made(path).close()
    monkeypatch.setattr(sqlite_file.os, "access", lambda *_: False)
    with Index.open(path) as reader:
        assert len(reader) == 3
        items = path / "generation-1" / "items.sqlite"
        mine = reader.store._catalogue
        with pytest.raises(DataError, match="changed while it was read"), mine.reading():
            os.utime(items, ns=(0, 0))
        assert len(reader) == 3  # is read again
