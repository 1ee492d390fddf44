"""The 8-bit filter: it may let too much through, never too little."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vicinal.neighbours.exact as search_module
from vicinal.neighbours import find_neighbours
from vicinal.neighbours.int8 import LARGEST, PATIENCE, Int8Filter, Side, int8_filter, int8_is_fast
from vicinal.neighbours.layout import LOWEST, centre
from vicinal.neighbours.shortlist import Task
from vicinal.neighbours.similarity import exact_rows, vectors

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not int8_is_fast(), reason="needs a CPU with AVX2 and a torch with FBGEMM"),
]

DISTANCES = ("cosine", "euclidean")


def awkward(n: int, d: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Points that are hard to hold in 8 bits."""
    generator = torch.Generator().manual_seed(seed)
    plain = torch.randn(n, d, generator=generator)
    return {
        "plain": plain,
        "extremes": plain.sign(),
        "one-hot": torch.eye(d)[torch.arange(n) % d],
        "constant rows": plain[:, :1].expand(n, d).contiguous(),
        "one row": torch.ones(n, d),
        "nearly one point": plain * 1e-4 + 3,
        "an outlier dimension": plain * torch.cat([torch.tensor([50.0]), torch.ones(d - 1)]),
        "an outlier row": torch.cat([plain[:-1], 1e3 * torch.eye(d)[:1]]),
        "heavy tails": plain**5,
        "zeros among": plain * (torch.arange(n) % 3 > 0)[:, None],
        "positive": plain.relu() + 0.1,
        "double": plain.double() * 1e130,
    }


def pairs(made: Int8Filter, rows: int, columns: int, bars: torch.Tensor, column_bars: torch.Tensor) -> torch.Tensor:
    """A mask of the pairs that the filter lets through; all of them where it is of no use."""
    through = torch.zeros(rows * columns, dtype=torch.bool)
    made.misses = 0
    hits = made.hits(slice(0, rows), 0, bars, column_bars)
    if hits is None:
        return ~through.view(rows, columns)
    through[hits] = True
    return through.view(rows, columns)


@pytest.fixture
def everything(monkeypatch):
    """Even a block with many hits is answered."""
    monkeypatch.setattr("vicinal.neighbours.int8.MOST_HITS", 1.0)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("name", awkward(4, 4))
def test_no_pair_that_clears_a_bar_is_lost(name, distance, everything):
    for d in (3, 515):
        points = awkward(128, d)[name]
        queries, _ = vectors(points, distance=distance)
        mean = centre(queries)
        made = int8_filter(queries, mean, 128)
        if made is None:
            assert name in ("one row", "constant rows")
            continue
        constant = float(mean @ mean) if distance == "cosine" else 0.0
        keys = exact_rows(queries, torch.arange(64), queries) - constant
        for rank in (0, 10, 100):  # of the pair that sets the bar
            bars = keys.sort(dim=1, descending=True).values[:, rank].float() - 1e-6
            column_bars = keys.sort(dim=0, descending=True).values[rank // 2].float() - 1e-6
            for other in (column_bars, torch.full((128,), torch.inf)):
                through = pairs(made, 64, 128, bars, other)
                needed = (keys >= bars[:, None]) | (keys >= other)
                assert not (needed & ~through).any()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 2, 31, 512, 1030]), st.floats(-1, 1))
