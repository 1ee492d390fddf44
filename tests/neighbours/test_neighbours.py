"""Neighbours against a double loop in rational arithmetic, float64, scikit-learn and faiss."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InputError, NotFinite, UnknownName
from vicinal.neighbours import find_neighbours
from vicinal.neighbours.exact import fastest_precision, search
from vicinal.neighbours.inputs import Exclusion
from vicinal.neighbours.layout import BoundedLayout, centre, lay_out, widths
from vicinal.neighbours.scan import nearest_exactly
from vicinal.neighbours.similarity import exact_pairs, exact_rows, vectors

DISTANCES = ("cosine", "euclidean")
PRECISIONS = ("float32", "bfloat16", "int8")


def loop(queries, references, k, *, itself, ignore=lambda i, j: False):
    """Squared distances of whole numbers are exact, so is this ranking."""
    found = []
    for i, query in enumerate(queries):
        order = []
        for j, reference in enumerate(references):
            if (itself and i == j) or ignore(i, j):
                continue
            distance = sum((Fraction(int(a)) - Fraction(int(b))) ** 2 for a, b in zip(query, reference, strict=True))
            order.append((distance, j))
        nearest = [j for _, j in sorted(order)[:k]]
        found.append(nearest + [-1] * (k - len(nearest)))
    return torch.tensor(found)


def clouds(n: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Spread out, tied, duplicated, collapsed and nearly collapsed points."""
    generator = torch.Generator().manual_seed(seed)
    plain = torch.randn(n, 16, generator=generator)
    return {
        "plain": plain,
        "signs": torch.randn(n, 3, generator=generator).sign(),
        "grid": torch.randn(n, 8, generator=generator).round(),
        "one point": torch.ones(n, 4),
        "nearly one point": plain * 1e-4 + 3,
        "tight": plain * 1e-7 + 1,
        "duplicates": plain[: n // 2 + 1].repeat(2, 1)[:n],
        "zeros among": plain * (torch.arange(n) % 3 > 0)[:, None],
        "outlier": torch.cat([plain[:-1], plain[-1:] * 1e4]),
        "huge": plain * 1e30,
        "tiny": plain * 1e-30,
        "double": plain.double(),
    }


def exact(points, k, distance, gallery=None, sequences=None):
    """What exact arithmetic for every pair finds."""
    queries, references = vectors(points, gallery, distance=distance)
    keys = exact_rows(queries, torch.arange(len(queries)), references)
    Exclusion(gallery is None, sequences, sequences).apply(keys, torch.arange(len(queries)), 0)
    values, columns = nearest_exactly(keys, k)
    return columns.masked_fill(values == -torch.inf, -1)


@pytest.mark.unit
@pytest.mark.parametrize("name", clouds(4))
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_fast_search_equals_exact_search(name, distance, precision):
    for n, k, block in [(200, 11, 64), (150, 130, 128), (65, 64, 64)]:
        points = clouds(n)[name]
        options = {"distance": distance, "precision": precision, "block": block}
        assert torch.equal(find_neighbours(points, k, **options).indices, exact(points, k, distance))
        gallery = torch.cat([points[: n // 2], points])
        found = find_neighbours(points, k, gallery=gallery, **options).indices
        assert torch.equal(found, exact(points, k, distance, gallery))
        sequences = torch.arange(n) % 4
        found = find_neighbours(points, k, sequences=sequences, **options).indices
        assert torch.equal(found, exact(points, k, distance, sequences=sequences))


@pytest.mark.unit
@pytest.mark.parametrize("name", clouds(4))
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_as_many_as_each_wants_in_whatever_order_they_are_laid_out(name, distance, precision):
    """Neither the order nor what others want changes what is found: ties still go by the index."""
    n, k = 330, 24
    items, _ = vectors(clouds(n)[name], distance=distance)
    generator = torch.Generator().manual_seed(1)
    wanted = torch.randint(1, k + 1, (n,), generator=generator)
    for sequences in (None, torch.arange(n) % 5):
        right = exact(items.rows, k, distance, sequences=sequences)
        right = right.masked_fill(torch.arange(k) >= wanted[:, None], -1)
        for order in (torch.randperm(n, generator=generator), torch.arange(n).flip(0), None):
            found = torch.zeros(n, k, dtype=torch.int64)
            search(
                items,
                items,
                Exclusion(True, sequences, sequences),
                k,
                partial(found.index_copy_, 0),
                precision=precision,
                block=64,
                wanted=wanted,
                order=order,
            )
            assert torch.equal(found, right)


@pytest.mark.unit
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_integers_rank_as_in_rational_arithmetic(data):
    n, m, d = (data.draw(st.integers(1, 12), label=label) for label in "nmd")
    k = data.draw(st.integers(1, 14))
    whole = st.integers(-3, 3)
    queries, references = (
        np.array(
            data.draw(st.lists(st.lists(whole, min_size=d, max_size=d), min_size=size, max_size=size)), dtype=float
        )
        for size in (n, m)
    )
    found = find_neighbours(queries, k, gallery=references, distance="euclidean").indices
    assert torch.equal(found, loop(queries, references, k, itself=False))
    found = find_neighbours(queries, k, distance="euclidean").indices
    assert torch.equal(found, loop(queries, queries, k, itself=True))


@pytest.mark.unit
def test_hand_computed():
    found = find_neighbours([[0.0], [1.0], [3.0], [1.0]], 2, distance="euclidean")
    assert found.indices.tolist() == [[1, 3], [3, 0], [1, 3], [1, 0]]
    assert found.values.tolist() == [[1, 1], [0, 1], [2, 2], [0, 1]]
    found = find_neighbours([[1.0, 0.0]], 3, gallery=[[0.0, 2.0], [5.0, 0.0], [1.0, 1.0]])
    assert found.indices.tolist() == [[1, 2, 0]]
    assert found.values.tolist()[0] == pytest.approx([1, 0.5**0.5, 0])


@pytest.mark.unit
def test_the_item_itself_is_left_out_by_identity_and_its_duplicates_are_not():
    found = find_neighbours(torch.ones(5, 3), 2).indices
    assert found.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


@pytest.mark.unit
def test_ties_go_to_the_lower_index_among_references():
    found = find_neighbours([[1.0, 0.0]], 4, gallery=torch.ones(9, 2), block=64).indices
    assert found.tolist() == [[0, 1, 2, 3]]


@pytest.mark.unit
def test_fewer_references_than_k_are_filled_up():
    found = find_neighbours([[1.0], [2.0]], 3, distance="euclidean")
    assert found.indices.tolist() == [[1, -1, -1], [0, -1, -1]]
    assert found.values.isnan().tolist() == [[False, True, True]] * 2


@pytest.mark.unit
def test_a_whole_sequence_can_be_ignored():
    points = [[0.0], [0.1], [5.0]]
    found = find_neighbours(points, 1, distance="euclidean", sequences=["v", "v", "w"]).indices
    assert found.tolist() == [[2], [2], [1]]
    found = find_neighbours(points, 1, distance="euclidean", sequences=[7, 7, 7]).indices
    assert found.tolist() == [[-1], [-1], [-1]]


@pytest.mark.unit
@pytest.mark.parametrize("distance", DISTANCES)
def test_the_same_bits_for_every_block_thread_and_precision(distance):
    points = torch.randn(700, 32, generator=torch.Generator().manual_seed(3))
    points[500:600] = points[:100]
    first = find_neighbours(points, 9, distance=distance)
    threads = torch.get_num_threads()
    for block in (64, 128, 1024):
        for precision in PRECISIONS:
            for count in (1, 3):
                torch.set_num_threads(count)
                try:
                    again = find_neighbours(points, 9, distance=distance, block=block, precision=precision)
                    assert torch.get_num_threads() == count
                finally:
                    torch.set_num_threads(threads)
                assert torch.equal(first.indices, again.indices)
                assert torch.equal(first.values, again.values)


@pytest.mark.unit
def test_a_permutation_of_the_items_permutes_the_neighbours():
    points = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    plain, mixed = find_neighbours(points, 5), find_neighbours(points[order], 5)
    assert torch.equal(order[mixed.indices], plain.indices[order])
    assert torch.equal(mixed.values, plain.values[order])


@pytest.mark.unit
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dimensions", [1, 7, 513])
def test_exact_comparison_is_symmetric_and_near_the_truth(distance, dimensions):
    points = np.random.default_rng(0).standard_normal((40, dimensions)).astype(np.float32)
    queries, _ = vectors(torch.from_numpy(points), distance=distance)
    rows = torch.arange(40)
    keys = exact_rows(queries, rows, queries)
    assert torch.equal(keys, keys.T)
    assert torch.equal(keys, exact_pairs(queries, rows, queries, rows.expand(40, 40)))
    pieces = torch.cat([exact_rows(queries, rows[at : at + 1], queries) for at in range(40)])
    assert torch.equal(keys, pieces)
    long = points.astype(np.longdouble)
    if distance == "cosine":
        long /= np.sqrt((long**2).sum(1, keepdims=True))
        truth = long @ long.T
    else:
        long *= float(queries.scale[0])
        truth = -((long[:, None] - long) ** 2).sum(2) / 2
        assert (keys.diagonal() == 0).all()
    assert np.abs(truth - keys.numpy()).max() < 1e-13


@pytest.mark.unit
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("name", ["plain", "nearly one point", "outlier", "tiny", "grid"])
def test_products_stay_within_their_bound(precision, distance, name):
    points = clouds(200)[name]
    queries, _ = vectors(points, distance=distance)
    laid: BoundedLayout = lay_out(queries, centre(queries), precision)
    rows = torch.arange(200)
    product = (laid.left(rows) @ laid.matrix[:200].T).double()
    error = (product + laid.constant - exact_rows(queries, rows, queries)).abs()
    rounding = 2.0**-8 * product.abs() if precision == "bfloat16" else 0.0
    width = widths(laid, laid.bounds)
    assert (error <= width[:, None] / 2 + rounding).all()
    assert (width < 4 * 0.02 * (laid.length.max() ** 2 + laid.height.max())).all(), "no bound to speak of"


@pytest.mark.unit
def test_rows_that_overflow_are_done_again(monkeypatch):
    """One hundred duplicates overflow every shortlist of five neighbours."""
    import vicinal.neighbours.exact as module

    done = []
    plain = module.every_reference
    monkeypatch.setattr(module, "every_reference", lambda task, rows: done.append(len(rows)) or plain(task, rows))
    points = torch.cat([torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.ones(100, 4)])
    for precision in PRECISIONS:
        assert torch.equal(find_neighbours(points, 5, precision=precision).indices, exact(points, 5, "cosine"))
    assert len(done) == 3
    assert min(done) >= 100


@pytest.mark.unit
def test_every_row_is_handed_over_once_and_progress_ends_at_one():
    queries, references = vectors(torch.randn(500, 4, generator=torch.Generator().manual_seed(0)))
    seen, heard = torch.zeros(500), []
    search(
        queries,
        references,
        Exclusion(True),
        3,
        lambda rows, columns: seen.index_add_(0, rows, torch.ones(len(rows))),
        block=64,
        progress=heard.append,
    )
    assert (seen == 1).all()
    assert heard == sorted(heard)
    assert heard[-1] == 1


@pytest.mark.unit
def test_precision_is_chosen_by_the_processor(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert fastest_precision() == "bfloat16"
    both = {"avx2": True, "avx512_bf16": True, "avx512_vnni": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: both, raising=False)
    assert fastest_precision() == "int8"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {**both, "amx_bf16": True}, raising=False)
    assert fastest_precision() == "bfloat16"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    assert fastest_precision() == "int8"
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    assert fastest_precision() == "float32"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"k": 0}, InputError, "k must be at least 1, got 0"),
        ({"distance": "cosin"}, UnknownName, "did you mean 'cosine'"),
        ({"embeddings": torch.zeros(0, 3)}, InputError, "embeddings are empty"),
        ({"embeddings": torch.zeros(3)}, InputError, r"must be a matrix.*\(3,\)"),
        ({"embeddings": np.array([["a"]])}, InputError, "must be numbers"),
        ({"embeddings": [[1.0, float("nan")], [0.0, 1.0]]}, NotFinite, "1 of 2 rows of embeddings.*row 0"),
        ({"embeddings": [[1.0, 1.0], [0.0, float("inf")]]}, NotFinite, "first of them row 1"),
        ({"gallery": torch.zeros(0, 2)}, InputError, "gallery embeddings are empty"),
        ({"gallery": torch.ones(2, 3)}, InputError, "queries have 2 dimensions and the gallery 3"),
        ({"gallery": [[float("nan"), 0.0]]}, NotFinite, "gallery embeddings"),
        (
            {"gallery": torch.ones(2, 2), "sequences": [1, 2]},
            InputError,
            "pass `sequences` and `gallery_sequences` together",
        ),
        ({"gallery_sequences": [1, 2]}, InputError, "pass `sequences` alone"),
        ({"sequences": [1, 2, 3]}, InputError, "2 embeddings but 3 sequences"),
        ({"embeddings": torch.ones(2, 65537)}, InputError, "at most 65536 dimensions"),
    ],
)
def test_bad_input_is_refused_before_any_work(arguments, error, words):
    given_arguments = {"embeddings": torch.eye(2), "k": 1} | arguments
    with pytest.raises(error, match=words):
        find_neighbours(given_arguments.pop("embeddings"), given_arguments.pop("k"), **given_arguments)


@pytest.mark.peer
@pytest.mark.parametrize("distance", DISTANCES)
def test_scikit_learn_agrees(distance):
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(0)
    queries, references = rng.standard_normal((80, 24)), rng.standard_normal((130, 24))
    distances, indices = (
        NearestNeighbors(n_neighbors=7, metric=distance, algorithm="brute").fit(references).kneighbors(queries)
    )
    found = find_neighbours(queries, 7, gallery=references, distance=distance)
    assert np.array_equal(found.indices.numpy(), indices)
    values = 1 - found.values.numpy() if distance == "cosine" else found.values.numpy()
    assert values == pytest.approx(distances, abs=1e-9)


@pytest.mark.peer
def test_faiss_agrees_wherever_float32_can_tell():
    faiss = pytest.importorskip("faiss")
    points = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(64)
    index.add(points)
    theirs = index.search(points, 11)[1][:, 1:]
    found = find_neighbours(points, 10)
    gaps = -np.diff(found.values.numpy(), axis=1)
    clear = (gaps > 1e-6).all(axis=1)
    assert clear.mean() > 0.95
    assert np.array_equal(found.indices.numpy()[clear], theirs[clear])
