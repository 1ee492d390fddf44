"""Terms on embeddings or references alone."""

from __future__ import annotations

import math

import pytest
import torch

from vicinal.errors import InputError
from vicinal.objectives import centre_merging, embedding_norm


def test_embedding_norm_by_hand() -> None:
    embeddings = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]], requires_grad=True)
    loss = embedding_norm(embeddings)
    loss.backward()
    assert loss.item() == pytest.approx(2)
    torch.testing.assert_close(embeddings.grad, torch.tensor([[0.2, 0.8 / 3], [0, 0], [0, 1 / 3]]))
    assert embedding_norm(torch.zeros(0, 3)) == 0


def test_centre_merging_by_hand() -> None:
    centres = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    # class 0: two right angles and a straight one; class 1: three centres that coincide, sqrt(1e-5) apart
    expected = (2 * math.sqrt(2) + 2 + 3 * math.sqrt(1e-5)) / (2 * 3 * 2)
    assert centre_merging(centres, torch.tensor([0, 0, 0, 1, 1, 1])).item() == pytest.approx(expected, rel=1e-4)


def test_one_centre_per_class_has_nothing_to_merge() -> None:
    centres = torch.randn(3, 2, requires_grad=True)
    loss = centre_merging(centres, torch.arange(3))
    loss.backward()
    assert loss == 0
    assert not centres.grad.any()


def test_centres_that_coincide_have_finite_gradients() -> None:
    centres = torch.ones(4, 2, requires_grad=True)
    centre_merging(centres, torch.tensor([0, 0, 1, 1])).backward()
    assert centres.grad.isfinite().all()


@pytest.mark.parametrize("labels", [[0, 0, 1], [0, 0, 0, 1], [0, 1, 0, 1]])
def test_classes_must_be_equal_and_in_order(labels: list[int]) -> None:
    with pytest.raises(InputError, match="centre_merging needs the same number of references for every class"):
        centre_merging(torch.randn(len(labels), 2), torch.tensor(labels))
