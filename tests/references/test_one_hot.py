"""The labels themselves as references."""

from __future__ import annotations

import pytest
import torch

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.objectives import proxy_anchor
from vicinal.references import OneHot

pytestmark = pytest.mark.unit


def test_products_with_the_labels_are_the_probabilities() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    view = OneHot(3)(x, torch.tensor([0, 1, 2, 0, 1]))
    assert torch.equal(x @ view.vectors.T, x)
    assert view.labels.tolist() == [0, 1, 2]
    assert view.itself is None


def test_nothing_is_learned_or_stored() -> None:
    references = OneHot(3)
    assert list(references.parameters()) == []
    assert references.state_dict() == {}


def test_other_losses_run_on_them_too() -> None:
    x = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]])
    same = torch.tensor([[True, False, False], [False, True, False]])
    found = Criterion("proxy_anchor", references=OneHot(3), geometry="dot")(x, torch.tensor([0, 1]))
    torch.testing.assert_close(found, proxy_anchor(x, same, ~same))


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ([[0.5, 0.5]], [0], "one-hot labels of 3 classes needs embeddings of 3 class probabilities; got 2 dimensions"),
        ([[1.5, -0.5, 0.0]], [0], r"1 of 1 rows \(first: \[0\]\) are negative somewhere or do not sum to 1"),
        ([[0.1, 0.1, 0.8], [0.6, 0.8, 0.0]], [0, 1], r"1 of 2 rows \(first: \[1\]\).*normalisation='softmax'"),
        ([[0.1, 0.1, 0.8]], [3], "Labels must be 0..2 for 3 classes; got 3..3"),
    ],
)
def test_what_is_no_probability_is_refused(rows: list[list[float]], labels: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OneHot(3)(torch.tensor(rows), torch.tensor(labels))


def test_one_class_is_refused() -> None:
    with pytest.raises(InputError, match="OneHot needs at least 2 classes; got 1"):
        OneHot(1)
