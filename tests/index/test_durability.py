"""What survives: kills at any moment, writes, syncs and renames that fail, flipped bits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vicinal._util import files as durable_files
from vicinal.errors import DataError, InputError, VicinalError
from vicinal.index import Index
from vicinal.index import folder as index_folder
from vicinal.index.stores import vectors as vector_file

sys.path.insert(0, str(Path(__file__).parents[2] / "campaign"))
from index_kills import flip_bits, survive, vector_of


@pytest.mark.parametrize(("numbers", "kills"), [("float32", 3), ("int8", 2)])
def test_kills_lose_nothing_that_was_acknowledged(tmp_path, numbers, kills):
    assert survive(tmp_path / "x.index", kills, 0, numbers) > 1


@pytest.mark.slow
@pytest.mark.parametrize("numbers", ["float32", "int8"])
def test_more_kills_lose_nothing_that_was_acknowledged(tmp_path, numbers):
    assert survive(tmp_path / "x.index", 25, 1, numbers) > 25


class Broken(OSError):
    pass


def failing(monkeypatch, n):
    """Let the n-th write, sync or rename fail, as a full or broken disk does."""
    calls = [0]

    def wrap(module, name):
        real = getattr(durable_files, name)

        def counted(*arguments):
            calls[0] += 1
            if calls[0] == n:
                raise Broken(28, "No space left on device")
            return real(*arguments)

        monkeypatch.setattr(module, name, counted)

    for module, name in [
        (vector_file, "write_at"),
        (vector_file, "sync_file"),
        (index_folder, "sync_file"),
        (index_folder, "sync_folder"),
        (index_folder, "rename"),
    ]:
        wrap(module, name)
    return calls


STEPS = {
    "add": lambda index: index.add(vectors=np.stack([vector_of(key) for key in (7, 8)]), ids=[7, 8]),
    "update": lambda index: index.update("id = 1", {"year": 3}),
    "remove": lambda index: index.remove("id = 1"),
    "compact": lambda index: index.compact(),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_failing_disk_leaves_what_was_there_or_all_that_was_asked(tmp_path, monkeypatch, step):
    def content(index):
        items, vectors = index.get()
        return [(item, vector.tolist()) for item, vector in zip(items, vectors, strict=True)]

    done = None
    for n in range(1, 30):
        folder = tmp_path / f"{n}.index"
        with Index.of_vectors(folder, np.stack([vector_of(key) for key in range(4)])) as index:
            index.remove("id = 3")
            before = content(index)
            with monkeypatch.context() as patch:
                failing(patch, n)
                try:
                    STEPS[step](index)
                    done = content(index)
                except (OSError, VicinalError):
                    pass
            after = content(index)
            assert index.verify() == []
            if done is None:
                assert after == before
                STEPS[step](index)  # a second try succeeds
                assert index.verify() == []
        with Index.open(folder) as index:
            assert index.verify() == []
        if done is not None:
            break
    assert done is not None


def test_an_index_that_could_not_be_made_is_not_there(tmp_path, monkeypatch):
    rows = np.stack([vector_of(key) for key in range(4)])
    for n in range(1, 30):
        folder = tmp_path / f"{n}.index"
        with monkeypatch.context() as patch:
            failing(patch, n)
            try:
                Index.of_vectors(folder, rows).close()
                break
            except (OSError, VicinalError):
                pass
        if (folder / "current").exists():
            assert Index.open(folder).verify() == []
        else:
            with pytest.raises(DataError, match="is not an index"):
                Index.open(folder)
            with Index.of_vectors(folder, rows) as index:  # again
                assert len(index) == 4
    else:
        pytest.fail("it never succeeded")


def test_a_second_writer_is_refused_with_a_sentence(tmp_path):
    with Index.of_vectors(tmp_path / "x.index", np.eye(2)) as mine:
        other = Index.open(tmp_path / "x.index")
        with mine._generations.writing():
            with pytest.raises(InputError, match="is being written by another process"):
                other.remove("id = 0")
            assert len(other.search([1.0, 0.0])) == 2
        assert other.remove("id = 0") == 1
        assert len(mine) == 1
        other.close()


@pytest.mark.parametrize("numbers", ["float32", "int8"])
def test_flipped_bits_are_reported_or_harmless(tmp_path, numbers):
    reported, harmless = flip_bits(tmp_path, 40, 0, numbers)
    assert reported > 0
    assert reported + harmless == 40


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace, which shows what a process asks of the system, is not installed"
)
def test_each_add_is_on_the_disk_before_it_returns(tmp_path):
    """Of the system calls between the words "before" and "after", the vectors are synced, then the transaction is."""
    script = """
import os, sys
import numpy as np
from vicinal.index import Index
index = Index.open(sys.argv[1])
for number in (1, 2, 3):
    os.write(1, b"before\\n")
    index.add(vectors=np.ones((1, 8), np.float32), ids=[number])
    os.write(1, b"after\\n")
"""
    folder, trace = tmp_path / "x.index", tmp_path / "trace.txt"
    Index.of_vectors(folder, vector_of(0)[None]).close()
    calls = "trace=write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,rename,renameat,renameat2"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(trace), sys.executable, "-c", script, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if ran.returncode and "ptrace" in ran.stderr:
        pytest.skip("this system does not let processes be traced")
    assert ran.returncode == 0, ran.stderr
    lines = trace.read_text(errors="replace").splitlines()
    starts = [place for place, line in enumerate(lines) if '"before' in line]
    ends = [place for place, line in enumerate(lines) if '"after' in line]
    assert len(starts) == len(ends) == 3
    for start, end in zip(starts, ends, strict=True):
        inside = lines[start:end]

        def last(kind, name, inside=inside):
            found = [place for place, line in enumerate(inside) if kind in line and name in line]
            return found[-1] if found else -1

        vectors_written, vectors_synced = last("write", "vectors.f32"), last("sync(", "vectors.f32")
        log_written, log_synced = last("write", "items.sqlite-wal"), last("sync(", "items.sqlite-wal")
        assert -1 < vectors_written < vectors_synced, "vectors are synced after they are written"
        assert -1 < log_written < log_synced, "the transaction is synced after it is written"
        assert vectors_synced < log_synced, "vectors are on the disk before the transaction that makes them exist"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root mounts a disk that is soon full")
def test_a_full_disk_leaves_what_was_acknowledged(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("this system does not let a small disk be mounted")
    try:
        folder, done = place / "x.index", 1
        with Index.of_vectors(folder, vector_of(0)[None]) as index:
            full = None
            while full is None:
                keys = list(range(done, done + 500))
                try:
                    index.add(vectors=np.stack([vector_of(key) for key in keys]), ids=keys)
                    done += 500
                except VicinalError as error:
                    full = error
            assert len(index) == done
        with Index.open(folder) as index:
            assert index.verify() == []
            items, vectors = index.get()
            assert [item.id for item in items] == list(range(done))
            assert all(np.array_equal(vectors[key], vector_of(key)) for key in range(0, done, 97))
    finally:
        subprocess.run(["umount", str(place)], check=True)
