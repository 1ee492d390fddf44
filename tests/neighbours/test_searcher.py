"""References prepared once: what is found is what `neighbours` and a naive loop find."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InputError, NotFinite, UnknownName
from vicinal.neighbours import Neighbours, Searcher, find_neighbours, scan
from vicinal.neighbours import int8 as int8_products
from vicinal.neighbours import references as prepared_references
from vicinal.neighbours import searcher as searcher_module
from vicinal.neighbours.layout import LOWEST, centre
from vicinal.neighbours.references import int8_references
from vicinal.neighbours.scan import nearest_exactly
from vicinal.neighbours.shortlist import Task
from vicinal.neighbours.similarity import exact_rows, vectors, vectors_like

pytestmark = pytest.mark.unit

DISTANCES = ("cosine", "euclidean")
needs_int8 = pytest.mark.skipif(not int8_products.int8_is_fast(), reason="needs AVX2 and a torch with FBGEMM")


def clouds(n: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Spread out, tied, duplicated, collapsed points, and lengths from one end of float to the other."""
    generator = torch.Generator().manual_seed(seed)
    plain = torch.randn(n, 12, generator=generator)
    lengths = torch.logspace(-3, 3, n)[torch.randperm(n, generator=generator), None]
    return {
        "plain": plain,
        "signs": torch.randn(n, 3, generator=generator).sign(),
        "one point": torch.ones(n, 4),
        "nearly one point": plain * 1e-4 + 3,
        "duplicates": plain[: n // 2 + 1].repeat(2, 1)[:n],
        "crowd": torch.cat([plain[: n // 2], plain[:1].expand(n - n // 2, 12)]),
        "clusters": plain[: n // 20 + 1].repeat(21, 1)[:n] + 0.05 * torch.randn(n, 12, generator=generator),
        "zeros among": plain * (torch.arange(n) % 3 > 0)[:, None],
        "all lengths": plain * lengths,
        "huge": plain * 1e30,
        "tiny": plain * 1e-30,
        "double": plain.double() * 1e130,
        "half": plain.half(),
    }


def same(found: Neighbours, wanted: Neighbours) -> None:
    assert torch.equal(found.indices, wanted.indices)
    assert torch.equal(found.values.nan_to_num(nan=-7), wanted.values.nan_to_num(nan=-7))


def oracle(queries, references, k, distance, allowed=None) -> torch.Tensor:
    """Exact keys for all pairs, sorted."""
    mine, theirs = vectors(queries.float() if queries.dtype == torch.half else queries, references, distance=distance)
    keys = exact_rows(mine, torch.arange(len(mine)), theirs)
    if allowed is not None:
        keys[:, ~allowed] = -torch.inf
    values, columns = nearest_exactly(keys, min(k, len(references)))
    found = torch.full((len(queries), k), -1)
    found[:, : columns.shape[1]] = columns.masked_fill(values == -torch.inf, -1)
    return found


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("name", clouds(40))
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_what_neighbours_and_exact_arithmetic_find(name, distance, precision):
    points = clouds(600)[name]
    searcher = Searcher(points[:500], distance, precision=precision, block=64)
    for queries, k in [(points[500:], 5), (points[:1], 1), (points[300:540], 40)]:
        found = searcher.search(queries, k)
        same(found, find_neighbours(queries, k, gallery=points[:500], distance=distance))
        same(
            found, find_neighbours(queries, k, gallery=points[:500], distance=distance, precision="float32", block=128)
        )
        assert torch.equal(found.indices, oracle(queries, points[:500], k, distance))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_cases(data):
    n, m = data.draw(st.integers(1, 40), label="n"), data.draw(st.integers(1, 700), label="m")
    k = data.draw(st.integers(1, 20), label="k")
    name = data.draw(st.sampled_from(sorted(clouds(40))), label="points")
    distance = data.draw(st.sampled_from(DISTANCES), label="distance")
    points = clouds(n + m, seed=data.draw(st.integers(0, 100)))[name]
    points = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(m))]
    stretch = data.draw(st.sampled_from([1.0, 1e-3, 0.5, 3.0, 1e3]), label="stretch")
    queries, references = points[:n] * stretch, points[n:]
    allowed = None
    if data.draw(st.booleans(), label="among"):
        share = data.draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]), label="share")
        allowed = torch.rand(m, generator=torch.Generator().manual_seed(n)) < share
    found = Searcher(references, distance, block=64).search(queries, k, among=allowed)
    if allowed is None:
        same(found, find_neighbours(queries, k, gallery=references, distance=distance))
    assert torch.equal(found.indices, oracle(queries, references, k, distance, allowed))