def test_integer_products_are_exact_up_to_a_level(seed, d, lean):
    """Entries at the ends of the range are where 16 bits would saturate."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(64, d, generator=generator) < (lean + 1) / 2
    integers = torch.where(drawn, LARGEST, -LARGEST).to(torch.int8)
    side = Side(integers, torch.zeros(64, dtype=torch.float64))
    made = Int8Filter(side, side, 1.0, 64)
    exact = integers.double() @ integers.double().T
    bars = exact.flatten()[torch.randint(0, 4096, (128,), generator=generator)].float()
    through = pairs(made, 64, 64, bars[:64], bars[64:])
    lowest = torch.minimum(bars[:64, None], bars[64:])
    assert through[exact >= lowest].all()
    if not through.all():
        level = (bars.max() - bars.min()) / 250 + 3 * bars.abs().max() * 2.0**-14
        assert not through[exact < lowest - 3 * level - 1].any()


def test_columns_and_rows_with_a_larger_residual_are_let_through_more_easily(everything):
    integers = torch.zeros(64, 4, dtype=torch.int8)
    excess = torch.arange(64, dtype=torch.float64) / 64
    made = Int8Filter(Side(integers, excess), Side(integers, excess), 0.01, 64)
    bars = torch.full((64,), 1.0)
    through = pairs(made, 64, 64, bars, torch.full((64,), torch.inf))
    bound = excess[:, None] + excess
    assert through[bound >= 1.0].all()
    assert not through[bound < 0.97].any()


def test_without_a_bar_there_is_no_answer():
    side = Side(torch.zeros(64, 4, dtype=torch.int8), torch.zeros(64, dtype=torch.float64))
    made = Int8Filter(side, side, 1.0, 64)
    bars = torch.full((64,), 5.0)
    assert len(made.hits(slice(0, 64), 0, bars, bars)) == 0
    bars[3] = LOWEST
    assert made.hits(slice(0, 64), 0, bars, bars + 1) is None
    nothing = torch.full((64,), torch.inf)
    assert len(made.hits(slice(0, 64), 0, nothing, nothing)) == 0


@pytest.mark.parametrize("distance", DISTANCES)
def test_spread_out_points_need_few_whole_blocks(distance, monkeypatch):
    whole = []
    plain = Task.block
    monkeypatch.setattr(Task, "block", lambda task, rows, columns: whole.append(1) or plain(task, rows, columns))
    points = torch.randn(3000, 256, generator=torch.Generator().manual_seed(0))
    points /= points.norm(dim=1, keepdim=True)
    found = find_neighbours(points, 3, distance=distance, precision="int8", block=256)
    used = len(whole)
    assert used < 25, "11 or 12 blocks set the first bars, of 66 or 78"
    assert torch.equal(
        found.indices, find_neighbours(points, 3, distance=distance, precision="float32", block=256).indices
    )


def test_points_that_it_cannot_tell_apart_make_it_give_up(monkeypatch):
    made = []
    monkeypatch.setattr(search_module, "int8_filter", lambda *given: made.append(int8_filter(*given)) or made[0])
    asked = []
    plain = Int8Filter._products
    monkeypatch.setattr(Int8Filter, "_products", lambda self, *given: asked.append(1) or plain(self, *given))
    points = torch.randn(20, 64, generator=torch.Generator().manual_seed(0)).repeat(100, 1)
    points += 1e-3 * torch.randn(2000, 64, generator=torch.Generator().manual_seed(1))
    found = find_neighbours(points, 5, precision="int8", block=64)
    assert made[0].misses > PATIENCE
    assert len(asked) < 20
    assert torch.equal(found.indices, find_neighbours(points, 5, precision="float32").indices)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_neighbours_do_not_depend_on_it(data):
    n, d = data.draw(st.integers(1, 300), label="n"), data.draw(st.integers(1, 40), label="d")
    k = data.draw(st.integers(1, 12), label="k")
    name = data.draw(st.sampled_from(sorted(awkward(4, 4))), label="points")
    points = awkward(n, d, seed=data.draw(st.integers(0, 100)))[name]
    gallery = data.draw(st.sampled_from([None, points[: n // 2 + 1].flip(0)]), label="gallery")
    sequences = torch.arange(n) % 5 if gallery is None and data.draw(st.booleans(), label="sequences") else None
    options = {"gallery": gallery, "sequences": sequences, "distance": data.draw(st.sampled_from(DISTANCES))}
    found = [find_neighbours(points, k, precision=how, block=64, **options) for how in ("int8", "float32", "bfloat16")]
    assert torch.equal(found[0].indices, found[1].indices)
    assert torch.equal(found[0].indices, found[2].indices)


def test_the_engine_of_the_user_is_given_back():
    before = torch.backends.quantized.engine
    other = next(name for name in torch.backends.quantized.supported_engines if name not in ("none", "fbgemm"))
    torch.backends.quantized.engine = other
    try:
        find_neighbours(torch.randn(300, 8, generator=torch.Generator().manual_seed(0)), 2, precision="int8", block=64)
        assert torch.backends.quantized.engine == other
    finally:
        torch.backends.quantized.engine = before
