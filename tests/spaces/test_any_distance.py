"""Retrieval by any distance."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import vicinal.spaces.any_distance as nearest
from vicinal.errors import InputError
from vicinal.evaluation import Bootstrap, evaluate
from vicinal.pairs import cosine_distance, euclidean
from vicinal.spaces import LabelMetric, evaluate_by
from vicinal.spaces.any_distance import distances_in_blocks

pytestmark = pytest.mark.unit


@pytest.fixture
def items() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(6, (80,), generator=generator)
    return torch.randn(80, 4, generator=generator, dtype=torch.float64) + labels[:, None], labels


@pytest.mark.parametrize(("metric", "distance"), [("euclidean", euclidean), ("cosine", cosine_distance)])
def test_equals_the_evaluator_where_both_can(items: tuple[Tensor, Tensor], metric: str, distance: object) -> None:
    ours = evaluate_by(distance, *items)
    theirs = evaluate(*items, distance=metric, also=[], intervals=Bootstrap(draws=50))
    assert dict(ours.overall) == pytest.approx(dict(theirs.overall))
    assert ours.intervals["MAP@R"] == pytest.approx(theirs.intervals["MAP@R"])
    assert ours.difference(theirs).mean == pytest.approx(0.0)


def test_blocks_are_the_matrix(items: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    x = items[0].softmax(1)
    whole = LabelMetric()(x, x)
    for numbers in (1, 1000, 10**6):
        monkeypatch.setattr(nearest, "NUMBERS", numbers)
        blocks = list(distances_in_blocks(LabelMetric(), x))
        assert torch.equal(torch.cat([rows for rows, _ in blocks]), torch.arange(80))
        torch.testing.assert_close(torch.cat([block for _, block in blocks]), whole)


def test_memory_is_that_of_a_few_rows() -> None:
    seen = []

    def watched(x: Tensor, y: Tensor) -> Tensor:
        seen.append(len(x) * len(y) * x.shape[1])
        return torch.zeros(len(x), len(y))

    rows = sum(len(rows) for rows, _ in distances_in_blocks(watched, torch.zeros(3000, 40)))
    assert rows == 3000
    assert max(seen) <= nearest.NUMBERS


def test_an_item_never_finds_itself_even_where_all_are_infinitely_far() -> None:
    labels = torch.tensor([0, 1, 0, 1])
    apart = evaluate_by(LabelMetric(k=1.0, p=1.0), torch.eye(4), labels, confidence=None)
    # All ties, which go to the lower index: items 0 and 1 have a right neighbour second, 2 and 3 the first of theirs.
    assert apart.per_query["P@1"].tolist() == [0.0, 0.0, 1.0, 0.0]


def test_nothing_to_find() -> None:
    with pytest.raises(InputError, match="None of the 2 items shares its class"):
        evaluate_by(euclidean, torch.eye(2), [0, 1])
