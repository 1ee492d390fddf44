"""Large-margin nearest neighbours."""

from __future__ import annotations

import pytest
import torch

from vicinal.errors import InputError
from vicinal.objectives import lmnn


def test_by_hand() -> None:
    matrix = torch.tensor([[1.0, 3.0, 3.5, 1.5, 9.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    same = torch.tensor([[True, True, False, False, False], [False, False, False, False, False]])
    # pull 1 + 3; push 1 + 1 - 1.5 for the near positive, 1 + 3 - 3.5 and 1 + 3 - 1.5 for the far one
    assert lmnn(matrix, same, ~same, push=0.25).item() == pytest.approx(0.75 * 4 + 0.25 * (0.5 + 0.5 + 2.5))


def test_push_only_is_the_plain_relative_hinge() -> None:
    matrix = torch.tensor([[1.0, 1.5], [1.0, 3.0], [2.0, 1.0]])
    same = torch.tensor([[True, False]]).expand(3, -1)
    assert lmnn(matrix, same, ~same, push=1.0).item() == pytest.approx((0.5 + 0.0 + 2.0) / 3)


@pytest.mark.parametrize("push", [-0.1, 1.1])
def test_push_is_a_share(push: float) -> None:
    same = torch.tensor([[True, False]])
    with pytest.raises(InputError, match=rf"push must be from 0 .* to 1 .*; got {push}"):
        lmnn(torch.ones(1, 2), same, ~same, push=push)
