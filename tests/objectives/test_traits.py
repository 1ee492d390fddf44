"""What an objective declares, and the checks it gains."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from vicinal.errors import InputError
from vicinal.objectives import OBJECTIVES, multi_similarity, objective, options_of, traits_of
from vicinal.objectives.traits import EVERY_KIND
from vicinal.pairs import GEOMETRIES


def test_every_declaration_is_complete() -> None:
    for name, function in OBJECTIVES.items():
        traits = traits_of(function)
        assert traits is not None, name
        assert traits.geometry in GEOMETRIES
        assert traits.paper
        assert traits.usual in traits.references
        assert set(traits.references) <= set(EVERY_KIND)
        assert bool(traits.why_not) == (traits.references != EVERY_KIND)


def test_traits_pass_through_partial_and_not_through_plain_functions() -> None:
    assert traits_of(functools.partial(multi_similarity, threshold=0.3)) is traits_of(multi_similarity)
    assert traits_of(lambda matrix, positive, negative: matrix.sum()) is None


def test_options_are_what_a_person_may_set() -> None:
    assert options_of(OBJECTIVES["soft_triple"]) == {"scale": 20.0, "centre_temperature": 0.1, "margin": 0.01}


def test_a_declared_function_is_checked_and_widened() -> None:
    seen: list[Any] = []

    @objective(geometry="dot", paper="none")
    def loss(matrix: Tensor, positive: Tensor, negative: Tensor, *, margin: Any = 0.1, weight: Any = None) -> Tensor:
        seen.extend([matrix.dtype, (matrix @ matrix.T).dtype, getattr(weight, "dtype", None)])
        return matrix.sum()

    same = torch.tensor([[True, False]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss(torch.zeros(1, 2, dtype=torch.float16), same, ~same, weight=torch.zeros(1, dtype=torch.bfloat16))
    assert seen == [torch.float32] * 3
    with pytest.raises(InputError, match="loss: margin must be at least 0; got -1"):
        loss(torch.zeros(1, 2), same, ~same, margin=-1)
    loss(torch.zeros(1, 2), same, ~same, margin=torch.tensor(-1.0))  # learned: the optimiser moves it freely
