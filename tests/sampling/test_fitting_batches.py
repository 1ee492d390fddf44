"""Batches shrink to what the data can fill, and no further."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.sampling import batch_that_fits, class_sampler


@pytest.mark.parametrize(
    ("sizes", "asked", "fitting"),
    [
        ([9] * 8, (8, 4), (8, 4)),  # as asked
        ([9] * 5, (8, 4), (5, 4)),  # too few classes
        ([3] * 8, (8, 4), (8, 3)),  # too few items
        ([3] * 5, (8, 4), (5, 3)),
        ([1, 9, 9, 9, 9], (8, 4), (4, 4)),  # one small class does not take the others' pairs
        ([9] * 5, (64, 1), (5, 1)),  # a batch without pairs stays one
        ([1] * 5, (4, 2), (2, 2)),  # a batch is filled up with further classes
        ([9], (4, 2), (4, 2)),  # nothing to tell apart: the sampler refuses
    ],
)
def test_the_largest_batch_that_can_be_filled(
    sizes: list[int], asked: tuple[int, int], fitting: tuple[int, int]
) -> None:
    assert batch_that_fits(np.repeat(np.arange(len(sizes)), sizes), *asked) == fitting


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=2, max_size=9), st.integers(2, 12), st.integers(1, 6))
def test_samplers_can_be_made_of_it(sizes: list[int], classes: int, items: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    count, each = batch_that_fits(labels, classes, items)
    assert count <= classes
    assert each <= items
    assert len(next(iter(class_sampler(labels, count, each)))) == count * each
