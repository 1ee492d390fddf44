"""What comes from outside: every damage is one error that names the file, and nothing hangs."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from vicinal._util import reading as reading_module
from vicinal._util.reading import (
    printable,
    read_arrays,
    read_csv,
    read_json,
    read_mat,
    read_parquet,
    read_tensors,
    read_text,
    read_toml,
)
from vicinal.errors import DataError

pytestmark = pytest.mark.unit


def content_of(suffix: str, folder: Path) -> bytes:
    """A sound file of a kind."""
    path = folder / f"sound{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, X=np.arange(30.0).reshape(10, 3), y=np.arange(10))
    elif suffix == ".npy":
        np.save(path, np.arange(30.0))
    elif suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"label": ["a", "b"], "x": [1.0, 2.0]}), path)
    elif suffix == ".mat":
        from scipy.io import savemat

        savemat(path, {"a": np.arange(5)})
    elif suffix == ".safetensors":
        save_file({"a": torch.ones(3)}, path)
    elif suffix == ".pth":
        torch.save({"a": torch.ones(3)}, path)
    else:
        texts = {".csv": 'a,b\n1,"2"\n', ".json": '{"a": [1, 2]}', ".toml": "a = [1, 2]\n", ".txt": "ä\n"}
        path.write_text(texts[suffix], encoding="utf-8")
    return path.read_bytes()


def told(suffix: str, path: Path) -> str:
    """What is said of a file; its name, where nothing is found wrong with it."""
    try:
        READERS[suffix](path)
    except DataError as error:
        return str(error)
    return path.name


READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": read_csv,
    ".json": read_json,
    ".toml": read_toml,
    ".txt": read_text,
    ".npy": read_arrays,
    ".npz": read_arrays,
    ".parquet": read_parquet,
    ".mat": read_mat,
    ".safetensors": read_tensors,
    ".pth": read_tensors,
}


@pytest.mark.parametrize("suffix", READERS)
def test_damage_is_a_data_error_that_names_the_file(suffix: str, tmp_path: Path) -> None:
    sound = content_of(suffix, tmp_path)
    path = tmp_path / f"tried{suffix}"
    path.write_bytes(sound)
    READERS[suffix](path)
    rng = np.random.default_rng(0)
    for _ in range(3 if suffix == ".mat" else 12):  # which is read in a process of its own
        spoilt = bytearray(sound)
        kind = rng.integers(3)
        if kind == 0:
            del spoilt[rng.integers(len(spoilt)) :]
        elif kind == 1:
            for place in rng.integers(len(spoilt), size=3):
                spoilt[place] = rng.integers(256)
        else:
            spoilt = bytearray(rng.bytes(40))
        path.write_bytes(spoilt)
        assert path.name in told(suffix, path)


@pytest.mark.parametrize("reader", [read_csv, read_arrays, read_tensors])
@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "loop", "name"])
def test_what_is_no_file_is_told_at_once(kind: str, reader: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "odd.png"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "name":
        path = Path("a\0b")
    words = {
        "missing": "does not exist",
        "folder": "a folder",
        "pipe": "pipe",
        "loop": "symbolic links",
        "name": "null",
    }
    with pytest.raises(DataError, match=words[kind]):
        reader(path)


def test_a_table_as_excel_writes_it_says_how_to_save_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("label,name\n1,Bäume\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"(?s)byte 0xe4 at position 14 is not UTF-8.*CSV UTF-8"):
        read_csv(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes("label\nBäume\n".encode("utf-8-sig"))
    assert read_csv(tmp_path / "t.csv") == [["label"], ["Bäume"]]


def test_deep_nesting_is_told(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="nested too deeply"):
        read_json(tmp_path / "c.json")


@pytest.mark.parametrize("archived", [False, True])
def test_a_header_that_promises_more_than_there_is_costs_no_memory(archived: bool, tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    if archived:
        with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("X.npy", head.getvalue() + bytes(64))
    else:
        (tmp_path / "a.npz").write_bytes(head.getvalue() + bytes(64))
    with pytest.raises(DataError, match="header says 8,000,000,000,000 bytes"):
        read_arrays(tmp_path / "a.npz")


def test_no_pickle_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="only numbers and text"):
        read_arrays(tmp_path / "o.npy")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    kind=st.sampled_from(["<f4", ">f8", "<i8", "|b1", "|u1", "<U3", "|S2", "<f2"]),
    turned=st.booleans(),
)
def test_arrays_come_back_as_numpy_reads_them(shape: list[int], kind: str, turned: bool, tmp_path: Path) -> None:
    array = np.zeros(shape, dtype=kind)
    array = np.asfortranarray(array) if turned else array
    np.savez_compressed(tmp_path / "a.npz", one=array)
    found = read_arrays(tmp_path / "a.npz")["one"]
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)


def test_names_that_are_not_utf8_can_be_printed() -> None:
    assert json.dumps(printable(os.fsdecode(b"caf\xe9"))) == '"caf\\\\udce9"'


def test_a_reader_that_ends_its_process_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """scipy's reader of MATLAB files does so on some damaged ones."""
    (tmp_path / "cars.mat").write_bytes(b"MATLAB 5.0")
    ended = subprocess.CompletedProcess([], -signal.SIGSEGV, b"", b"")
    monkeypatch.setattr(reading_module.subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(DataError, match=r"cars.mat is not a MATLAB file .* it is damaged"):
        read_mat(tmp_path / "cars.mat")
