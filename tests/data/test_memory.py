from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.data import Fit, arrays, contact_sheet, digits, folder, in_memory
from vicinal.errors import InputError


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
