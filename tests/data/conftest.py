"""Fixtures for the tests of data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Paint = Callable[..., Path]


@pytest.fixture
def paint() -> Paint:
    """Write a small image of noise that differs from path to path; returns the path."""

    def write(path: Path, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = [ord(letter) for letter in path.as_posix()]
        shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
        pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(path)
        return path

    return write
