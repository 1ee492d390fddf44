"""What images look like is read from a few of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal.data import arrays, digits, folder, looks_of


def files(root: Path, mode: str, size: tuple[int, int]) -> None:
    for name in ("a", "b"):
        (root / name).mkdir()
        Image.new(mode, size).save(root / name / "1.png")


@pytest.mark.parametrize(
    ("mode", "size", "photographs"),
    [("RGB", (90, 120), True), ("RGB", (120, 32), False), ("L", (90, 120), False), ("P", (90, 120), True)],
)
def test_coloured_and_large_files_are_photographs(
    tmp_path: Path, mode: str, size: tuple[int, int], photographs: bool
) -> None:
    files(tmp_path, mode, size)
    looks = looks_of(folder(tmp_path))
    assert looks is not None
    assert looks.photographs == photographs
    assert looks.side == min(size)


def test_images_in_memory_and_vectors() -> None:
    coloured = arrays(np.zeros((4, 80, 90, 3), dtype=np.uint8), [0, 0, 1, 1])
    assert looks_of(coloured) == (True, 80)
    assert looks_of(digits()) == (False, 8)
    assert looks_of(arrays(np.zeros((4, 3), dtype=np.float32), [0, 0, 1, 1])) is None
