"""Re-ranking against the formula of the paper, word by word, with sets and loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal.errors import InputError
from vicinal.neighbours import Neighbours, Reranker, Reranking, find_neighbours
from vicinal.neighbours.reranking import as_reranking

SETTINGS = Reranking(near=5, shared=3, distance_weight=0.3, shortlist=12)


def all_squares(rows: np.ndarray, distance: str, near: int) -> np.ndarray:
    if distance == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    squares = np.array([[float(((one - other) ** 2).sum()) for other in rows] for one in rows])
    return squares if distance == "cosine" else squares / np.median(np.sort(squares, axis=1)[:, near])


def by_the_paper(squares: np.ndarray, settings: Reranking) -> np.ndarray:
    """d* of all pairs, as the paper has it: N, R, R*, V, its local expansion, Jaccard."""
    count = len(squares)
    ranked = [
        sorted(range(count), key=lambda other: (other != one, squares[one, other], other)) for one in range(count)
    ]

    def mutual(one: int, k: int) -> set[int]:
        return {other for other in ranked[one][: k + 1] if one in ranked[other][: k + 1]}

    encoded = np.zeros((count, count))
    for one in range(count):
        members = set(mutual(one, settings.near))
        for other in mutual(one, settings.near):
            theirs = mutual(other, round(settings.near / 2))
            if len(theirs & mutual(one, settings.near)) >= 2 / 3 * len(theirs):
                members |= theirs
        for member in members:
            encoded[one, member] = np.exp(-squares[one, member])
    averaged = np.array(
        [np.mean([encoded[other] for other in ranked[one][: settings.shared]], axis=0) for one in range(count)]
    )
    final = np.empty((count, count))
    for one in range(count):
        for other in range(count):
            least = sum(min(a, b) for a, b in zip(averaged[one], averaged[other], strict=True))
            most = sum(max(a, b) for a, b in zip(averaged[one], averaged[other], strict=True))
            jaccard = 1 - least / most
            final[one, other] = (1 - settings.distance_weight) * jaccard + settings.distance_weight * squares[
                one, other
            ]
    return final


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_items_among_themselves(distance: str) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(5, 4)), 8, axis=0) + 0.7 * rng.normal(size=(40, 4))
    found = find_neighbours(rows, 20, distance=distance)
    again = Reranker(rows, distance, settings=SETTINGS).reordered_items(torch.arange(40), found)
    final = by_the_paper(all_squares(rows, distance, SETTINGS.near), SETTINGS)
    changed = 0
    for one in range(40):
        first = found.indices[one, :12].tolist()
        expected = sorted(first, key=lambda other: final[one, other])
        assert again.indices[one, :12].tolist() == expected
        assert again.indices[one, 12:].tolist() == found.indices[one, 12:].tolist()
        changed += expected != first
        for place, other in enumerate(again.indices[one].tolist()):
            assert again.values[one, place] == found.values[one, found.indices[one].tolist().index(other)]
    assert changed > 20


def test_a_query_that_is_no_reference() -> None:
    """As the paper has it with the query among the references, whose own sets are those without it."""
    rng = np.random.default_rng(1)
    rows = np.repeat(rng.normal(size=(5, 4)), 8, axis=0) + 0.7 * rng.normal(size=(40, 4))
    query = rng.normal(size=4)
    settings = SETTINGS
    squares = all_squares(np.vstack([rows, query]), "cosine", settings.near)
    ranked = [sorted(range(40), key=lambda other: (other != one, squares[one, other])) for one in range(40)]

    def mutual(one: int, k: int) -> set[int]:
        return {other for other in ranked[one][: k + 1] if one in ranked[other][: k + 1]}

    def encoded(one: int, own: set[int]) -> np.ndarray:
        members = set(own)
        for other in own:
            theirs = mutual(other, round(settings.near / 2))
            if len(theirs & own) >= 2 / 3 * len(theirs):
                members |= theirs
        values = np.zeros(40)
        for member in members:
            values[member] = np.exp(-squares[one, member])
        return values

    nearest = sorted(range(40), key=lambda other: squares[40, other])
    among = {
        other
        for other in nearest[: settings.near]
        if squares[40, other] <= squares[other, ranked[other][settings.near]]
    }
    each = [encoded(one, mutual(one, settings.near)) for one in range(40)]
    averaged = [np.mean([each[other] for other in ranked[one][: settings.shared]], axis=0) for one in range(40)]
    mine = np.mean([encoded(40, among), *(each[other] for other in nearest[: settings.shared - 1])], axis=0)
    final = [
        0.7 * (1 - np.minimum(mine, averaged[one]).sum() / np.maximum(mine, averaged[one]).sum())
        + 0.3 * squares[40, one]
        for one in range(40)
    ]
    found = find_neighbours(query[None], 12, gallery=rows)
    again = Reranker(rows, settings=settings).reordered(query[None], found)
    assert again.indices[0].tolist() == sorted(nearest[:12], key=lambda one: final[one])


def test_fewer_references_than_asked_for() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 3))
    found = find_neighbours(rows, 6)
    again = Reranker(rows).reordered_items(torch.arange(4), found)
    assert sorted(again.indices[0].tolist()) == sorted(found.indices[0].tolist())
    assert again.indices[:, 3:].tolist() == [[-1] * 3] * 4
    nothing = Neighbours(torch.full((1, 2), -1), torch.full((1, 2), torch.nan, dtype=torch.float64))
    assert Reranker(rows).reordered(rows[:1], nothing).indices.tolist() == [[-1, -1]]


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        Reranking(distance_weight=2.0)
    with pytest.raises(InputError, match="at least 2 references"):
        Reranker([[1.0, 0.0]])


def test_true_is_the_papers_settings_and_other_words_are_refused() -> None:
    assert as_reranking(True) == Reranking()
    assert as_reranking(False) is as_reranking(None) is None
    assert as_reranking(SETTINGS) is SETTINGS
    for given in ("yes", 1, {"near": 3}):
        with pytest.raises(InputError, match="rerank must be True, False or Reranking"):
            as_reranking(given)
