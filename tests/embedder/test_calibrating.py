"""From an embedder and data to a calibration: which classes count, what is kept, and the command."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from vicinal.cli.main import app
from vicinal.data import Dataset
from vicinal.embedder import Card, Embedder, calibrate
from vicinal.embedder._calibrate import unseen_classes
from vicinal.errors import InputError
from vicinal.evaluation.threshold import choose_threshold

pytestmark = pytest.mark.unit


@pytest.fixture
def vectors():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(70), 3)
    points = rng.standard_normal((70, 4))[labels] + 0.3 * rng.standard_normal((210, 4))
    return Dataset(points.astype(np.float32), labels, tuple(f"class {code}" for code in range(70)), name="points")


@pytest.fixture
def linear():
    return Embedder("linear", dim=4, options={"features": 4})


def test_the_threshold_is_that_of_the_embeddings(linear, vectors):
    rule = calibrate(linear, vectors, false_matches=0.1, confidence=0.9)
    chosen = choose_threshold(linear.encode(vectors), vectors.labels, false_matches=0.1, confidence=0.9)
    assert (rule.threshold, rule.probabilities) == (chosen.threshold, chosen.probabilities)
    assert (rule.level, rule.per, rule.seen, rule.interval) == ("bound", "classes", chosen.seen, chosen.interval)
    assert (rule.classes, rule.embedder) == (70, linear.identity())
    linear.calibration = rule
    assert linear.same(vectors.items[0], vectors.items[0]).same


def test_classes_that_it_was_trained_on_are_left_out(linear, vectors):
    linear.card = Card(trained_on=tuple(f"class {code}" for code in range(10)))
    with pytest.warns(UserWarning, match="10 of the 70 classes of points are left out"):
        assert calibrate(linear, vectors, false_matches=0.1, confidence=0.9).classes == 60
    linear.card = Card(trained_on=vectors.class_names)
    with pytest.raises(InputError, match="trained on all 70 classes"):
        calibrate(linear, vectors)


def test_what_classes_do_not_support_is_refused_before_anything_is_embedded(linear, vectors, tmp_path, monkeypatch):
    linear.save(tmp_path / "model")
    np.savez(tmp_path / "few.npz", X=vectors.items[:12], y=vectors.labels[:12])
    monkeypatch.delattr(Embedder, "encode")
    with pytest.raises(InputError, match=r"70 classes are too few for the level 'bound'.*takes 100 classes"):
        calibrate(linear, vectors, level="bound")
    with pytest.raises(InputError, match=r"must lie between 0 and 1; got 5\.0"):
        calibrate(linear, vectors, false_matches=5.0)
    with pytest.raises(InputError, match="4 classes are too few"):
        app(["calibrate", str(tmp_path / "model"), str(tmp_path / "few.npz")], standalone_mode=False)
    with pytest.raises(InputError, match=r"must lie between 0 and 1; got 5\.0"):  # before anything is read
        app(["calibrate", "no-model", "no-data", "--false-matches", "5"], standalone_mode=False)


def test_numbers_as_names_mean_something_in_one_dataset_only(linear, vectors):
    numbered = Dataset(vectors.items, vectors.labels, tuple(map(str, range(70))), name="points")
    linear.card = Card(trained_on=("0", "1"), data={"dataset": "others"})
    assert unseen_classes(linear, numbered) is numbered
    linear.card = Card(trained_on=("0", "1"), data={"dataset": "points"})
    with pytest.warns(UserWarning, match="2 of the 70"):
        assert len(unseen_classes(linear, numbered).classes) == 68


def test_the_command_keeps_it_in_the_folder(linear, vectors, tmp_path, capsys):
    linear.save(tmp_path / "model")
    np.savez(tmp_path / "d.npz", X=vectors.items, y=vectors.labels)
    words = ["calibrate", str(tmp_path / "model"), str(tmp_path / "d.npz"), "--no-progress"]
    app(words, standalone_mode=False)
    assert re.search(
        r"at least [\d.]+\. Estimate: [\d.]+ % of the pairs of items .*95 % interval", capsys.readouterr().out
    )
    with pytest.raises(InputError, match="takes 598 classes"):
        app([*words, "--level", "guarantee"], standalone_mode=False)
    app([*words, "--false-matches", "0.1", "--confidence", "0.9"], standalone_mode=False)
    assert "with approximately 90 % confidence, at most 10 % of the pairs of items" in capsys.readouterr().out
    app([*words, "--false-matches", "0.1", "--confidence", "0.9", "--json"], standalone_mode=False)
    record = json.loads(capsys.readouterr().out)
    kept = Embedder.load(tmp_path / "model").calibration
    assert kept is not None
    assert record["threshold"] == kept.threshold
    assert 0 <= record["seen"] <= 0.1
    assert 0 < record["true_matches"] <= 1
    assert (record["level"], record["claim"], record["shift"]) == ("bound", kept.claim(), None)


def test_the_command_compares_new_items(linear, vectors, tmp_path, capsys):
    linear.save(tmp_path / "model")
    np.savez(tmp_path / "d.npz", X=vectors.items[:150], y=vectors.labels[:150])
    np.savez(tmp_path / "like.npz", X=vectors.items[150:], y=vectors.labels[150:])
    np.savez(tmp_path / "other.npz", X=vectors.items[150:] + 2, y=vectors.labels[150:])
    words = ["calibrate", str(tmp_path / "model"), str(tmp_path / "d.npz"), "--no-progress", "--check"]
    app([*words, str(tmp_path / "like.npz")], standalone_mode=False)
    assert "The new items look like the calibration classes" in capsys.readouterr().out
    app([*words, str(tmp_path / "other.npz"), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["shift"]["differs"]
