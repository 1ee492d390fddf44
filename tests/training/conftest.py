"""A small problem of feature vectors, and what it takes to train on it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vicinal.criterion import Criterion
from vicinal.data import Dataset, arrays
from vicinal.sampling import Sampler, class_sampler
from vicinal.training.engine import Stream
from vicinal.training.settings import Settings


class TwoLayers(nn.Module):
    """A backbone and a head, as an embedder has them."""

    def __init__(self, dim: int = 4) -> None:
        super().__init__()
        self.backbone = nn.Linear(6, 8)
        self.head = nn.Linear(8, dim)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.head(torch.tanh(self.backbone(vectors)))


@pytest.fixture
def data() -> Dataset:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 6)
    return arrays(rng.normal(size=(30, 6)).astype(np.float32) + labels[:, None], labels, name="blobs")


@pytest.fixture
def model() -> Callable[[], TwoLayers]:
    def make() -> TwoLayers:
        torch.manual_seed(0)
        return TwoLayers()

    return make


@pytest.fixture
def criterion() -> Callable[..., Criterion]:
    def make(objective: str | Callable[..., Tensor] = "contrastive", **options: object) -> Criterion:
        return Criterion(objective, classes=5, dim=4, **options)

    return make


@pytest.fixture
def stream(data: Dataset) -> Callable[..., Stream]:
    def make(sampler: Sampler | None = None, **options: object) -> Stream:
        return Stream(data, None, sampler or class_sampler(data.labels, 3, 2), **options)

    return make


@pytest.fixture
def settings() -> Callable[..., Settings]:
    def make(**changes: object) -> Settings:
        usual = {"steps": 12, "learning_rate": 0.05, "evaluate_every": 4, "log_every": 2, "score": "score"}
        return Settings(**{**usual, **changes})

    return make
