"""Names by the nearest item of an index: near enough, none of these, and the command."""

from __future__ import annotations

import copy
import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from vicinal.cli.main import app
from vicinal.embedder import Calibration
from vicinal.errors import InputError
from vicinal.index import Index, classify

pytestmark = pytest.mark.unit


def test_names_by_a_loop_over_items(tmp_path):
    rng = np.random.default_rng(0)
    known, asked = (rng.standard_normal((n, 3)).astype(np.float32) for n in (20, 15))
    labels = [f"c{place % 6}" for place in range(20)]
    with Index.of_vectors(tmp_path / "x.index", known, labels=labels) as index:
        namings = classify(index, vector=asked, threshold=0.9)
        for row, naming in zip(asked, namings, strict=True):
            cosines = known @ row / np.linalg.norm(known, axis=1) / np.linalg.norm(row)
            best = int(np.argmax(cosines))
            assert naming.nearest == best
            assert naming.nearest_label == labels[best]
            assert naming.label == (labels[best] if cosines[best] >= 0.9 else None)
        assert {naming.label is None for naming in namings} == {True, False}
        assert classify(index, vector=asked[0], threshold=-1.0, where="label = 'c1'")[0].label == "c1"
        with pytest.raises(InputError, match="vicinal calibrate"):
            classify(index, vector=asked)
        with pytest.raises(InputError, match="a cosine, between -1 and 1; got 7"):
            classify(index, vector=asked, threshold=7.0)
        with pytest.raises(InputError, match="has a label"):
            classify(index, vector=asked, threshold=0.5, where="label = 'c9'")


def test_a_new_class_needs_no_training_and_the_command_says_the_same(tmp_path, model, photos, capsys):
    mine = copy.deepcopy(model)
    rule = Calibration(1 - 1e-6, 0.01, "bound", "classes", 0.95, 600, 0.007, (0.005, 0.01), 0.5, (0.0, 1.0), (0.1, 0.9))
    mine.calibration = replace(rule, embedder=mine.identity())
    new = tmp_path / "new"
    new.mkdir()
    rng = np.random.default_rng(5)
    for name in ("1.png", "2.png"):
        Image.fromarray(rng.integers(0, 256, (20, 20), dtype=np.uint8)).save(new / name)
    with Index.build(tmp_path / "x.index", mine, photos) as index:
        assert [naming.label for naming in classify(index, photos / "a")] == ["a", "a"]
        assert classify(index, new / "1.png")[0].label is None
        index.add([str(new / "1.png")], labels=["fresh"])
        namings = classify(index, new)
        assert [naming.label for naming in namings] == ["fresh", None]
    words = ["classify", str(tmp_path / "x.index"), str(new), "--out", str(tmp_path / "names.csv")]
    app([*words, "--json"], standalone_mode=False)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows] == ["fresh", None]
    assert rows[0]["probability"] == namings[0].probability
    with (tmp_path / "names.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["fresh", ""]
    app(words, standalone_mode=False)
    said = capsys.readouterr()
    assert "none of these" in said.out
    assert "1 of 2 images labelled" in said.err