def test_a_naive_float64_loop():
    rng = np.random.default_rng(0)
    references, queries = rng.standard_normal((900, 24)), rng.standard_normal((7, 24))
    for distance in DISTANCES:
        found = Searcher(references, distance, block=64).search(queries, 12)
        for row, query in enumerate(queries):
            if distance == "cosine":
                values = [r @ query / np.linalg.norm(r) / np.linalg.norm(query) for r in references]
                order = np.argsort(np.negative(values), kind="stable")[:12]
            else:
                values = [np.linalg.norm(r - query) for r in references]
                order = np.argsort(values, kind="stable")[:12]
            assert found.indices[row].tolist() == order.tolist()
            assert found.values[row].numpy() == pytest.approx(np.array(values)[order], abs=1e-11)


def test_hand_computed():
    searcher = Searcher([[0.0], [1.0], [3.0], [1.0]], "euclidean")
    found = searcher.search([[1.0], [100.0]], 6)
    assert found.indices.tolist() == [[1, 3, 0, 2, -1, -1], [2, 1, 3, 0, -1, -1]]
    assert found.values[:, :4].tolist() == [[0, 0, 1, 2], [97, 99, 99, 100]]
    assert found.values[:, 4:].isnan().all()
    assert (len(searcher), searcher.dim, searcher.distance) == (4, 1, "euclidean")
    assert repr(searcher) == "Searcher(4 references, 1 dimensions, euclidean, float32)"


@pytest.mark.parametrize("stretch", [1e-30, 1e-6, 0.1, 1.0, 1.9, 2.1, 10.0, 1e6, 1e30])
@pytest.mark.parametrize("distance", DISTANCES)
def test_queries_far_longer_and_far_shorter_than_the_references(stretch, distance):
    generator = torch.Generator().manual_seed(0)
    references = torch.randn(600, 16, generator=generator)
    queries = torch.randn(20, 16, generator=generator) * stretch
    queries[10:] /= 7
    searcher = Searcher(references, distance, block=64)
    for some in (queries, queries[:1], queries[10:]):
        same(
            searcher.search(some, 9),
            find_neighbours(some, 9, gallery=references, distance=distance, precision="float32"),
        )
        assert torch.equal(searcher.search(some, 9).indices, oracle(some, references, 9, distance))


def test_the_scale_of_the_references_serves_queries_that_fit_and_no_others():
    references = vectors(torch.tensor([[3.0, 0.0]]), distance="euclidean")[0]
    fits = vectors_like(torch.tensor([[0.0, 3.9]]), references)
    assert fits is not None
    assert float(fits.scale[0]) == 0.25
    assert vectors_like(torch.tensor([[0.0, 4.0]]), references) is None


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("direct", [0, 100])
def test_only_references_among_the_chosen_are_found(distance, share, direct, monkeypatch):
    monkeypatch.setattr(searcher_module, "DIRECT", direct)
    points = clouds(1300)["clusters"]
    references, queries = points[:1200], points[1200:]
    searcher = Searcher(references, distance, block=64)
    mask = torch.rand(1200, generator=torch.Generator().manual_seed(0)) < share
    wanted = oracle(queries, references, 11, distance, mask)
    found = searcher.search(queries, 11, among=mask)
    assert torch.equal(found.indices, wanted)
    assert torch.equal(found.values.isnan(), wanted < 0)
    index = mask.nonzero().squeeze(1).flip(0)
    same(searcher.search(queries, 11, among=mask.numpy()), found)
    same(searcher.search(queries, 11, among=torch.cat([index, index])), found)
    same(searcher.search(queries, 11, among=index.tolist()), found)
    long = searcher.search(queries * 100, 11, among=mask)
    assert torch.equal(long.indices, oracle(queries * 100, references, 11, distance, mask))


