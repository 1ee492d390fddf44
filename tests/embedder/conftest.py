"""A small embedder and a few images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.embedder import Embedder


@pytest.fixture
def embedder() -> Embedder:
    torch.manual_seed(0)
    return Embedder("convnet", dim=5, options={"in_channels": 3, "widths": [4, 8], "size": 16})


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (7, 20, 24, 3), dtype=np.uint8)


@pytest.fixture
def paths(images, tmp_path):
    names = [tmp_path / f"{i}.png" for i in range(len(images))]
    for name, image in zip(names, images, strict=True):
        Image.fromarray(image).save(name)
    return names
