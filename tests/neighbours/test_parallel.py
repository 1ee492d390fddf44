"""Blocks of work side by side."""

from __future__ import annotations

import threading

import pytest
import torch

from vicinal.neighbours.threads import side_by_side

pytestmark = pytest.mark.unit


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3, "the number of threads was not given back"
    torch.set_num_threads(before)


def test_results_come_in_order_from_several_threads_of_one_core_each(three_threads):
    meet = threading.Barrier(3, timeout=30)

    def work(item: int) -> tuple[int, int]:
        meet.wait()
        return item, torch.get_num_threads()

    assert side_by_side(work, range(3)) == [(0, 1), (1, 1), (2, 1)]


def test_an_error_ends_the_work_that_has_not_begun(three_threads):
    begun = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise ZeroDivisionError
        threading.Event().wait(0.02)

    with pytest.raises(ZeroDivisionError):
        side_by_side(work, range(1000))
    assert len(begun) < 500


def test_nothing_to_do(three_threads):
    assert side_by_side(str, []) == []


def test_threads_share_the_inference_mode_of_their_caller():
    with torch.inference_mode():
        found = torch.zeros(4)

        def write(place):
            found[place] = place

        side_by_side(write, range(4))
    assert found.tolist() == [0, 1, 2, 3]
    assert not any(side_by_side(lambda _: torch.is_inference_mode_enabled(), range(4)))
