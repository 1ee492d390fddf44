"""Results that take a while: computed once for each state, told when they fail, never more than a few at once."""

from __future__ import annotations

import threading
import time

import pytest

from vicinal.index.server.served import MOST_WAITING, CachedResults

pytestmark = pytest.mark.unit


def patiently(results: CachedResults, *asked):
    for _ in range(1000):
        found = results.later(*asked)
        if found is not None:
            return found
        time.sleep(0.005)
    raise AssertionError("it was never computed")


def test_a_result_is_computed_once_for_each_state() -> None:
    results, calls = CachedResults(), []

    def compute() -> int:
        calls.append(1)
        return len(calls)

    assert [patiently(results, "map", "1", compute) for _ in range(3)] == [1, 1, 1]
    assert patiently(results, "map", "2", compute) == 2
    assert [results.now("now", "1", compute), results.now("now", "1", compute), results.now("now", "2", compute)] == [
        3,
        3,
        4,
    ]


def test_what_went_wrong_is_told_once_and_tried_again() -> None:
    results, go = CachedResults(), threading.Event()

    def broken() -> int:
        go.wait(10)
        raise ValueError("no memory")

    assert results.later("map", "1", broken) is None
    go.set()
    with pytest.raises(ValueError, match="no memory"):
        patiently(results, "map", "1", broken)
    assert patiently(results, "map", "1", lambda: 5) == 5


def test_only_a_few_wait() -> None:
    results, go, begun = CachedResults(), threading.Event(), []

    def slow() -> int:
        begun.append(1)
        go.wait(10)
        return 1

    for turn in range(3 * MOST_WAITING):
        assert results.later("duplicates", str(turn), slow) is None
    go.set()
    assert patiently(results, "map", "1", lambda: 7) == 7
    time.sleep(0.05)
    assert len(begun) <= MOST_WAITING
