"""What the tests of the index share: a small embedder, and a folder of pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.embedder import Embedder


@pytest.fixture(scope="session")
def model():
    torch.manual_seed(0)
    return Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16})


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 20), dtype=np.uint8)).save(tmp_path / "photos" / name)
    return tmp_path / "photos"
