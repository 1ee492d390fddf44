"""Past memory: the same objectives in mini-batches through the training engine, with a linear network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import vicinal as vc
from vicinal.classical import NCA
from vicinal.sampling import SAMPLERS
from vicinal.training.engine import Stream, run_training

pytestmark = pytest.mark.recipe


def share_of_neighbours(seen: np.ndarray, classes: np.ndarray, new: np.ndarray, expected: np.ndarray) -> float:
    return KNeighborsClassifier(3).fit(seen, classes).score(new, expected)


def test_mini_batches_come_within_a_hundredth_of_all_pairs_at_once() -> None:
    points, labels = load_digits(return_X_y=True)
    points = (points / 4).astype(np.float32)
    order = np.random.RandomState(0).permutation(len(points))
    half = len(points) // 2
    first, second = order[:half], order[half:]
    whole = NCA(16, init="pca").fit(points[first], labels[first])
    expected = share_of_neighbours(
        whole.transform(points[first]), labels[first], whole.transform(points[second]), labels[second]
    )

    data = vc.data.arrays(points[first], labels[first])
    torch.manual_seed(0)  # of the map's start
    model = vc.Embedder("linear", dim=16, normalisation="none", options={"features": 64})
    sampler = SAMPLERS["classes"](data.labels, 10, 12, rounds=8, seed=0)
    settings = vc.Settings(steps=600, learning_rate=1e-2, schedule="cosine", evaluate_every=0)
    run_training(model, vc.Criterion("nca", normalise="none"), Stream(data, None, sampler), settings, progress=False)
    sides = (model.encode(points[first]), labels[first], model.encode(points[second]), labels[second])
    found = share_of_neighbours(*sides)
    assert expected > 0.95
    assert found >= expected - 0.01


@pytest.mark.parametrize("loss", ["nca", "mcml", "lmnn"])
def test_a_recipe_trains_them_on_a_table_as_any_other_loss(loss: str) -> None:
    points, labels = load_digits(return_X_y=True)
    split = vc.split(vc.data.arrays(points.astype(np.float32), labels), "fixed-validation", validation=0.4)
    options = {} if loss == "lmnn" else {"loss_options": {"scale": 10.0}}
    settings = {"steps": 100, "learning_rate": 1e-3, "classes_per_batch": 3, "samples_per_class": 16}
    model = vc.fit(split, loss=loss, backbone="linear", dim=32, progress=False, **settings, **options)
    before = vc.evaluate(split.train.items, split.train.labels, intervals=None)["MAP@R"]
    assert vc.evaluate(model, split.train, intervals=None)["MAP@R"] > before
