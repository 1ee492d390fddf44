"""Circle loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses

from vicinal.criterion import Criterion
from vicinal.objectives import circle


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 0.4, 0.0], [0.5, 0.4, 0.0]])
    same = torch.tensor([[True, False, False], [False, False, False]])
    # a_p = 0.9, a_n = 0.8 and 0.4: exponents -10 * 0.9 * (-0.1), 0 and 10 * 0.4 * (-0.4); anchor 2 has no positive
    expected = math.log(1 + math.exp(0.9) * (1 + math.exp(-1.6)))
    assert circle(matrix, same, ~same, scale=10.0).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["batch", "proxies"])
@pytest.mark.parametrize("options", [{"margin": 0.4, "scale": 80.0}, {"margin": 0.25, "scale": 10.0}])
def test_gradient_in_closed_form(pairs: Any, kind: str, options: dict[str, float]) -> None:
    """Per anchor: sigmoid(pull + push) times the soft-max share of a pair times the scale times its factor.

    The factors a_p and a_n are constants to the gradient, as in the paper, so differences of values do not give it.
    """
    drawn = pairs("circle", kind)
    m, z = options["margin"], options["scale"]
    usable = int((drawn.positive.any(1) & drawn.negative.any(1)).sum())
    expected = torch.zeros_like(drawn.matrix)
    for i, row in enumerate(drawn.matrix):
        P, N = drawn.positive[i].nonzero().flatten(), drawn.negative[i].nonzero().flatten()
        if len(P) and len(N):
            a_p, a_n = (1 + m - row[P]).clamp_min(0), (row[N] + m).clamp_min(0)
            pull, push = -z * a_p * (row[P] - 1 + m), z * a_n * (row[N] - m)
            share = torch.sigmoid(pull.logsumexp(0) + push.logsumexp(0)) / usable
            expected[i, P] = -share * pull.softmax(0) * z * a_p
            expected[i, N] = share * push.softmax(0) * z * a_n
    drawn.matrix.requires_grad_()
    (found,) = torch.autograd.grad(drawn.loss("circle", **options), drawn.matrix)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.peer
@pytest.mark.parametrize("scale", [80.0, 8.0])
def test_peer(same_as_peer: Any, batch: Any, scale: float) -> None:
    same_as_peer(Criterion("circle", scale=scale), losses.CircleLoss(m=0.4, gamma=scale), *batch)
