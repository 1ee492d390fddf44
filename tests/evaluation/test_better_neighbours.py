"""evaluate with better neighbours: the same as doing it by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal.errors import InputError
from vicinal.evaluation import GroundTruth, Neighbourhood, evaluate
from vicinal.neighbours import Reranker, Reranking, augment_references, expand_queries, find_neighbours, learn_whitening


@pytest.fixture
def items() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 10)
    return rng.normal(size=(8, 6))[labels] + 0.9 * rng.normal(size=(80, 6)), labels


def test_whitening(items: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = items
    found = learn_whitening(np.random.default_rng(1).normal(size=(50, 6)) * np.arange(1, 7), 4)
    scores = evaluate(rows, labels, neighbours=Neighbourhood(whitening=found))
    assert scores.overall == evaluate(found.apply(rows), labels).overall
    assert scores.settings["whitening"] == 4
    assert "expand" not in scores.settings


def test_a_gallery_is_augmented_and_queries_expanded_in_it(items: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = items
    gallery = (rows[::2], labels[::2])
    both = evaluate(rows[1::2], labels[1::2], gallery=gallery, neighbours=Neighbourhood(augment=3, expand=2))
    references = augment_references(rows[::2], count=3)
    queries = expand_queries(rows[1::2], references, count=2)
    by_hand = evaluate(queries, labels[1::2], gallery=(references, labels[::2]))
    assert both.overall == by_hand.overall
    assert (both.settings["augment"], both.settings["expand"]) == (3, 2)


def test_items_among_themselves_are_not_drawn_towards_themselves(items: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = items
    found = evaluate(rows, labels, neighbours=Neighbourhood(expand=3))
    queries, hits = expand_queries(rows, count=3).numpy(), []
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for place, query in enumerate(queries):
        cosines = unit @ query
        cosines[place] = -np.inf
        hits.append(labels[cosines.argmax()] == labels[place])
    assert found["P@1"] == pytest.approx(np.mean(hits))


@pytest.mark.parametrize("searched", ["itself", "gallery"])
def test_reranking(items: tuple[np.ndarray, np.ndarray], searched: str) -> None:
    rows, labels = items
    settings = Reranking(near=6, shared=3, shortlist=15)
    if searched == "itself":
        found = evaluate(rows, labels, neighbours=Neighbourhood(rerank=settings))
        near = Reranker(rows, settings=settings).reordered_items(torch.arange(80), find_neighbours(rows, 15))
        hits = labels[near.indices.numpy()] == labels[:, None]
        relevant = 9
    else:
        queries, gallery = rows[1::2], rows[::2]
        near_by = Neighbourhood(rerank=settings)
        found = evaluate(queries, labels[1::2], gallery=(gallery, labels[::2]), neighbours=near_by)
        reranker = Reranker(gallery, settings=settings)
        near = reranker.reordered(queries, find_neighbours(queries, 15, gallery=gallery))
        hits = labels[::2][near.indices.numpy()] == labels[1::2, None]
        relevant = 5
    assert found["P@1"] == pytest.approx(hits[:, 0].mean())
    precision = np.cumsum(hits, axis=1) / np.arange(1, 16)
    assert found["MAP@R"] == pytest.approx((precision * hits)[:, :relevant].sum(axis=1).mean() / relevant)
    assert "mAP" not in found.overall
    assert found.settings["rerank"]["near"] == 6


@pytest.mark.parametrize(
    ("near", "options", "words"),
    [
        ({"rerank": True, "expand": 3}, {}, "cannot be combined with expand"),
        ({"rerank": True}, {"also": ["ranking"]}, "full ranking"),
        ({"rerank": True}, {"sequences": [0, 1] * 40}, "sequences"),
        ({"expand": 3}, {"sequences": [0, 1] * 40}, "sequences"),
        ({"expand": -1}, {}, "must not be negative"),
        ({"expand": 3}, {"distance": "euclidean"}, "need the cosine distance"),
    ],
)
def test_what_does_not_go_together(items: tuple[np.ndarray, np.ndarray], near: dict, options: dict, words: str) -> None:
    truth = GroundTruth(items[1], sequences=options.pop("sequences", None))
    with pytest.raises(InputError, match=words):
        evaluate(items[0], truth, neighbours=Neighbourhood(**near), **options)
