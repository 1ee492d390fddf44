"""An index with expansion and re-ranking finds what the functions on arrays find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vicinal.errors import InputError
from vicinal.index import Index
from vicinal.index import search as finding
from vicinal.neighbours import Neighbours, Reranker, Reranking, expand_queries, find_neighbours


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 8)
    return (rng.normal(size=(6, 5))[labels] + 0.8 * rng.normal(size=(48, 5))).astype(np.float32)


def ids_of(hits) -> list[int]:
    return [hit.id for hit in hits]


@pytest.fixture
def index(rows: np.ndarray, tmp_path: Path) -> Index:
    return Index.of_vectors(tmp_path / "some.index", rows, ids=list(range(48)), labels=["a", "b"] * 24)


def test_expansion(index: Index, rows: np.ndarray) -> None:
    query = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    drawn = expand_queries(query, rows, count=4).float().numpy()
    expected = find_neighbours(drawn, 5, gallery=rows).indices.tolist()
    found = index.search(vector=query, k=5, expand=4)
    assert [ids_of(hits) for hits in found] == expected
    for row, hits in zip(query, found, strict=True):  # similarities are those of the query as it was given
        plain = {hit.id: hit for hit in index.search(vector=row, k=48)}
        assert list(hits) == [plain[hit.id] for hit in hits]


def test_what_is_gone_since_it_was_found_is_not_reported(
    index: Index, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = index.search(vector=rows[0], k=2, expand=3)
    looked = finding.with_own_similarities

    def after_a_removal(*given: Any, **how: Any) -> Any:
        index.remove(ids=[first[1].id])
        return looked(*given, **how)

    monkeypatch.setattr(finding, "with_own_similarities", after_a_removal)
    assert first[1].id not in ids_of(index.search(vector=rows[0], k=2, expand=3))


def test_expansion_of_an_item_leaves_it_out(index: Index, rows: np.ndarray) -> None:
    drawn = expand_queries(rows, count=4).float().numpy()
    near = find_neighbours(drawn[7:8], 6, gallery=rows).indices[0].tolist()
    assert ids_of(index.search(item=7, k=5, expand=4)) == [place for place in near if place != 7][:5]


def test_expansion_within_a_filter(index: Index, rows: np.ndarray) -> None:
    query, kept = rows[:1] + 0.1, np.arange(0, 48, 2)
    drawn = expand_queries(query, rows[kept], count=3).float().numpy()
    near = find_neighbours(drawn, 5, gallery=rows[kept]).indices[0].numpy()
    assert ids_of(index.search(vector=query[0], k=5, where="label = 'a'", expand=3)) == kept[near].tolist()
    assert list(index.search(vector=query[0], where="label = 'none'", expand=3)) == []


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_reranking(rows: np.ndarray, tmp_path: Path, distance: str) -> None:
    settings = Reranking(near=6, shared=3, shortlist=15)
    index = Index.of_vectors(tmp_path / "some.index", rows, ids=list(range(48)), distance=distance)
    reranker = Reranker(rows, distance, settings=settings)
    query = np.random.default_rng(1).normal(size=(2, 5)).astype(np.float32)
    expected = reranker.reordered(query, find_neighbours(query, 15, gallery=rows, distance=distance))
    found = index.search(vector=query, k=5, rerank=settings)
    assert [ids_of(hits) for hits in found] == expected.indices[:, :5].tolist()
    sign = 1 if distance == "cosine" else -1
    np.testing.assert_allclose(
        [[hit.similarity for hit in hits] for hits in found], sign * expected.values[:, :5], rtol=1e-5
    )
    assert index.search(vector=query, rerank=True) == index.search(vector=query, rerank=Reranking())
    assert index.search(vector=query, rerank=False) == index.search(vector=query)
    near = find_neighbours(rows, 15, distance=distance)
    of_item = reranker.reordered_items(torch.tensor([7]), Neighbours(near.indices[7:8], near.values[7:8]))
    assert ids_of(index.search(item=7, k=5, rerank=settings)) == of_item.indices[0, :5].tolist()
    index.add(vectors=query[:1], ids=[99])  # what has come since is found
    assert 99 in ids_of(index.search(vector=query[0], k=5, rerank=settings))


def test_expansion_needs_cosines(rows: np.ndarray, tmp_path: Path) -> None:
    index = Index.of_vectors(tmp_path / "some.index", rows, distance="euclidean")
    with pytest.raises(InputError, match="needs the cosine distance"):
        index.search(vector=rows[0], expand=3)
