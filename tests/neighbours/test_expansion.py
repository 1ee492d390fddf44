"""Expansion and augmentation by the formula, in loops; whitening by what it is for."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.neighbours import augment_references, expand_queries, learn_whitening


def unit(row: np.ndarray) -> np.ndarray:
    return row / np.linalg.norm(row)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_queries_by_the_formula(alpha: float) -> None:
    rng = np.random.default_rng(0)
    queries, references = rng.normal(size=(6, 4)), rng.normal(size=(15, 4))
    found = expand_queries(queries, references, count=3, alpha=alpha)
    for query, result in zip(queries, found.numpy(), strict=True):
        cosines = np.array([unit(query) @ unit(reference) for reference in references])
        total = unit(query)
        for place in np.argsort(-cosines)[:3]:
            total = total + max(0.0, cosines[place]) ** alpha * unit(references[place])
        np.testing.assert_allclose(result, unit(total), rtol=1e-9)


def test_no_reference_is_its_own_neighbour() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(10, 4))
    found = augment_references(rows, count=2).numpy()
    for place, row in enumerate(rows):
        cosines = np.array([unit(row) @ unit(other) for other in rows])
        cosines[place] = -np.inf
        total = unit(row) + sum(max(0.0, cosines[near]) ** 3 * unit(rows[near]) for near in np.argsort(-cosines)[:2])
        np.testing.assert_allclose(found[place], unit(total), rtol=1e-9)


def test_more_neighbours_than_there_are() -> None:
    assert expand_queries([[1.0, 0.0]], [[0.0, 1.0]], count=5).tolist() == [[1.0, 0.0]]


def test_bad_counts() -> None:
    with pytest.raises(InputError, match="count must be at least 1"):
        expand_queries([[1.0, 0.0]], [[0.0, 1.0]], count=0)


def test_whitened_rows_have_no_correlations() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5)) + 3
    found = learn_whitening(rows)
    before = (rows - found.mean) @ found.axes.T
    np.testing.assert_allclose(np.cov(before.T), np.eye(5), atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(found.apply(rows), axis=1), 1)


def test_shrinkage_one_is_pca_and_dim_keeps_the_first() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 4)) * [4, 3, 2, 1]
    scales = np.linalg.norm(learn_whitening(rows, 2, shrinkage=1.0).axes, axis=1)
    np.testing.assert_allclose(scales, scales[0])
    np.testing.assert_allclose(learn_whitening(rows, 2).axes, learn_whitening(rows).axes[:2])


def test_whitening_of_what_does_not_vary() -> None:
    with pytest.raises(InputError, match="vary in 1 directions"):
        learn_whitening([[1.0, 0.0], [2.0, 0.0]], 2)
    with pytest.raises(InputError, match="at least 2 rows"):
        learn_whitening([[1.0, 0.0]])
    with pytest.raises(InputError, match="3"):
        learn_whitening([[1.0, 0.0], [2.0, 1.0], [1.0, 2.0]]).apply(np.ones((1, 3)))
