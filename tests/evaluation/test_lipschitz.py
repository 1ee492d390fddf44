"""Stretching: the bound against the spectral norm and against random pairs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from vicinal.errors import InputError
from vicinal.spaces.cover_bounds import lipschitz_constant

pytestmark = pytest.mark.unit


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_distance_is_stretched_by_more_than_the_constant(seed: int) -> None:
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, groups=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Sequential(nn.Conv2d(4, 3, 3, stride=2), nn.ReLU()),
        nn.Flatten(),
        nn.Linear(27, 5),
    ).eval()
    network[1].running_var.uniform_(0.2, 2.0)
    constant = lipschitz_constant(network)
    one, other = torch.randn(2, 16, 2, 14, 14)
    with torch.no_grad():
        stretched = (network(one) - network(other)).norm(dim=1) / (one - other).flatten(1).norm(dim=1)
    assert stretched.max() <= constant
    layer = network[6]
    assert torch.linalg.matrix_norm(layer.weight, 2) <= lipschitz_constant([layer]) * (1 + 1e-6)


def test_row_sums_alone_are_no_bound() -> None:
    layer = nn.Linear(1, 4, bias=False)
    nn.init.ones_(layer.weight)  # every row sums to 1, yet lengths double
    assert torch.linalg.matrix_norm(layer.weight, 2).item() == pytest.approx(2.0)
    assert lipschitz_constant([layer]) == pytest.approx(2.0)


def test_layers_without_a_bound_are_refused() -> None:
    with pytest.raises(InputError, match="a layer of type Softmax; pass linear maps"):
        lipschitz_constant([nn.Softmax(dim=1)])
    with pytest.raises(InputError, match="a layer of type MaxPool2d"):
        lipschitz_constant([nn.MaxPool2d(3, stride=1)])
