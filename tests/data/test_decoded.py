from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.data import Fit, arrays, contact_sheet, digits, folder, in_memory, in_memory_once
from vicinal.data import images as module
from vicinal.errors import DataError, InputError


def test_the_same_images_without_the_files(tmp_path: Path, paint) -> None:
    for name in ("a/1.png", "a/2.png", "b/3.jpg"):
        paint(tmp_path / name)
    data = folder(tmp_path)
    for mode, pixels, shape in (("L", "grey", (3, 8, 8)), ("RGB", "unit", (3, 8, 8, 3))):
        held = in_memory(data, 8, mode=mode)
        assert held.items.shape == shape
        assert (held.labels.tolist(), held.class_names) == (data.labels.tolist(), data.class_names)
        for i in range(3):
            assert torch.equal(Fit(8, pixels)(held.open(i)), Fit(8, pixels)(data.open(i)))


def test_images_that_cannot_be_read_are_named(tmp_path: Path, paint) -> None:
    for name in ("a/1.png", "a/2.png", "b/3.jpg", "b/4.png"):
        paint(tmp_path / name)
    data = folder(tmp_path)
    (tmp_path / "a" / "2.png").write_bytes(b"not an image")
    (tmp_path / "b" / "4.png").unlink()
    with pytest.raises(DataError, match=r"2 of 4 images cannot be read") as caught:
        in_memory(data, 8)
    text = str(caught.value)
    assert all(name in text for name in ("2.png", "4.png", "skip_bad=True (--skip-bad)"))
    assert not any(name in text for name in ("1.png", "3.jpg"))


def test_a_dataset_is_decoded_once_while_it_lives(tmp_path: Path, paint, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/1.png", "b/2.png"):
        paint(tmp_path / name)
    data = folder(tmp_path)
    opened: list[int] = []
    real = type(data).open
    monkeypatch.setattr(type(data), "open", lambda self, i: opened.append(i) or real(self, i))
    before = len(module._DECODED)
    first = in_memory_once(data, 8)
    assert in_memory_once(data, 8) is first
    assert opened == [0, 1]
    assert np.array_equal(first.items, in_memory(data, 8).items)
    assert in_memory_once(data, 9).items.shape == (2, 9, 9)
    assert in_memory_once(data, 8, mode="RGB").items.shape == (2, 8, 8, 3)
    # Another dataset may look the same and hold other files: only this very one is known.
    paint(tmp_path / "a" / "1.png")
    assert in_memory_once(folder(tmp_path), 8) is not first
    del data
    gc.collect()
    assert len(module._DECODED) == before


def test_what_has_no_images() -> None:
    vectors = arrays(np.eye(2), [0, 1])
    with pytest.raises(InputError, match="got vectors and mode 'L'"):
        in_memory(vectors, 8)
    with pytest.raises(InputError, match="mode 'CMYK'"):
        in_memory(digits(), 8, mode="CMYK")
    with pytest.raises(InputError, match="needs images; arrays has 2 vectors"):
        contact_sheet(vectors)


def test_a_contact_sheet_shows_classes_in_rows() -> None:
    data = digits()
    sheet = contact_sheet(data, rows=10, columns=2, size=8)
    assert sheet.size == (16, 80)
    for label in range(10):
        first = int(np.flatnonzero(data.labels == label)[0])
        row = np.asarray(sheet)[label * 8 : label * 8 + 8, :8, 0]
        assert np.array_equal(row, data.items[first])
