"""Datasets and scores for the tests of classical learners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    points, labels = {"iris": load_iris, "wine": load_wine}[name.removesuffix("+noise")](return_X_y=True)
    if name.endswith("+noise"):
        noise = np.random.RandomState(0).randn(len(points), 20)
        points = np.hstack([StandardScaler().fit_transform(points), noise])
    return points, labels


@pytest.fixture(scope="session")
def accuracy() -> Callable[..., float]:
    """Mean accuracy of 3 neighbours after learning, over stratified halves: 10, or 5 with noise columns."""

    def score(learner: Any, name: str, *, standardise: bool = True) -> float:
        points, labels = load(name)
        found = []
        splits = StratifiedShuffleSplit(5 if name.endswith("+noise") else 10, test_size=0.5, random_state=0)
        for train, test in splits.split(points, labels):
            scaler = StandardScaler(with_mean=standardise, with_std=standardise).fit(points[train])
            seen, new = scaler.transform(points[train]), scaler.transform(points[test])
            if learner is not None:
                fitted = clone(learner).fit(seen, labels[train])
                seen, new = fitted.transform(seen), fitted.transform(new)
            found.append(KNeighborsClassifier(3).fit(seen, labels[train]).score(new, labels[test]))
        return float(np.mean(found))

    return score


@pytest.fixture(scope="session")
def wine() -> tuple[np.ndarray, np.ndarray]:
    points, labels = load("wine")
    return StandardScaler().fit_transform(points), labels


@pytest.fixture(scope="session")
def iris() -> tuple[np.ndarray, np.ndarray]:
    points, labels = load("iris")
    return StandardScaler().fit_transform(points), labels
