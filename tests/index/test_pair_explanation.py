"""Why a hit was found: by hand, against a plain sort, and against the curves of `vicinal weights`."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.embedder.calibration import Calibration
from vicinal.embedder.folder import Card
from vicinal.index import Index
from vicinal.index.explain import TrainedLoss, class_centres, explain_pair, loss_on_card, loss_sentence, trace_loss
from vicinal.objectives import OBJECTIVES
from vicinal.weights import weight_curves

pytestmark = pytest.mark.unit

VECTORS = np.float32([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1], [0.96, 0.28]])
LABELS = ["a", "a", "b", "b", None]


CALIBRATION = Calibration(0.7, 0.01, "bound", "classes", 0.95, 600, 0.007, (0.005, 0.01), 0.5, (0.2, 1.0), (0.1, 0.9))


def explained(hit: int, query: int, **more):
    return explain_pair(
        VECTORS[query],
        hit,
        embeddings=VECTORS,
        ids=list(range(5)),
        labels=LABELS,
        centres=class_centres(VECTORS, LABELS, "cosine"),
        query_place=query,
        **more,
    )


def test_a_case_by_hand() -> None:
    found = explained(2, 0, k=3, calibration=CALIBRATION)
    assert found.similarity == pytest.approx(0.6)
    assert (found.rank, found.items) == (3, 4)
    # The nearest three of item 0 are items 4 (no label), 1 (a) and 2 (b).
    assert [(label, many, round(best, 2)) for label, many, best in found.classes] == [
        (None, 1, 0.96),
        ("a", 1, 0.8),
        ("b", 1, 0.6),
    ]
    # Without the query itself, class a is item 1 alone; the mean of class b points at (0.6, 1.8).
    assert [label for label, _ in found.centres] == ["a", "b"]
    assert [value for _, value in found.centres] == pytest.approx([0.8, 0.6 / np.hypot(0.6, 1.8)])
    assert found.hit_centre == (2, pytest.approx(0.6 / np.hypot(0.6, 1.8)))
    assert (found.same, found.threshold, found.claim) == (False, 0.7, CALIBRATION.claim())
    assert found.probability == pytest.approx(0.5)  # halfway between the knots


def test_a_hit_without_a_label_has_no_centre_and_an_uncalibrated_model_no_verdict() -> None:
    found = explained(4, 0)
    assert (found.rank, found.hit_centre) == (1, None)
    assert (found.threshold, found.same, found.probability) == (None, None, None)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_rank_and_similarity_are_those_of_the_index(tmp_path, distance: str) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 3)).astype(np.float32)
    vectors[7] = vectors[9] = vectors[11]  # ties
    index = Index.of_vectors(tmp_path / "i", vectors, distance=distance)
    centres = class_centres(vectors, [None] * 40, distance)
    for query in (0, 9, 20):
        for turn, hit in enumerate(index.search(item=query, k=39), start=1):
            found = explain_pair(
                vectors[query],
                hit.id,
                embeddings=vectors,
                ids=range(40),
                labels=[None] * 40,
                centres=centres,
                distance=distance,
                query_place=query,
            )
            assert (found.rank, found.similarity) == (turn, hit.similarity)


def test_a_query_that_is_no_item_counts_all_items() -> None:
    found = explain_pair(
        np.float32([1, 0]),
        0,
        embeddings=VECTORS,
        ids=range(5),
        labels=LABELS,
        centres=class_centres(VECTORS, LABELS, "cosine"),
    )
    assert (found.rank, found.items, found.nearest) == (1, 5, 5)


def test_the_card_names_the_loss() -> None:
    card = Card(recipe='loss = "raw"\nmining = "easy_positive"\n[loss_options]\npositive_scale = {start = 3.0}\n')
    found = loss_on_card(card)
    assert found == TrainedLoss("raw", {"positive_scale": 3.0}, "easy_positive", "batch")
    assert loss_on_card(Card(recipe='loss = "proxy_anchor"')).references == "proxies"
    assert "does not name" in loss_on_card(Card())
    assert "cannot be read" in loss_on_card(Card(recipe="loss = "))
    assert "a custom loss" in loss_on_card(Card(recipe='loss = "mine:loss"'))


@pytest.mark.parametrize("name", ["triplet", "proxy_anchor", "metric_cross_entropy"])
def test_a_loss_has_the_curves_of_vicinal_weights(name: str) -> None:
    traced = trace_loss(TrainedLoss(name))
    assert not isinstance(traced, str), traced
    curves = weight_curves(OBJECTIVES[name], points=101)
    np.testing.assert_array_equal(traced.push, curves.negative.numpy())
    pull, push = traced.at(0.3)
    inner = np.abs(traced.similarity) < 0.97
    assert pull * (np.abs(traced.pull[inner]).max() or 1.0) == pytest.approx(
        np.interp(0.3, traced.similarity, traced.pull)
    )
    assert abs(push) <= 1 + 1e-9


def test_sentences_follow_the_curve() -> None:
    traced = trace_loss(TrainedLoss("contrastive", {"threshold": 0.5}))
    assert not isinstance(traced, str)
    assert "push the pair apart with 100 %" in loss_sentence(traced, 0.8, together=False)
    assert "not change the pair" in loss_sentence(traced, 0.2, together=False)
    assert "pull the pair together with 100 %" in loss_sentence(traced, 0.2, together=True)
    assert "if not" in loss_sentence(traced, 0.2, together=None)


def test_random_miners_have_no_curve() -> None:
    assert "randomly drawn" in trace_loss(TrainedLoss("margin", {}, "distance_weighted"))
