"""`vicinal evaluate --verify --identify --few-shot`: decisions, beside the scores of retrieval."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vicinal.cli.main import app
from vicinal.errors import InputError
from vicinal.evaluation import few_shot_accuracy, identify, verify

pytestmark = pytest.mark.unit


def test_the_terminal_prints_what_python_returns(tmp_path, capsys):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 4)
    points = rng.standard_normal((40, 8))[labels] + rng.standard_normal((160, 8))
    np.savez(tmp_path / "e.npz", embeddings=points, labels=labels)
    words = [
        "evaluate",
        str(tmp_path / "e.npz"),
        "--verify",
        "--json",
        "--no-progress",
        "--no-clustering",
        "--no-geometry",
    ]
    app(words, standalone_mode=False)
    record = json.loads(capsys.readouterr().out)
    found = verify(points, labels)
    assert {name: record["overall"][name] for name in found.overall} == pytest.approx(found.to_dict())
    assert record["intervals"]["EER"] == pytest.approx(list(found.intervals["EER"]))


def test_who_it_is_and_a_few_examples_from_the_terminal(tmp_path, capsys):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 4)
    points = rng.standard_normal((40, 8))[labels] + rng.standard_normal((160, 8))
    np.savez(tmp_path / "e.npz", embeddings=points, labels=labels)
    np.savez(tmp_path / "known.npz", embeddings=points[:80:2], labels=labels[:80:2])
    plain = ["--no-progress", "--no-clustering", "--no-geometry"]
    words = ["evaluate", str(tmp_path / "e.npz"), "--identify", "--few-shot", "5x1,10x3", *plain]
    app([*words, "--json"], standalone_mode=False)
    overall = json.loads(capsys.readouterr().out)["overall"]
    expected = identify(points, labels)
    assert {name: overall[name] for name in expected.overall} == pytest.approx(dict(expected.overall))
    assert overall["10-way 3-shot"] == pytest.approx(few_shot_accuracy(points, labels, ways=10, shots=3).accuracy)
    app(words, standalone_mode=False)
    assert "DIR@FAR=0.01" in capsys.readouterr().out
    app([*words[:3], *plain, "--gallery", str(tmp_path / "known.npz"), "--json"], standalone_mode=False)
    record = json.loads(capsys.readouterr().out)
    known = identify(points, labels, gallery=(points[:80:2], labels[:80:2]))
    assert record["overall"]["DIR@FAR=0.1"] == pytest.approx(known["DIR@FAR=0.1"])
    assert "Identification: 80 queries of known classes, 80 strangers." in record["notes"]
    for typed in ("5", "5x", "axb", "5x1x2", "-5x1"):
        with pytest.raises(InputError, match="--few-shot must be WAYSxSHOTS, such as 5x1"):
            app([*words[:2], "--few-shot", typed], standalone_mode=False)
