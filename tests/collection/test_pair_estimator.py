"""The threshold with a promise as an estimator: what Calibration and verify say, and the contract of scikit-learn."""

from __future__ import annotations

from copy import deepcopy as copy_of

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from vicinal.collection import SameOrDifferent
from vicinal.errors import InputError
from vicinal.evaluation.threshold import choose_threshold

pytestmark = pytest.mark.unit


def world(seed: int, classes: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), 3)
    return rng.normal(size=(classes, 8))[labels] + 0.4 * rng.normal(size=(len(labels), 8)), labels


def pairs_of(items: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    one, two = np.triu_indices(len(items), 1)
    return np.stack([items[one], items[two]], axis=1), labels[one] == labels[two]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_it_says_what_the_promise_says(distance: str) -> None:
    items, labels = world(0)
    rule = SameOrDifferent(false_matches=0.1, distance=distance).fit(items, labels)
    chosen = choose_threshold(items, labels, false_matches=0.1, distance=distance)
    assert (rule.threshold_, rule.calibration_.level) == (chosen.threshold, "bound")
    pairs, same = pairs_of(items, labels)
    similarity = -np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)
    if distance == "cosine":
        unit = pairs / np.linalg.norm(pairs, axis=2, keepdims=True)
        similarity = (unit[:, 0] * unit[:, 1]).sum(axis=1)
    assert rule.similarity(pairs) == pytest.approx(similarity, abs=1e-12)
    said = rule.predict(pairs)
    assert said[same].mean() == pytest.approx(chosen.true_matches)  # classes are of one size
    # The threshold is the similarity of a pair; whether that one reaches it is a matter of the last bit.
    assert said[~same].sum() == pytest.approx(chosen.seen * (~same).sum(), abs=1.001)
    assert (said == (rule.decision_function(pairs) >= 0)).all()
    assert (rule.predict(pairs.reshape(-1, 8)) == said).all()
    chances = rule.predict_proba(pairs)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert chances[same, 1].mean() > 0.9 > 0.1 > chances[~same, 1].mean()
    rarer = clone(rule).set_params(prior=0.01).fit(items, labels).predict_proba(pairs)[:, 1]
    assert (rarer <= chances[:, 1]).all()


def test_the_promise_is_kept_on_new_classes() -> None:
    rule = SameOrDifferent(false_matches=0.05).fit(*world(1, 130))
    pairs, same = pairs_of(*world(2, 130))
    assert rule.predict(pairs)[~same].mean() <= 0.05


def test_the_contract_of_scikit_learn() -> None:
    items, labels = world(3)
    rule = SameOrDifferent(false_matches=0.1, confidence=0.9, prior=0.2)
    copy = clone(rule)
    assert copy is not rule
    assert copy.get_params() == {
        "false_matches": 0.1,
        "level": "auto",
        "per": "classes",
        "confidence": 0.9,
        "distance": "cosine",
        "prior": 0.2,
    }
    assert "false_matches=0.1" in repr(copy)
    with pytest.raises(NotFittedError):
        copy.predict(items[:2])
    assert rule.fit(items, labels) is rule
    with pytest.raises(NotFittedError):
        clone(rule).predict_proba(items[:2])
    again = copy_of(rule)
    assert (again.predict_proba(items) == rule.predict_proba(items)).all()
    assert rule.classes_.tolist() == [False, True]


def test_behind_other_steps_pairs_are_rows_two_by_two() -> None:
    items, labels = world(4)
    pipeline = make_pipeline(PCA(5, whiten=True), SameOrDifferent(false_matches=0.1)).fit(items, labels)
    pairs, _ = pairs_of(items[:40], labels[:40])
    shorter = PCA(5, whiten=True).fit(items).transform(items)
    alone = SameOrDifferent(false_matches=0.1).fit(shorter, labels)
    assert (pipeline.predict(pairs.reshape(-1, 8)) == alone.predict(pairs_of(shorter[:40], labels[:40])[0])).all()
    assert pipeline.predict_proba(pairs.reshape(-1, 8)).shape == (len(pairs), 2)
    assert clone(pipeline).set_params(sameordifferent__false_matches=0.2).get_params()["sameordifferent"].prior == 0.5


def test_what_is_refused() -> None:
    items, labels = world(5)
    with pytest.raises(InputError, match="takes 598 classes"):
        SameOrDifferent(level="guarantee").fit(items, labels)
    rule = SameOrDifferent(false_matches=0.1).fit(items, labels)
    for wrong in (items[:3], items[:4, :7], items[:6].reshape(2, 3, 8), items[0]):
        with pytest.raises(InputError, match="Pairs must be an array"):
            rule.predict(wrong)
