"""An index that whitens and augments by itself: the neighbours of the functions on arrays, whatever happens to it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vicinal.cli.main import app
from vicinal.errors import DataError, InputError
from vicinal.evaluation import Neighbourhood, evaluate
from vicinal.index import Index, classify
from vicinal.index.improve import FILE, ROWS
from vicinal.neighbours import Reranker, Reranking, augment_references, expand_queries, find_neighbours, learn_whitening

ITEMS, DIM = 48, 5


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 8)
    stretched = np.array([5, 3, 2, 1, 0.5])
    return (stretched * (rng.normal(size=(6, DIM))[labels] + 0.8 * rng.normal(size=(ITEMS, DIM)))).astype(np.float32)


@pytest.fixture
def training() -> np.ndarray:
    return (np.array([5, 3, 2, 1, 0.5]) * np.random.default_rng(9).normal(size=(60, DIM)) + 1).astype(np.float32)


@pytest.fixture
def index(rows: np.ndarray, tmp_path: Path) -> Index:
    return Index.of_vectors(tmp_path / "some.index", rows, ids=list(range(ITEMS)), labels=["a", "b"] * 24)


QUERIES = np.random.default_rng(1).normal(size=(4, DIM)).astype(np.float32) * np.float32([5, 3, 2, 1, 0.5])


def better(rows: np.ndarray, training: np.ndarray | None, augment: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries and references as `evaluate` has them."""
    asked, among = QUERIES.astype(np.float64), rows.astype(np.float64)
    if training is not None:
        whitening = learn_whitening(training)
        asked, among = whitening.apply(asked), whitening.apply(among)
    return asked, augment_references(among, count=augment).numpy() if augment else among


def expected_ids(rows: np.ndarray, training: np.ndarray | None, augment: int, k: int = 7) -> list[list[int]]:
    asked, among = better(rows, training, augment)
    return find_neighbours(asked, k, gallery=among).indices.tolist()


def ids_of(answers) -> list[list[int]]:
    return [[hit.id for hit in hits] for hits in answers]


def found(index: Index, k: int = 7, **how) -> list[list[int]]:
    return ids_of(index.search(vector=QUERIES, k=k, **how))


@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize("augment", [0, 3])
def test_the_neighbours_of_the_functions_on_arrays(index: Index, rows, training, whitened: bool, augment: int) -> None:
    given = training if whitened else None
    plain = found(index)
    index.improve(whiten=given, augment=augment)
    expected = expected_ids(rows, given, augment)
    assert found(index) == expected
    assert found(index, fast=True) == expected  # exactly, which is no worse than fast
    assert index.nearest(QUERIES, 7)[0].tolist() == expected
    assert (expected != plain) == bool(whitened or augment)
    index.improve()
    assert index.improvement is None
    assert found(index) == plain


def test_the_scores_of_evaluate(index: Index, rows, training) -> None:
    labels = np.repeat(np.arange(6), 8)
    scores = evaluate(rows, labels, neighbours=Neighbourhood(learn_whitening(training), augment=3), intervals=None)
    index.improve(whiten=training, augment=3)
    nearest = [index.search(item=item, k=1)[0].id for item in range(ITEMS)]
    assert np.mean(labels[nearest] == labels) == pytest.approx(scores["P@1"])


def test_similarities_and_thresholds_stay_those_of_the_vectors(index: Index, rows, training) -> None:
    index.improve(whiten=training, augment=3)
    for query, hits in zip(QUERIES, index.search(vector=QUERIES, k=7), strict=True):
        cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
        assert [hit.similarity for hit in hits] == pytest.approx([cosines[hit.id] for hit in hits], abs=1e-6)
        assert hits.exact
        assert hits.improved == "whitened to 5 dimensions, augmented by 3"
        (naming,) = classify(index, vector=query[None], threshold=float(cosines[hits[0].id]) + 1e-4)
        assert (naming.nearest, naming.label) == (hits[0].id, None)
    assert "searched whitened to 5 dimensions, augmented by 3" in repr(index)


def test_it_survives_opening_changes_and_compaction(index: Index, rows, training) -> None:
    index.improve(whiten=training, augment=2)
    assert found(Index.open(index.path)) == expected_ids(rows, training, 2)
    index.add(vectors=QUERIES[:2], ids=[100, 101], labels=["a", "b"])
    more = np.concatenate([rows, QUERIES[:2]])
    names = np.array([*range(ITEMS), 100, 101])
    assert found(index) == names[expected_ids(more, training, 2)].tolist()
    index.remove(ids=[0, 1, 2, 100])
    kept = ~np.isin(names, [0, 1, 2, 100])
    expected = names[kept][expected_ids(more[kept], training, 2)].tolist()
    assert found(index) == expected
    assert found(Index.open(index.path)) == expected
    assert index.compact() == 4
    assert found(index) == expected
    assert index.verify() == []
    index.improve()
    index.rollback()
    assert str(index.improvement) == "whitened to 5 dimensions, augmented by 2"


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "nonsense", "of another state"])
def test_a_damaged_cache_is_made_anew(index: Index, rows, training, damage: str) -> None:
    index.improve(whiten=training, augment=3)
    folder = index.path / "generation-1"
    right = (folder / ROWS).read_bytes()
    if damage == "flipped":
        (folder / ROWS).write_bytes(right[:40] + bytes([right[40] ^ 0x40]) + right[41:])
    elif damage == "cut":
        (folder / ROWS).write_bytes(right[:-4])
    elif damage == "gone":
        (folder / ROWS).unlink()
    elif damage == "nonsense":
        (folder / "improved.json").write_text("[")
    else:
        about = json.loads((folder / "improved.json").read_text())
        (folder / "improved.json").write_text(json.dumps(about | {"state": "generation-1, 0, "}))
    again = Index.open(index.path)
    assert found(again) == expected_ids(rows, training, 3)
    assert (folder / ROWS).read_bytes() == right


