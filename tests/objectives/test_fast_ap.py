"""FastAP: average precision through a soft histogram."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import fast_ap


def test_by_hand() -> None:
    matrix = torch.tensor([[0.0, 2.0, 1.0, 4.0]])
    same = torch.tensor([[True, True, False, False]])
    # four bins on 0..4: positives at edges 0 and 2, a negative at 1; precision 1/1 and 2/3
    assert fast_ap(matrix, same, ~same, bins=4).item() == pytest.approx(1 - (1 + 2 / 3) / 2)


def test_between_edges_a_distance_counts_for_both() -> None:
    matrix = torch.tensor([[0.5, 0.0]])
    same = torch.tensor([[True, False]])
    # half at edge 0 beside the negative: 0.5 * 0.5/1.5; half at edge 1: 0.5 * 1/2
    assert fast_ap(matrix, same, ~same, bins=4).item() == pytest.approx(1 - (0.5 / 3 + 0.25))


def test_distances_beyond_the_largest_count_as_last() -> None:
    same = torch.tensor([[True, False]])
    beyond, last = (fast_ap(torch.tensor([[1.0, far]]), same, ~same) for far in (9.0, 4.0))
    assert beyond == last


@pytest.mark.peer
@pytest.mark.parametrize("bins", [10, 5])
def test_peer(same_as_peer: Any, batch: Any, bins: int) -> None:
    """Both leave the anchor itself out of its ranking."""
    same_as_peer(Criterion("fast_ap", bins=bins), losses.FastAPLoss(num_bins=bins), *batch)
