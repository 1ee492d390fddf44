"""The ways to multiply 8-bit integers, and float32 in their place: whichever is there, the same neighbours."""

import numpy as np
import pytest
import torch

from vicinal.errors import InputError
from vicinal.neighbours import Searcher
from vicinal.neighbours import exact as few_queries
from vicinal.neighbours import references as int8_references
from vicinal.neighbours.int8 import PlainBlock, int8_works, int32_works, multiply_exactly

pytestmark = pytest.mark.unit

MANY = 1500
BLOCK = 64


def rows_of(kind: str, dim: int = 24) -> np.ndarray:
    rng = np.random.default_rng(3)
    if kind == "noise":
        return rng.standard_normal((MANY, dim)).astype(np.float32)
    if kind == "duplicates":
        return np.repeat(rng.standard_normal((MANY // 50, dim)), 50, axis=0).astype(np.float32)
    centres = rng.standard_normal((60, dim))
    rows = centres[rng.integers(0, 60, MANY)] + 0.1 * rng.standard_normal((MANY, dim))
    rows[::97] = 0
    return rows.astype(np.float32)


@pytest.fixture(params=["int32", "packed", "float32"])
def engine(request, monkeypatch):
    if request.param == "int32":
        if not int32_works():
            pytest.skip("this torch does not multiply 8-bit integers exactly in 32 bits")
        monkeypatch.setattr(int8_references, "int32_is_fast", lambda: True)
    else:
        monkeypatch.setattr(int8_references, "int32_is_fast", lambda: False)
    if request.param == "packed" and not int8_works():
        pytest.skip("this torch has no quantised operators that work")
    monkeypatch.setattr(int8_references, "int8_is_fast", lambda: request.param == "packed")
    return request.param


@pytest.mark.parametrize("kind", ["clusters", "noise", "duplicates"])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("queries", [1, 5, 40])
def test_every_engine_finds_what_float64_finds(engine, kind, distance, queries):
    rows = rows_of(kind)
    rng = np.random.default_rng(queries)
    asked = rows[rng.integers(0, MANY, queries)] + 0.02 * rng.standard_normal((queries, rows.shape[1]))
    asked = asked.astype(np.float32)
    searcher = Searcher(rows, distance, block=BLOCK)
    assert ("float32" if engine == "float32" else "int8") in repr(searcher)
    plain = Searcher(rows, distance, precision="float32", block=BLOCK)
    among = rng.random(MANY) < 0.9
    for k, chosen in ((1, None), (10, None), (7, among)):
        found, wanted = searcher.search(asked, k, among=chosen), plain.search(asked, k, among=chosen)
        assert torch.equal(found.indices, wanted.indices)
        assert torch.equal(found.values, wanted.values)
    wide, right = asked[:, None].astype(np.float64), rows[None].astype(np.float64)
    if distance == "euclidean":
        keys = np.sqrt(np.square(wide - right).sum(axis=2))
    else:
        lengths = np.linalg.norm(wide, axis=2) * np.linalg.norm(right, axis=2)
        keys = np.divide((wide * right).sum(axis=2), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    best = np.sort(keys if distance == "euclidean" else -keys, axis=1)[:, :10]
    values = searcher.search(asked, 10).values.numpy()
    np.testing.assert_allclose(values if distance == "euclidean" else -values, best, atol=1e-7)


def test_a_layout_that_was_kept_searches_as_the_one_that_was_made(engine):
    rows = rows_of("clusters")
    for distance in ("cosine", "euclidean"):
        searcher = Searcher(rows, distance, block=BLOCK)
        layout = searcher.layout()
        if engine == "float32":
            assert layout is None
            continue
        again = Searcher.from_layout(rows, distance, layout, block=BLOCK)
        for queries in (rows[:1], rows[:30]):
            found, wanted = again.search(queries, 9), searcher.search(queries, 9)
            assert torch.equal(found.indices, wanted.indices)
            assert torch.equal(found.values, wanted.values)
        with pytest.raises(InputError, match="other vectors"):
            Searcher.from_layout(rows[:-1], distance, layout)


def test_a_few_queries_give_up_on_a_crowd_and_are_searched_for_otherwise(engine, monkeypatch):
    if engine != "int32":
        pytest.skip("only plain integers are searched for a few queries by themselves")
    monkeypatch.setattr(few_queries, "CROWD", 20)
    rows = rows_of("duplicates")
    wanted = Searcher(rows, precision="float32", block=BLOCK).search(rows[:3], 10)
    found = Searcher(rows, block=BLOCK).search(rows[:3], 10)
    assert torch.equal(found.indices, wanted.indices)


@pytest.mark.parametrize(("rows", "columns", "dim"), [(1, 1, 8), (3, 70, 17), (65, 5000, 64)])
def test_products_in_32_bits_are_exact(rows, columns, dim):
    if not int32_works():
        pytest.skip("this torch does not multiply 8-bit integers exactly in 32 bits")
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randint(-90, 91, (many, dim), generator=generator) for many in (rows, columns))
    assert torch.equal(multiply_exactly(left.to(torch.int8), right.to(torch.int8)).long(), left @ right.T)


def test_a_block_names_every_pair_over_its_bar():
    if not int32_works():
        pytest.skip("this torch does not multiply 8-bit integers exactly in 32 bits")
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randint(-90, 91, (many, 20), generator=generator) for many in (70, 4200))
    bias = torch.rand(4200, generator=generator, dtype=torch.float64)
    bars = torch.linspace(5.0, 15.0, 70, dtype=torch.float64)
    block = PlainBlock.of(right.to(torch.int8), bias)
    row, column = block.clear(left.to(torch.int8), 2.0**-11, bars, 1e9)
    wanted = ((left @ right.T).double() * 2.0**-11 + bias >= bars[:, None]).nonzero()
    got = {(int(a), int(b)) for a, b in zip(row, column, strict=True)}
    assert len(wanted) > 100
    assert got == {(int(a), int(b)) for a, b in wanted}
    assert block.clear(left.to(torch.int8), 2.0**-11, bars, 10.0) is None
    assert torch.equal(block.integers, right.to(torch.int8))