def test_the_cache_is_what_the_next_process_searches(index: Index, rows, training) -> None:
    index.improve(whiten=training, augment=3)
    again = Index.open(index.path)
    kept = (index.path / "generation-1" / ROWS).stat().st_mtime_ns
    assert found(again) == expected_ids(rows, training, 3)
    assert (index.path / "generation-1" / ROWS).stat().st_mtime_ns == kept


def test_a_damaged_setting_is_an_error_and_not_another_answer(index: Index, training) -> None:
    index.improve(whiten=training)
    path = index.path / "generation-1" / FILE
    path.write_bytes(path.read_bytes()[:200])
    again = Index.open(index.path)
    with pytest.raises(DataError, match=FILE):
        again.search(vector=QUERIES[0])
    assert FILE in again.verify()[0]
    again.improve(augment=1)
    assert again.verify() == []


def test_filters_items_and_expansion_see_the_improved_vectors(index: Index, rows, training) -> None:
    index.improve(whiten=training, augment=3)
    asked, among = better(rows, training, 3)
    even = np.arange(0, ITEMS, 2)
    near = find_neighbours(asked, 5, gallery=among[even]).indices.numpy()
    for _ in range(2):
        assert found(index, 5, where="label = 'a'") == even[near].tolist()
    assert ids_of(index.search(vector=QUERIES, where="label = 'none'")) == [[], [], [], []]
    drawn = expand_queries(asked, among, count=4)
    assert found(index, 5, expand=4) == find_neighbours(drawn, 5, gallery=among).indices.tolist()
    own = learn_whitening(training).apply(rows[7:8].astype(np.float64))
    others = [place for place in find_neighbours(own, 6, gallery=among).indices[0].tolist() if place != 7]
    assert [hit.id for hit in index.search(item=7, k=5)] == others[:5]


def test_reranking_goes_with_whitening_and_not_with_augmentation(index: Index, rows, training) -> None:
    settings = Reranking(near=6, shared=3, shortlist=15)
    index.improve(whiten=training)
    asked, among = better(rows, training, 0)
    reranker = Reranker(among, "cosine", settings=settings)
    expected = reranker.reordered(asked, find_neighbours(asked, 15, gallery=among))
    assert found(index, 5, rerank=settings) == expected.indices[:, :5].tolist()
    index.improve(augment=2)
    with pytest.raises(InputError, match="combined with augmented vectors"):
        index.search(vector=QUERIES[0], rerank=settings)


def test_what_cannot_be(index: Index, rows, training, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="from 0 to 1,000"):
        index.improve(augment=-1)
    with pytest.raises(InputError, match="learned from 4 dimensions; the index has 5"):
        index.improve(whiten=training[:, :4])
    euclidean = Index.of_vectors(tmp_path / "euclidean.index", rows, distance="euclidean")
    with pytest.raises(InputError, match="augment needs the cosine distance, or whiten"):
        euclidean.improve(augment=2)
    euclidean.improve(whiten=training)
    hits = euclidean.search(vector=QUERIES[0], k=7)
    assert [hit.id for hit in hits] == expected_ids(rows, training, 0)[0]
    assert hits[0].similarity == pytest.approx(-np.linalg.norm(rows[hits[0].id] - QUERIES[0]), rel=1e-6)
    few = Index.of_vectors(tmp_path / "few.index", rows[:1])
    few.improve(whiten=training, augment=3)
    assert [hit.id for hit in few.search(vector=QUERIES[0])] == [0]
    few.remove(ids=[0])
    assert list(few.search(vector=QUERIES[0])) == []


def test_a_second_handle_follows(index: Index, rows, training) -> None:
    other = Index.open(index.path)
    before = found(other)
    index.improve(whiten=training)
    assert found(other) == expected_ids(rows, training, 0) != before
    index.improve()
    assert found(other) == before


def test_from_the_terminal(index: Index, rows, training, tmp_path: Path, capfd) -> None:
    np.savez(tmp_path / "train.npz", embeddings=training, labels=np.zeros(60))
    np.save(tmp_path / "queries.npy", QUERIES)
    whitened = ["--whiten", str(tmp_path / "train.npz")]
    app(["index", "improve", str(index.path), *whitened, "--augment", "3"], standalone_mode=False)
    assert "searched whitened to 5 dimensions, augmented by 3" in capfd.readouterr().err
    search = ["search", str(index.path), "--vector", str(tmp_path / "queries.npy"), "--k", "7"]
    app([*search, "--json"], standalone_mode=False)
    replies = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [[hit["id"] for hit in reply["hits"]] for reply in replies] == expected_ids(rows, training, 3)
    assert replies[0]["improved"] == "whitened to 5 dimensions, augmented by 3"
    app(search, standalone_mode=False)
    assert "exact, whitened to 5 dimensions, augmented by 3" in capfd.readouterr().err
    with pytest.raises(InputError, match="vicinal index plain"):
        app(["index", "improve", str(index.path)], standalone_mode=False)
    app(["index", "plain", str(index.path)], standalone_mode=False)
    assert "searched" not in capfd.readouterr().err
