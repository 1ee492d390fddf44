"""Hits of a calibrated index: the same verdicts as the embedder's own."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from vicinal.embedder import Calibration
from vicinal.embedder.queries import embed_queries
from vicinal.errors import InputError
from vicinal.index import Index
from vicinal.neighbours import Reranking

pytestmark = pytest.mark.unit

RULE = Calibration(0.999, 0.01, "bound", "classes", 0.95, 600, 0.007, (0.005, 0.01), 0.5, (0.0, 1.0), (0.1, 0.9))


@pytest.fixture
def calibrated(model):
    mine = copy.deepcopy(model)
    mine.calibration = replace(RULE, embedder=mine.identity())
    return mine


def test_hits_say_same_and_how_probable(tmp_path, calibrated, photos):
    with Index.build(tmp_path / "x.index", calibrated, photos) as index:
        assert index.calibration == calibrated.calibration
        first, second = index.search(photos / "a" / "1.png", k=2)
        assert first.same is True
        for hit in (first, second):
            verdict = calibrated.same(str(photos / "a" / "1.png"), hit.path)
            assert hit.same == verdict.same
            assert hit.probability == pytest.approx(verdict.probability, abs=1e-9)
        assert first.as_dict()["same"] is True
        vector = calibrated.encode(str(photos / "a" / "1.png"))[0]
    with Index.open(tmp_path / "x.index") as again:  # by vector, item, and after opening
        assert again.search(vector=vector, k=1)[0].same is True
        assert again.search(item=str(photos / "a" / "1.png"), k=1)[0].probability == pytest.approx(second.probability)


@pytest.mark.parametrize("how", [{"expand": 2}, {"expand": 2, "rerank": Reranking()}, {"expand": 2, "fast": True}])
def test_a_drawn_query_changes_what_is_found_and_no_verdict(tmp_path, calibrated, photos, how):
    with Index.build(tmp_path / "x.index", calibrated, photos) as index:
        for path in photos.rglob("*.png"):
            plain = index.search(path)
            drawn = index.search(path, **how)
            assert sorted(drawn, key=lambda hit: hit.id) == sorted(plain, key=lambda hit: hit.id)
            assert (plain.expanded, plain.reranked) == (0, False)
            assert (drawn.expanded, drawn.reranked) == (2, "rerank" in how)
            assert "query expanded with 2 items" in drawn.how


def test_without_calibration_there_is_no_verdict(tmp_path, model, photos):
    with Index.build(tmp_path / "x.index", model, photos) as index:
        hit = index.search(photos / "a" / "1.png", k=1)[0]
        assert (index.calibration, hit.same, hit.probability) == (None, None, None)
    with Index.of_vectors(tmp_path / "v.index", np.eye(3)) as index:
        assert index.search([1.0, 0.0, 0.0], k=1)[0].same is None


def test_an_index_that_is_there_takes_a_calibration(tmp_path, model, calibrated, photos):
    Index.build(tmp_path / "x.index", model, photos).close()
    with Index.build(tmp_path / "x.index", calibrated, photos) as index:
        assert index.changes.unchanged == 3
        assert index.search(photos / "a" / "1.png", k=1)[0].same is True
        with pytest.raises(InputError, match="another embedder"):
            index.calibrate(RULE)
    with Index.open(tmp_path / "x.index") as index:
        assert index.calibration == calibrated.calibration
        index.compact()
        assert index.calibration == calibrated.calibration


def test_calibrating_an_index_leaves_the_embedder_that_it_was_built_with_as_it_is(tmp_path, model, photos):
    mine = copy.deepcopy(model)
    with Index.build(tmp_path / "x.index", mine, photos) as index:
        index.calibrate(replace(RULE, embedder=mine.identity()))
        assert index.embedder().calibration == index.calibration is not None
        assert mine.calibration is None


def test_the_verdict_on_two_files_is_that_of_their_vectors_in_an_index(tmp_path, calibrated, photos):
    one, other = (str(photos / name) for name in ("a/1.png", "b/1.png"))
    rows = [embed_queries(calibrated, path)[0] for path in (one, other)]
    with Index.of_vectors(tmp_path / "x.index", rows, ids=["one", "other"], embedder=calibrated) as index:
        hit = index.search(one, k=1, where="id = 'other'")[0]
        assert hit.similarity == pytest.approx(calibrated.same(one, other).similarity, abs=1e-13)
