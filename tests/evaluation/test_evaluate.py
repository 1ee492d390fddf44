"""evaluate, and the Scores it returns."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch

import vicinal.evaluation
from vicinal.data import Dataset
from vicinal.errors import DataError, InputError, NotFinite, UnknownName
from vicinal.evaluation import Bootstrap, GroundTruth, Scores, evaluate
from vicinal.evaluation.items import as_scored_items
from vicinal.evaluation.scores import recall_curve, worst_classes

pytestmark = pytest.mark.unit


def cloud(n: int = 60, classes: int = 6, noise: float = 1.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    return np.random.default_rng(9).standard_normal((classes, 8))[labels] + noise * rng.standard_normal((n, 8)), labels


def test_everything_public_exists_and_is_sorted():
    names = vicinal.evaluation.__all__
    assert names == sorted(names)
    assert all(callable(getattr(vicinal.evaluation, name)) for name in names)


def test_scores_are_floats_with_intervals_around_them():
    points, labels = cloud()
    scores = evaluate(points, labels)
    assert list(scores.overall) == ["P@1", "R@1", "R@2", "R@4", "R@8", "P@R", "MAP@R", "mAP", "MRR", "nDCG"]
    for name, interval in scores.intervals.items():
        assert isinstance(scores[name], float)
        assert interval.low <= scores[name] <= interval.high
    assert set(scores.intervals) == set(scores.overall)
    assert evaluate(points, labels, intervals=None).intervals == {}


def test_the_same_call_gives_the_same_scores():
    points, labels = cloud()
    first, again = (evaluate(points, labels, also=["ranking", "clustering", "geometry"]) for _ in range(2))
    assert first.to_json() == again.to_json()


@pytest.mark.parametrize("rename", [lambda c: c * 2**40 - 7, lambda c: -c, lambda c: f"bird {c}"])
def test_the_names_of_classes_do_not_matter(rename):
    points, labels = cloud()
    plain, renamed = evaluate(points, labels), evaluate(points, [rename(int(label)) for label in labels])
    assert dict(plain.overall) == pytest.approx(dict(renamed.overall), abs=1e-12)
    assert set(renamed.classes) == {rename(c) for c in range(6)}


def test_torch_numpy_and_lists_are_the_same():
    points, labels = cloud()
    expected = dict(evaluate(points, labels).overall)
    assert dict(evaluate(torch.from_numpy(points), torch.from_numpy(labels)).overall) == expected
    assert dict(evaluate(points.tolist(), labels.tolist()).overall) == expected


def test_queries_without_a_reference_are_counted_aloud():
    scores = evaluate([[1.0], [2.0], [3.0], [4.0]], ["a", "a", "b", "c"])
    assert (scores.queries, scores.left_out) == (4, 2)
    assert "2 queries scored against 4 references, 3 classes. 2 of 4 queries left out" in str(scores)
    assert np.isnan(scores.per_query["MAP@R"]).tolist() == [False, False, True, True]
    assert set(scores.per_class("MAP@R")) == {"a"}


def test_per_class_is_the_mean_of_its_queries_worst_first():
    points, labels = cloud(noise=2.0)
    scores = evaluate(points, labels)
    found = scores.per_class("MAP@R")
    assert list(found.values()) == sorted(found.values())
    for label, value in found.items():
        assert value == pytest.approx(scores.per_query["MAP@R"][labels == label].mean())


def test_more_neighbours_than_references_is_allowed():
    scores = evaluate([[1.0], [2.0], [-1.0]], [0, 0, 1], k=[1, 1000])
    assert scores["R@1000"] == 1


def test_many_neighbours_take_the_other_way():
    """A class of 150 needs 149 neighbours, more than shortlists are kept for."""
    points, labels = cloud(n=450, classes=3)
    scores = evaluate(points, labels, k=[])
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    hits = labels[np.argsort(-similar, axis=1)[:, :149]] == labels[:, None]
    precision = np.cumsum(hits, axis=1) / np.arange(1, 150)
    assert scores["MAP@R"] == pytest.approx((precision * hits).sum(axis=1).mean() / 149)


def test_the_full_ranking_can_be_forced_and_left_out(monkeypatch):
    points, labels = cloud()
    assert "mAP" not in evaluate(points, labels, also=[]).overall
    monkeypatch.setattr(sys.modules["vicinal.evaluation._evaluate"], "FULL_RANKING_LIMIT", 10)
    assert "mAP" not in evaluate(points, labels).overall
    assert "mAP" in evaluate(points, labels, also=["ranking"]).overall


def test_clustering_and_geometry_are_added():
    points, labels = cloud()
    scores = evaluate(points, labels, also=["ranking", "clustering", "geometry"])
    assert {"NMI", "AMI", "F1", "covering radius", "density", "hubness"} <= set(scores.overall)
    queries = evaluate(points[:30], labels[:30], gallery=(points[30:], labels[30:]), also=["geometry", "clustering"])
    assert list(queries.overall)[-1] == list(scores.overall)[-1]  # the order of the table is fixed
    assert queries["density"] == pytest.approx(scores["density"])


def test_collapse_is_noted():
    scores = evaluate(np.ones((6, 3)), [0, 0, 0, 1, 1, 1])
    assert "Note: The embeddings have collapsed" in str(scores)


def test_progress_names_its_stages():
    heard = []
    points, labels = cloud()
    evaluate(
        points,
        labels,
        also=["ranking", "clustering", "geometry"],
        progress=lambda stage, done: heard.append((stage, done)),
    )
    assert [stage for stage, done in heard if done == 1] == ["neighbours", "full ranking", "clustering", "geometry"]


def test_json_keeps_everything(tmp_path):
    points, labels = cloud()
    scores = evaluate(points, [f"ü{label}" for label in labels[:-1]] + ["alone"], also=["geometry"])
    text = scores.to_json(tmp_path / "scores.json")
    assert (tmp_path / "scores.json").read_text(encoding="utf-8").strip() == text
    back = Scores.from_json(text)
    assert back.to_json() == text
    assert str(back) == str(scores)
    assert back.left_out == 1
    assert back.difference(scores).mean == 0
    record = json.loads(text)
    assert record["schema"] == "vicinal.scores/1"
    assert record["counts"] == {"queries": 60, "left out": 1, "references": 60, "classes": 7}
    small = json.loads(scores.to_json(per_query=False))
    assert "per query" not in small
    assert small["per class"]["MAP@R"] == [list(pair) for pair in scores.per_class("MAP@R").items()]


@pytest.mark.parametrize(
    ("text", "words"), [("{}", "schema is None"), ('{"schema": "vicinal.scores/1"}', "per_query=True")]
)
def test_other_json_is_refused(text, words):
    with pytest.raises(DataError, match=words):
        Scores.from_json(text)


def test_two_models_are_compared_on_the_same_queries():
    good, labels = cloud(n=200, classes=20, noise=0.5)
    poor, _ = cloud(n=200, classes=20, noise=3.0)
    first, second = evaluate(good, labels), evaluate(poor, labels)
    found = first.difference(second)
    assert found.mean == pytest.approx(first["MAP@R"] - second["MAP@R"])
    assert found.interval.low > 0
    assert found.p_value < 0.01
    assert second.difference(first).mean == pytest.approx(-found.mean)
    with pytest.raises(InputError, match="same queries in the same order"):
        first.difference(evaluate(good, labels[::-1]))
    with pytest.raises(UnknownName, match="did you mean 'MAP@R'"):
        first.difference(second, "MAPR")


def test_a_wrong_name_is_helped():
    points, labels = cloud()
    scores = evaluate(points, labels)
    with pytest.raises(UnknownName, match="Unknown score 'MAP@r'; did you mean 'MAP@R'"):
        scores["MAP@r"]
    assert repr(scores).startswith("Scores(P@1=0.")


def test_plots(tmp_path):
    points, labels = cloud(n=80, classes=20)
    scores = evaluate(points, [f"a class with a very long name that costs $5 or ${label}" for label in labels])
    figure = scores.plot(tmp_path / "scores.png")
    assert (tmp_path / "scores.png").stat().st_size > 10_000
    curve, bars = figure.axes
    assert curve.lines[0].get_ydata().tolist() == [scores[f"R@{k}"] for k in (1, 2, 4, 8)]
    worst = list(scores.per_class("MAP@R").values())[:15]
    assert [bar.get_width() for bar in bars.patches] == worst[::-1]
    with pytest.raises(InputError, match="no R@k to draw"):
        recall_curve(evaluate(points, labels, k=[]), curve)
    worst_classes(scores, bars, "P@1", 1)
    assert bars.get_title() == "The worst class"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"draws": -1}, "draws and seed must not be negative"),
        ({"confidence": 95.0}, r"0 < confidence < 1; got 1000, 0 and 95\.0"),
    ],
)
def test_intervals_that_cannot_be_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        Bootstrap(**settings)


@pytest.mark.parametrize(
    ("gallery", "words"),
    [
        (np.eye(4), r"gallery=\(embeddings, labels\); got ndarray"),
        ((np.eye(4),), "got a tuple of 1"),
        ((np.eye(4), None), "needs labels, one per reference"),
    ],
)
def test_a_gallery_is_a_pair(gallery, words):
    with pytest.raises(InputError, match=words):
        as_scored_items(np.eye(4), [0, 0, 1, 1], gallery=gallery)


def test_sequences_of_a_dataset_are_divided_by_role():
    points, labels = cloud()
    sequences = np.arange(60) % 7
    half = np.arange(60) % 11 < 5
    data = Dataset(points, labels, tuple("abcdef"), np.where(half, "query", "gallery"))
    by_hand = evaluate(
        points[half],
        GroundTruth(labels[half], sequences[half]),
        gallery=(points[~half], GroundTruth(labels[~half], sequences[~half])),
    )
    assert evaluate(points, GroundTruth(data, sequences)).to_json() == by_hand.to_json()
    with pytest.raises(InputError, match="60 items but 3 sequences"):
        evaluate(points, GroundTruth(data, [1, 2, 3]))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"embeddings": np.zeros((0, 3)), "labels": []}, InputError, "embeddings are empty"),
        ({"labels": [0, 1]}, InputError, "There are 4 embeddings but 2 labels"),
        ({"labels": [0, 1, 2, 3]}, InputError, "None of the 4 queries has a reference of its class"),
        ({"embeddings": np.full((4, 2), np.nan)}, NotFinite, "4 of 4 rows"),
        ({"k": [0]}, InputError, "must be at least 1, got 0"),
        ({"gallery": (np.zeros((0, 4)), [])}, InputError, "gallery embeddings are empty"),
        ({"gallery": (np.eye(4), [1])}, InputError, "There are 4 embeddings but 1 labels"),
        ({"gallery": (np.eye(4), list("abcd"))}, InputError, "strings and those of the other are numbers"),
        ({"gallery": (np.eye(4), GroundTruth([0, 0, 1, 1], [0, 1, 2, 3]))}, InputError, "need sequences alike"),
        ({"gallery": (np.eye(4), GroundTruth([0, 0, 1, 1], overlap=0.5))}, InputError, "labels of the queries"),
        ({"also": "geometry"}, InputError, r"also is a list, such as \['geometry'\]"),
        ({"also": ["geometri"]}, UnknownName, "did you mean 'geometry'"),
        ({"distance": "manhattan"}, UnknownName, "Choose from: cosine, euclidean"),
    ],
)
def test_bad_input_is_refused(arguments, error, words):
    called = {"embeddings": np.eye(4), "labels": [0, 0, 1, 1]} | arguments
    heard = []
    with pytest.raises(error, match=words):
        evaluate(called.pop("embeddings"), called.pop("labels"), progress=lambda *stage: heard.append(stage), **called)
    assert not heard
