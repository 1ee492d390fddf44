"""The threshold of same and different."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.classical.learner import best_threshold
from vicinal.errors import InputError

DISTANCES = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
SAME = np.array([True, True, False, True, False, False])


def test_by_hand() -> None:
    assert best_threshold(DISTANCES, SAME) in (2.5, 4.5)  # both get five of six right
    assert best_threshold(DISTANCES, SAME, strategy="f_beta", beta=2.0) == 4.5  # recall 1, precision 3/4
    assert best_threshold(DISTANCES, SAME, strategy="f_beta", beta=0.5) == 2.5  # recall 2/3, precision 1
    assert best_threshold(DISTANCES, SAME, strategy="false_positives", limit=0.0) == 2.5
    assert best_threshold(DISTANCES, SAME, strategy="false_positives", limit=0.34) == 4.5


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=12).filter(
        lambda rows: len({same for _, same in rows}) == 2
    )
)
def test_no_other_threshold_is_more_accurate(rows: list[tuple[int, bool]]) -> None:
    distances = np.array([float(value) for value, _ in rows])
    same = np.array([mark for _, mark in rows])
    found = best_threshold(distances, same)
    best = max(int(((distances <= edge) == same).sum()) for edge in np.arange(-0.5, 7.5, 0.5))
    # a distance of zero cannot be told from an empty match by a threshold that is not below zero
    if distances.min() > 0:
        assert int(((distances <= found) == same).sum()) == best


def test_bad_input() -> None:
    with pytest.raises(InputError, match="with both kinds among them"):
        best_threshold(DISTANCES, np.ones(6, bool))
    with pytest.raises(InputError, match="limit must be a share from 0 to 1; got 2"):
        best_threshold(DISTANCES, SAME, strategy="false_positives", limit=2.0)
    with pytest.raises(InputError, match="beta must be above 0; got 0"):
        best_threshold(DISTANCES, SAME, strategy="f_beta", beta=0.0)
    with pytest.raises(ValueError, match="Unknown strategy 'acuracy'; did you mean 'accuracy'"):
        best_threshold(DISTANCES, SAME, strategy="acuracy")
