"""Models that were really trained with the metric loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vicinal.data import Dataset, digits, glyphs, split
from vicinal.data.splits import Split
from vicinal.runs._train import fit
from vicinal.spaces import LabelMetric, label_metric_of

OPTIONS = {"k": 0.5, "p": 0.75, "smoothing": 1e-4}
SMALL = {"widths": [8, 16, 32], "size": 16}


@dataclass
class Trained:
    """Class probabilities of the items that a model was trained on."""

    metric: LabelMetric
    probabilities: Tensor
    labels: Tensor


def train(data: Dataset, folder: Path, *, first: int, then: int) -> Trained:
    """Train with cross-entropy first, because the metric loss alone may send all items to one label and stay there."""
    settings: dict[str, Any] = {
        "backbone_options": SMALL,
        "classes_per_batch": 5,
        "learning_rate": 3e-3,
        "evaluate_every": 0,
        "progress": False,
    }
    sides = Split(data, None, None)
    if first:
        fit(sides, loss="cross_entropy", steps=first, **settings).save(folder)
        settings["start"] = str(folder)
    embedder = fit(sides, loss="metric_cross_entropy", loss_options=OPTIONS, steps=then, **settings)
    metric = label_metric_of("metric_cross_entropy", OPTIONS)
    return Trained(metric, torch.from_numpy(embedder.encode(data)), torch.from_numpy(data.labels))


@pytest.fixture(scope="session")
def on_digits(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(split(digits()).train, tmp_path_factory.mktemp("digits"), first=0, then=60)


@pytest.fixture(scope="session")
def on_glyphs(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    few = glyphs(samples=8).of_classes(range(6))
    return train(few, tmp_path_factory.mktemp("glyphs"), first=60, then=20)
