"""Caches of an index: what was written is read, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vicinal._util.files import CachedFile

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("content", [b"some bytes", b""])
def test_what_was_written_is_read(tmp_path, content):
    cached = CachedFile(tmp_path / "x.bin", 1)
    assert cached.read(lambda about: True) is None
    cached.write(content, {"rows": 3, "share": 0.1})
    found, about = cached.read(lambda about: about["rows"] == 3)
    assert (found.tobytes(), found.dtype, about) == (content, np.uint8, {"rows": 3, "share": 0.1})
    assert cached.read(lambda about: about["rows"] == 4) is None
    assert cached.read(lambda about: about["missing"]) is None
    assert CachedFile(cached.path, 2).read(lambda about: True) is None


def test_damage_of_either_file_is_seen(tmp_path):
    cached = CachedFile(tmp_path / "x.bin", 1)
    cached.write(b"some bytes", {"rows": 3})
    right, beside = cached.path.read_bytes(), cached.path.with_suffix(".json")
    text = beside.read_text()
    for content in (b"some bytez", b"some", b""):
        cached.path.write_bytes(content)
        assert cached.read(lambda about: True) is None
    cached.path.write_bytes(right)
    for damaged in (text.replace("3", "4", 1), "[1]", "{", "null", "[" * 100_000, json.dumps({"version": 1})):
        beside.write_text(damaged)
        assert cached.read(lambda about: True) is None
    beside.write_text(text)
    assert cached.read(lambda about: True) is not None


def test_a_folder_that_cannot_be_written_to_keeps_nothing(tmp_path):
    cached = CachedFile(tmp_path / "gone" / "x.bin", 1)
    cached.write(b"some bytes", {})
    assert cached.read(lambda about: True) is None
