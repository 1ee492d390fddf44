"""Scores against size: floats as `evaluate` has them, integers and bits by loops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.evaluation import evaluate
from vicinal.evaluation import sizes as sizes_module
from vicinal.evaluation.sizes import draw_sizes, score_sizes, sizes_in_words
from vicinal.neighbours import find_neighbours, scan, similarity
from vicinal.neighbours.rounding import as_bits, as_int8


@pytest.fixture
def items() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 8)
    return rng.normal(size=(6, 32))[labels] + 1.5 * rng.normal(size=(48, 32)), labels


def average_precision(rows: np.ndarray, labels: np.ndarray, orders: list[list[int]]) -> float:
    total = 0.0
    for place, order in enumerate(orders):
        hits, precisions = 0, 0.0
        for rank, other in enumerate(order[:7], start=1):
            if labels[other] == labels[place]:
                hits += 1
                precisions += hits / rank
        total += precisions / 7
    return total / len(rows)


def test_floats_as_evaluate_has_them(items: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = items
    sizes = {(size.dim, size.kind): size for size in score_sizes(rows, labels)}
    assert sorted({dim for dim, _ in sizes}) == [16, 32]
    for dim in (16, 32):
        plain = evaluate(rows[:, :dim], labels)
        assert sizes[dim, "float32"].scores["MAP@R"] == pytest.approx(plain["MAP@R"])
        assert sizes[dim, "float32"].scores["P@1"] == pytest.approx(plain["P@1"])
        assert sizes[dim, "float32"].searched == 4 * dim


def test_bits_and_their_rescoring_by_loops(items: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = items
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    bits, small = as_bits(unit, np.median(unit, axis=0)), as_int8(unit).astype(float)
    by_bits, rescored = [], []
    for one in range(48):
        others = [other for other in range(48) if other != one]
        agree = {other: int((bits[one] == bits[other]).sum()) for other in others}
        order = sorted(others, key=lambda other: (-agree[other], other))
        by_bits.append(order)
        norms = np.linalg.norm(small, axis=1)
        cosine = {other: small[one] @ small[other] / norms[one] / norms[other] for other in others}
        rescored.append(sorted(order[:28], key=lambda other: -cosine[other]))
    sizes = {size.kind: size for size in score_sizes(rows, labels, dims=[32])}
    assert sizes["bits"].scores["MAP@R"] == pytest.approx(average_precision(rows, labels, by_bits))
    assert sizes["bits, rescored by int8"].scores["MAP@R"] == pytest.approx(average_precision(rows, labels, rescored))
    assert (sizes["bits, rescored by int8"].searched, sizes["bits, rescored by int8"].kept) == (4, 36)


def test_table_and_figure(items: tuple[np.ndarray, np.ndarray]) -> None:
    sizes = score_sizes(*items)
    assert len(sizes_in_words(sizes).splitlines()) == 9
    assert len(draw_sizes(sizes).axes[0].lines) == 4
    assert sizes[0].as_dict()["kind"] == "float32"


def test_prefixes_that_are_too_long(items: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(InputError, match="1 to 32"):
        score_sizes(*items, dims=[33])
    with pytest.raises(InputError, match="two items"):
        score_sizes(items[0], np.arange(48))


def test_ties_among_bits_are_as_in_a_general_search() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(150, 16))
    bits = as_bits(rows)  # 17 possible products, so that nearly every neighbour is tied
    assert sizes_module._nearest_by_bits(bits, 149).equal(find_neighbours(bits.astype(np.float32), 149).indices)
    assert sizes_module._nearest_by_bits(bits, 20).equal(find_neighbours(bits.astype(np.float32), 20).indices)


def test_tied_bits_cost_no_exact_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Counter()
    for name in ("close_pairs", "exact_pairs"):

        def counting(queries: Any, rows: Any, references: Any, columns: Any, name: str = name) -> Any:
            compared[name] += columns.numel()
            return getattr(similarity, name)(queries, rows, references, columns)

        monkeypatch.setattr(scan, name, counting)
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(60), 10)
    score_sizes(rng.normal(size=(60, 64))[labels] + 2 * rng.normal(size=(600, 64)), labels)
    # Few of the neighbours of floats and integers are close. A general search of bits would compare 155,000 pairs.
    assert sum(compared.values()) < 1000
