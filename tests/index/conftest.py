"""What the tests of the index share: a naive search, and small folders of pictures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.embedder import Embedder
from vicinal.index.columns import matches


def naive(items, vectors, query, k, distance, where=None):
    """Compare the query with every item in float64 and sort by similarity, then by id."""
    found = []
    for item, vector in zip(items, vectors.astype(np.float64), strict=True):
        if where is not None and not matches(where, item.values()):
            continue
        mine = query.astype(np.float64)
        if distance == "euclidean":
            similarity = -math.sqrt(float(np.square(mine - vector).sum()))
        else:
            lengths = math.sqrt(float(np.square(mine).sum())) * math.sqrt(float(np.square(vector).sum()))
            similarity = min(1.0, max(-1.0, float((mine * vector).sum()) / lengths)) if lengths else 0.0
        found.append((-similarity, item.id))
    return sorted(found)[:k]


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