def test_chosen_references_that_lie_together_get_bars_of_their_own(monkeypatch):
    monkeypatch.setattr(searcher_module, "DIRECT", 10)
    monkeypatch.setattr(prepared_references, "PILOT", 64)
    points = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(2000, dtype=torch.bool)
    mask[700:760] = True
    found = Searcher(points, block=64).search(points[:30], 20, among=mask)
    assert torch.equal(found.indices, oracle(points[:30], points, 20, "cosine", mask))


def test_nothing_among():
    found = Searcher(torch.eye(3)).search(torch.eye(3)[:2], 2, among=[])
    assert found.indices.tolist() == [[-1, -1]] * 2
    assert found.values.isnan().all()


@needs_int8
@pytest.mark.parametrize("distance", DISTANCES)
def test_few_pairs_are_compared_and_no_reference_is_laid_out(distance, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    references = torch.nn.functional.normalize(torch.randn(20_000, 64, generator=generator))
    searcher = Searcher(references, distance, block=512)
    compared = []
    plain = scan._compared
    monkeypatch.setattr(scan, "_compared", lambda *given: compared.append(len(given[3])) or plain(*given))
    monkeypatch.setattr(Task, "block", lambda *_: pytest.fail("a whole block was computed"))
    for many in (1, 50):
        compared.clear()
        searcher.search(references[:many] + 0.1, 5)
        assert sum(compared) < 300 * many, "1.5 % of the pairs"


@needs_int8
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("name", sorted(set(clouds(40)) - {"one point"}))
def test_no_pair_that_clears_its_bar_is_lost(name, distance, monkeypatch):
    monkeypatch.setattr("vicinal.neighbours.references.MOST_HITS", 1.0)
    points = clouds(300)[name]
    for stretch in (1.0, 0.01, 30.0):
        mine = points[:50].double() * stretch
        queries, references = vectors(mine, points, distance=distance)
        mean = centre(references)
        codes = int8_references(references, mean, 128)
        assert codes is not None
        coded = codes.coded(queries, mean)
        keys = exact_rows(queries, torch.arange(50), references)
        keys -= float(mean @ mean) if distance == "cosine" else 0.0
        for rank in (0, 20, 299):
            bars = keys.sort(dim=1, descending=True).values[:, rank].float() - 1e-6
            bars[7] = LOWEST
            through = torch.zeros(50, 300, dtype=torch.bool)
            for block in range(3):
                hits = codes.hits(coded, torch.arange(50), block, bars)
                assert hits is not None
                through[hits] = True
            assert not ((keys >= bars[:, None]) & ~through).any()


@needs_int8
def test_duplicates_beyond_the_shortlist_are_compared_without_all_others(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    references = torch.randn(3000, 16, generator=generator)
    references[torch.randperm(3000, generator=generator)[:200]] = references[0].clone()
    monkeypatch.setattr(scan, "every_reference", lambda *_: pytest.fail("all references were compared"))
    found = Searcher(references, block=64).search(references[:3], 5)
    assert torch.equal(found.indices, oracle(references[:3], references, 5, "cosine"))


def test_more_neighbours_than_a_scan_is_for():
    references = torch.randn(3000, 8, generator=torch.Generator().manual_seed(0))
    searcher = Searcher(references, block=64)
    for k in (200, 1500, 3000):
        same(searcher.search(references[:5] + 1, k), find_neighbours(references[:5] + 1, k, gallery=references))


def test_a_memory_map_is_kept_and_not_copied(tmp_path):
    points = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)
    np.save(tmp_path / "points.npy", points)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    for given_rows in (mapped, mapped[:, :5], mapped.astype(np.float16)):
        searcher = Searcher(given_rows, block=64)
        assert searcher._prepared.vectors.rows.data_ptr() == given_rows.ctypes.data
        queries = np.array(given_rows[:9])
        same(searcher.search(queries, 4), find_neighbours(queries, 4, gallery=np.array(given_rows)))


@needs_int8
def test_bytes():
    references = torch.randn(5000, 64, generator=torch.Generator().manual_seed(0)).repeat(8, 1)
    small, large = (Searcher(references, precision=how, block=256).nbytes for how in ("int8", "float32"))
    assert large > references.nbytes
    pilot = 5000 * (66 * 4 + 4 * 8)
    assert small == pytest.approx(40_000 * (64 + 8 + 8) + pilot, rel=0.01)


def test_several_threads_search_at_once():
    points = clouds(3000)["clusters"]
    references = points[:2500]
    searcher = Searcher(references, "euclidean", block=64)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        parts = [points[start : start + 13] * (1 + start % 3) for start in range(0, 2900, 130)]
        wanted = [searcher.search(part, 6) for part in parts]
        with ThreadPoolExecutor(4) as pool:
            for found, one in zip(pool.map(lambda part: searcher.search(part, 6), parts), wanted, strict=True):
                same(found, one)
        assert torch.get_num_threads() == 2, "the number of threads was not given back"
    finally:
        torch.set_num_threads(before)


def broken(*_):
    raise RuntimeError("no such operator")


def wrong(integers, step, packed, level, zero):
    return np.zeros((len(integers), 33), dtype=np.uint8)


@pytest.mark.parametrize(("name", "instead"), [("pack", broken), ("multiply", broken), ("multiply", wrong)])
def test_without_products_of_integers_the_same_is_found_in_float32(name, instead, monkeypatch):
    points = clouds(700)["clusters"]
    usual = Searcher(points[:600], block=64).search(points[600:], 5)
    int8_products.int8_works.cache_clear()
    monkeypatch.setattr(int8_products, name, instead)
    try:
        assert not int8_products.int8_works()
        searcher = Searcher(points[:600], block=64)
        assert searcher._prepared.codes is None
        same(searcher.search(points[600:], 5), usual)
        same(searcher.search(points[600:601], 5), Neighbours(usual.indices[:1], usual.values[:1]))
        among = torch.arange(600) % 2 == 0
        found = searcher.search(points[600:], 5, among=among)
        assert torch.equal(found.indices, oracle(points[600:], points[:600], 5, "cosine", among))
        itself = find_neighbours(points, 5, precision="int8", block=64)
        same(itself, find_neighbours(points, 5, precision="float32"))
    finally:
        int8_products.int8_works.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"queries": torch.zeros(0, 2)}, InputError, "queries are empty"),
        ({"queries": torch.ones(1, 3)}, InputError, "queries have 3 dimensions and the gallery 2"),
        ({"queries": [[0.0, float("nan")]]}, NotFinite, "1 of 1 rows of queries"),
        ({"k": 0}, InputError, "k must be at least 1, got 0"),
        ({"among": [True]}, InputError, "needs 2 entries, one per reference; got 1"),
        ({"among": [0, 2]}, InputError, "holds the index 2; indices must be from 0 to 1"),
        ({"among": [-1]}, InputError, "holds the index -1"),
        ({"among": torch.tensor([0.5])}, InputError, "booleans, one per reference, or of indices"),
        ({"among": torch.tensor([[0]])}, InputError, r"got the shape \(1, 1\)"),
    ],
)
def test_bad_queries_are_refused(arguments, error, words):
    searcher = Searcher(torch.eye(2))
    with pytest.raises(error, match=words):
        searcher.search(**({"queries": torch.eye(2), "k": 1} | arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"references": torch.zeros(0, 2)}, InputError, "references are empty"),
        ({"references": [[float("inf"), 0.0]]}, NotFinite, "1 of 1 rows of references"),
        ({"distance": "cosin"}, UnknownName, "did you mean 'cosine'"),
        ({"precision": "bfloat16"}, InputError, "'int8' or 'float32', got 'bfloat16'"),
        ({"references": torch.ones(1, 65537)}, InputError, "at most 65536 dimensions"),
    ],
)
def test_bad_references_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        Searcher(**({"references": torch.eye(2)} | arguments))
