"""Same or different: the rule itself, where it is kept, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from vicinal.embedder import Calibration, Embedder
from vicinal.embedder.queries import embed_queries
from vicinal.errors import DataError, InputError

pytestmark = pytest.mark.unit

RULE = Calibration(
    0.7, 0.01, "bound", "classes", 0.95, 600, 0.007, (0.005, 0.01), 0.5, (0.0, 0.5, 1.0), (0.1, 0.2, 0.9)
)


def test_threshold_and_probabilities():
    assert RULE.same(0.7) is True
    assert RULE.same(np.array([0.69, 0.71])).tolist() == [False, True]
    assert RULE.probability(0.75) == pytest.approx(0.55)
    assert RULE.probability(np.array([-1.0, 0.25, 2.0])).tolist() == pytest.approx([0.1, 0.15, 0.9])
    # Bayes' rule by hand: odds of .2 are 1/4; with a prior of .1 they are 1/36
    assert RULE.probability(0.5, prior=0.1) == pytest.approx(1 / 37)
    with pytest.raises(InputError, match="between 0 and 1"):
        RULE.probability(0.5, prior=1.0)
    assert "at most 1 % of the pairs of items of two new classes" in str(RULE)


def test_json_round_trip():
    assert Calibration.of(json.loads(json.dumps(RULE.as_dict()))) == RULE


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": "x"},
        {"threshold": float("nan")},
        {"false_matches": 0.0},
        {"confidence": 1.0},
        {"classes": 1},
        {"similarities": [0.0, 0.0, 1.0]},
        {"similarities": []},
        {"probabilities": [0.1, 0.05, 0.9]},
        {"probabilities": [0.1, 0.2, 1.0]},
        {"probabilities": None},
        {"extra": 1},
    ],
)
def test_what_is_no_calibration_is_refused(changes):
    with pytest.raises(DataError, match="calibration"):
        Calibration.of(RULE.as_dict() | changes)
    with pytest.raises(DataError, match="got list"):
        Calibration.of([])


def test_same_agrees_with_cosines_and_distances(embedder, images):
    with pytest.raises(InputError, match="vicinal calibrate"):
        embedder.same(images[0], images[1])
    embedder.calibration = replace(RULE, embedder=embedder.identity())
    rows = embed_queries(embedder, images[:2]).astype(np.float64)
    verdict = embedder.same(images[0], images[1])
    cosine = rows[0] @ rows[1] / np.linalg.norm(rows[0]) / np.linalg.norm(rows[1])
    assert verdict.similarity == pytest.approx(cosine, abs=1e-12)
    assert verdict.same == bool(verdict) == (cosine >= 0.7)
    assert verdict.as_dict()["probability"] == RULE.probability(verdict.similarity)
    assert embedder.same(images[0], images[0]).similarity == pytest.approx(1)
    with pytest.raises(InputError, match="got 2 and 1"):
        embedder.same(images[:2], images[0])

    far = Embedder("linear", dim=None, normalisation="none", options={"features": 2})
    far.calibration = replace(RULE, threshold=-5.0, embedder=far.identity())
    a, b = np.float32([0, 0]), np.float32([3, 4])
    verdict = far.same(a, b)
    length = float(np.linalg.norm(far.encode(a) - far.encode(b)))
    assert verdict.similarity == pytest.approx(-length)
    assert verdict.same == (length <= 5)


def test_it_is_kept_in_the_folder_and_on_the_card(embedder, tmp_path):
    before = embedder.identity()
    embedder.calibration = replace(RULE, embedder=before)
    assert embedder.identity() == before
    embedder.save(tmp_path)
    assert Embedder.load(tmp_path).calibration == embedder.calibration
    assert "## Same or different" in (tmp_path / "README.md").read_text()

    embedder.calibration = None
    embedder.save(tmp_path)
    assert Embedder.load(tmp_path).calibration is None


def test_of_another_embedder_or_damaged(embedder, tmp_path):
    embedder.calibration = replace(RULE, embedder=embedder.identity())
    embedder.save(tmp_path)
    kept = (tmp_path / "calibration.json").read_text()
    with torch.no_grad():
        next(embedder.parameters()).add_(1)
    with pytest.raises(InputError, match="other weights"):
        embedder.save(tmp_path)
    (tmp_path / "calibration.json").write_text(json.dumps(replace(RULE, embedder="x").as_dict()))
    with pytest.raises(DataError, match="belongs to another embedder"):
        Embedder.load(tmp_path)
    (tmp_path / "calibration.json").write_text(kept[:50])
    with pytest.raises(DataError, match="JSON"):
        Embedder.load(tmp_path)
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(DataError, match="format version 1"):
        Embedder.load(tmp_path)
