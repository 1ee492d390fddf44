"""What images look like is read from a few of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

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
    assert looks_of(coloured) == (True, 80, False)
    assert looks_of(digits()) == (False, 8, False)
    assert looks_of(arrays(np.zeros((4, 3), dtype=np.float32), [0, 0, 1, 1])) is None


def grey_files(root: Path, pixels: np.ndarray, mode: str) -> None:
    for name in ("a", "b"):
        (root / name).mkdir()
        Image.fromarray(pixels).convert(mode).save(root / name / "1.png")


@pytest.mark.parametrize("mode", ["L", "LA", "I;16"])
def test_large_grey_images_with_shades_are_photographs(tmp_path: Path, mode: str) -> None:
    ramp = np.tile(np.linspace(0, 255, 200), (200, 1)).astype(np.uint8)
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    grey_files(tmp_path / "large", ramp, mode)
    grey_files(tmp_path / "small", ramp[:32, :], mode)
    found = [looks_of(folder(tmp_path / name)) for name in ("large", "small")]
    assert [looks is not None and looks.photographs for looks in found] == [True, False]


@pytest.mark.parametrize("mode", ["1", "L"])
def test_drawings_are_none_with_soft_edges_too(tmp_path: Path, mode: str) -> None:
    page = Image.new("L", (105, 105), 255)
    ImageDraw.Draw(page).ellipse((20, 20, 80, 80), outline=0, width=6)
    soft = page.resize((210, 210), Image.Resampling.BILINEAR)
    grey_files(tmp_path, np.asarray(soft), mode)
    looks = looks_of(folder(tmp_path))
    assert looks is not None
    assert not looks.photographs
