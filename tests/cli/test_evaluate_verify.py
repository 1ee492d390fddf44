"""`vicinal evaluate --verify`: the scores of `verify`, beside those of retrieval."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vicinal.cli.main import app
from vicinal.evaluation import verify

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
