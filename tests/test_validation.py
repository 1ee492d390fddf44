"""Validation of a run: held-out classes among distractors, class by class, over all folds."""

import dataclasses

import numpy as np
import pytest

from vicinal.data import Dataset, Split, split
from vicinal.embedder import Embedder
from vicinal.runs._train import train
from vicinal.runs.recipe import Recipe
from vicinal.runs.record import Record
from vicinal.runs.validation import choose_by_folds, recorded, validation_scores
from vicinal.training.state import Hook

pytestmark = pytest.mark.recipe


def clusters(classes: int = 12, items: int = 6, seed: int = 0) -> Dataset:
    """Return classes of vectors around random centres, close enough to overlap."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, 8))
    labels = np.repeat(np.arange(classes), items)
    vectors = centres[labels] + 0.7 * rng.standard_normal((len(labels), 8))
    return Dataset(
        items=vectors.astype(np.float32), labels=labels, class_names=tuple(map(str, range(classes))), name="c"
    )


def naive_map_at_r(vectors: np.ndarray, labels: np.ndarray, query: int, searched: np.ndarray) -> float:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    others = [item for item in searched if item != query]
    order = sorted(others, key=lambda item: -float(unit[item] @ unit[query]))
    relevant = sum(labels[item] == labels[query] for item in others)
    hits = [labels[item] == labels[query] for item in order[:relevant]]
    return sum(np.mean(hits[: rank + 1]) for rank in range(relevant) if hits[rank]) / relevant


def test_validation_queries_are_searched_among_training_items_too():
    data = clusters()
    halves = split(data, "cross-validation", fold=1, folds=3)
    model = Embedder("linear", options={"features": 8}, normalisation="sphere")
    validated = validation_scores(model, halves.validation, Recipe(), halves.distractors)
    vectors = np.concatenate([halves.validation.items, halves.train.items]).astype(np.float64)
    labels = np.concatenate([halves.validation.labels, halves.train.labels + 100])
    queries = range(len(halves.validation))
    expected = [naive_map_at_r(vectors, labels, query, np.arange(len(labels))) for query in queries]
    alone = [naive_map_at_r(vectors, labels, query, np.arange(len(halves.validation))) for query in queries]
    assert validated.scores["MAP@R"] == pytest.approx(np.mean(expected))
    assert np.mean(expected) < np.mean(alone)  # more items make the task harder
    by_class = [np.mean(np.array(expected)[halves.validation.labels == label]) for label in halves.validation.classes]
    np.testing.assert_allclose(validated.by_class, by_class)
    assert validated.queries == (6,) * len(by_class)


def test_the_paper_protocols_score_validation_classes_alone():
    data = clusters()
    assert split(data, "reality-check", fold=0, folds=2).distractors is None
    assert split(data, "default").distractors is None
    assert split(data, "fixed-validation").distractors is not None


def test_every_training_class_validates_once_and_is_fitted_in_the_end():
    data = clusters(classes=13)
    folds = [split(data, "cross-validation", seed=3, fold=fold) for fold in range(4)]
    validated = [name for each in folds for name in each.validation.class_names]
    final = split(data, "cross-validation", seed=3)
    assert sorted(validated) == sorted(final.train.class_names)
    assert final.validation is None
    assert {each.test.class_names for each in folds} == {final.test.class_names}
    for each in folds:
        assert not {*each.train.class_names, *each.validation.class_names} & {*each.test.class_names}


def test_at_least_six_classes_validate_where_there_are_twelve():
    assert [
        len(split(clusters(classes=2 * count, items=2), "fixed-validation").validation.classes)
        for count in (12, 20, 80)
    ] == [6, 6, 8]
    assert len(split(clusters(classes=16, items=2), "fixed-validation").validation.classes) == 4
    assert split(clusters(classes=10, items=2), "fixed-validation").validation is None


def test_a_resumed_run_has_the_class_scores_of_an_uninterrupted_one(tmp_path):
    recipe = Recipe(
        backbone="linear", dim=4, classes_per_batch=3, samples_per_class=2, protocol="k-fold", folds=2, fold=0
    )
    recipe = recipe.changed(steps=6, evaluate_every=2)
    whole = train(recipe, data=clusters(), progress=False).record
    stopped = Interrupt(at=4)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, data=clusters(), folder=tmp_path / "run", hooks=[stopped], progress=False)
    resumed = train(recipe, data=clusters(), folder=tmp_path / "run", resume=True, progress=False).record
    assert len(whole.class_curve) == 3
    assert resumed.class_curve == whole.class_curve
    assert resumed.validation == whole.validation


class Interrupt(Hook):
    """A watching hook that stops a run after an evaluation."""

    only_watches = True

    def __init__(self, at: int) -> None:
        self._at = at

    def before_step(self, state):
        if state.step >= self._at:
            raise KeyboardInterrupt


def rung(rate: float, fold: int, curve: list[list[float]]) -> Record:
    classes = tuple(f"{fold}-{index}" for index in range(len(curve[0])))
    fields = recorded(classes, [10] * len(classes), curve)
    points = tuple((100 * (step + 1), float(np.mean(row))) for step, row in enumerate(curve))
    return Record(
        key=f"{rate}-{fold}",
        name="m",
        status="done",
        recipe={"training": {"learning_rate": rate}},
        steps=10 * len(curve),
        images=100 * len(curve),
        validation={"MAP@R": 0.0, "P@1": 0.5},
        curve=points,
        **fields,
    )


def test_folds_choose_a_setting_at_its_last_step():
    low = [rung(0.1, 0, [[0.2, 0.3], [0.3, 0.4]]), rung(0.1, 1, [[0.9, 0.9], [0.2, 0.3]])]
    high = [rung(1.0, 0, [[0.1, 0.1], [0.5, 0.6]]), rung(1.0, 1, [[0.1, 0.1], [0.5, 0.5]])]
    chosen = choose_by_folds({"low": low, "high": high}, "MAP@R")
    assert chosen.setting == "high"
    assert chosen.facts["validation"] == {"MAP@R": pytest.approx(0.525), "P@1": pytest.approx(0.5)}
    assert chosen.facts["validation_classes"] == ("0-0", "0-1", "1-0", "1-1")
    assert chosen.facts["curve"] == ((100, pytest.approx(0.1)), (200, pytest.approx(0.525)))
    assert chosen.scores == {"low": pytest.approx(0.3), "high": pytest.approx(0.525)}


def test_a_setting_with_a_failed_fold_is_not_chosen():
    low = [rung(0.1, 0, [[0.2, 0.3]]), rung(0.1, 1, [[0.1, 0.2]])]
    failed = Record(key="x", name="m", status="failed", recipe={"training": {"learning_rate": 1.0}})
    high = [rung(1.0, 0, [[0.9, 0.9]]), failed]
    assert choose_by_folds({"high": high, "low": low}, "MAP@R").setting == "low"
    assert choose_by_folds({"high": high}, "MAP@R") is None


def test_splits_made_by_hand_have_distractors():
    data = clusters()
    view = Split(data.of_classes(range(5)), data.of_classes(range(5, 9)), None)
    assert view.distractors is view.train
    assert dataclasses.replace(view, validation=None).distractors is None
