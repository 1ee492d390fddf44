"""A split of feature vectors, and a stand-in for training whose best settings are known."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vicinal.data import Split, arrays, split
from vicinal.runs.recipe import Recipe


@pytest.fixture(scope="session")
def blobs() -> Split:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 6)
    vectors = rng.normal(size=(72, 5)).astype(np.float32) + rng.normal(size=(12, 5)).astype(np.float32)[labels]
    return split(arrays(vectors, labels, name="blobs"), "fixed-validation", validation=0.4)


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.of(
        {"loss": "triplet", "backbone": "linear", "dim": 4, "steps": 4, "evaluate_every": 2, "classes_per_batch": 3}
    )


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Recipe], float]], list[Recipe]]:
    """Replace training by a function of the recipe, scored at half its value on half the way; return what was tried."""

    def plant(score: Callable[[Recipe], float]) -> list[Recipe]:
        tried: list[Recipe] = []

        def fit(view: Split, recipe: Recipe, *, on_score: Callable[..., None], **options: Any) -> None:
            assert view.test is None
            tried.append(recipe)
            steps, metric = recipe.training.steps, recipe.training.score
            value = score(recipe)
            on_score(steps // 2, {metric: value / 2})
            on_score(steps, {metric: value})

        monkeypatch.setattr(sys.modules["vicinal.tuning.study"], "fit", fit)  # vicinal.tune itself is the function
        return tried

    return plant
