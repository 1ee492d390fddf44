"""Labels that are sets: the scores of evaluate against plain loops over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal.errors import InputError
from vicinal.evaluation import GroundTruth, evaluate, verify
from vicinal.evaluation import items as relevance

pytestmark = pytest.mark.unit
KS = (1, 2, 4)


def drawn(seed: int, n: int, labels: int = 6):
    """Whole numbers, so that there are ties, and sets of which some are empty."""
    rng = np.random.default_rng(seed)
    return rng.integers(-2, 3, (n, 3)).astype(np.float64), rng.random((n, labels)) < 0.25


def by_loops(queries, sets, references, reference_sets, overlap, alone, sequences=None):
    """All scores of all queries; NaN for one that has nothing to find."""
    found = []
    for i, (query, mine) in enumerate(zip(queries, sets, strict=True)):
        others = [j for j in range(len(references)) if not (alone and j == i)]
        others = [j for j in others if sequences is None or sequences[0][i] != sequences[1][j]]
        others.sort(key=lambda j: (float(((query - references[j]) ** 2).sum()), j))
        hits = []
        for j in others:
            common = sum(a and b for a, b in zip(mine, reference_sets[j], strict=True))
            either = sum(a or b for a, b in zip(mine, reference_sets[j], strict=True))
            hits.append(common > 0 if overlap == 0 else either > 0 and common / either > overlap)
        positives = sum(hits)
        if not positives:
            found.append([np.nan] * 9)
            continue
        precisions = [sum(hits[: rank + 1]) / (rank + 1) for rank in range(len(hits))]
        at_hits = [precision for precision, hit in zip(precisions, hits, strict=True) if hit]
        at_r = sum(precision for precision, hit in list(zip(precisions, hits, strict=True))[:positives] if hit)
        gain = sum(1 / np.log2(rank + 2) for rank, hit in enumerate(hits) if hit)
        best = sum(1 / np.log2(rank + 2) for rank in range(positives))
        near = [hits[0], *(any(hits[:k]) for k in KS), sum(hits[:positives]) / positives, at_r / positives]
        found.append([*near, sum(at_hits) / positives, 1 / (hits.index(True) + 1), gain / best])
    return np.array(found, dtype=np.float64)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("pairs_at_once", [7, 1 << 22])
def test_scores_are_those_of_plain_loops(monkeypatch, overlap, pairs_at_once):
    monkeypatch.setattr(relevance, "PAIRS_AT_ONCE", pairs_at_once)
    points, sets = drawn(0, 40)
    scores = evaluate(points, GroundTruth(sets, overlap=overlap), distance="euclidean", k=KS, intervals=None)
    expected = by_loops(points, sets, points, sets, overlap, alone=True)
    measured = np.column_stack(list(scores.per_query.values()))
    np.testing.assert_allclose(measured, expected, atol=1e-12)
    assert 0 < scores.left_out == int(np.isnan(expected[:, 0]).sum())
    np.testing.assert_allclose(list(scores.overall.values()), np.nanmean(expected, axis=0), atol=1e-12)
    assert scores.settings["overlap"] == overlap


def test_a_gallery_and_sequences_are_those_of_plain_loops():
    (queries, sets), (gallery, gallery_sets) = drawn(1, 17), drawn(2, 23)
    places = np.arange(17) % 4, np.arange(23) % 4
    scores = evaluate(
        queries,
        GroundTruth(torch.from_numpy(sets), sequences=places[0]),
        gallery=(gallery, GroundTruth(gallery_sets.tolist(), sequences=places[1])),
        distance="euclidean",
        k=KS,
    )
    expected = by_loops(queries, sets, gallery, gallery_sets, 0.0, False, places)
    np.testing.assert_allclose(np.column_stack(list(scores.per_query.values())), expected, atol=1e-12)


def test_sets_of_one_label_are_labels():
    points, _ = drawn(3, 30)
    labels = np.arange(30) % 5
    plain, sets = (evaluate(points, given) for given in (labels, np.eye(5, dtype=bool)[labels]))
    assert plain.to_dict() == pytest.approx(sets.to_dict(), abs=1e-12)
    assert set(plain.intervals) == set(sets.intervals)
    assert sets.classes == ("4", "3", "2", "1", "0")
    assert any("sets" in note for note in sets.notes)


def test_many_neighbours_take_the_other_way():
    """A label that most have needs more neighbours than shortlists are kept for."""
    rng = np.random.default_rng(4)
    points, sets = rng.standard_normal((300, 4)), rng.random((300, 3)) < 0.6
    scores = evaluate(points, sets, distance="euclidean", k=KS, intervals=None)
    expected = by_loops(points, sets, points, sets, 0.0, alone=True)
    np.testing.assert_allclose(np.column_stack(list(scores.per_query.values())), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": np.ones((4, 2), dtype=int)}, "takes booleans"),
        ({"labels": [[1], [1, 2], [1], [2]]}, "rows of different lengths"),
        ({"labels": np.ones((3, 2), dtype=bool)}, "4 embeddings but 3 labels"),
        ({"labels": np.zeros((4, 2), dtype=bool)}, "None of the 4 queries"),
        ({"labels": GroundTruth(np.ones((4, 2), dtype=bool), overlap=1.0)}, "overlap must be at least 0 and below 1"),
        ({"labels": GroundTruth([0, 0, 1, 1], overlap=0.5)}, "overlap is for labels that are sets"),
        ({"also": ["clustering"]}, "need one label per item"),
        ({"gallery": (np.eye(3), [0, 0, 1])}, "labels of the gallery must be sets"),
        ({"gallery": (np.eye(3), np.ones((3, 5), dtype=bool))}, "the same columns"),
    ],
)
def test_what_cannot_be_scored_is_told(options, words):
    given = {"labels": np.ones((4, 2), dtype=bool), **options}
    with pytest.raises(InputError, match=words):
        evaluate(np.ones((4, 3)), **given)


def test_what_needs_single_labels_says_so():
    with pytest.raises(InputError, match="`evaluate` alone"):
        verify(np.ones((4, 3)), np.ones((4, 2), dtype=bool))
