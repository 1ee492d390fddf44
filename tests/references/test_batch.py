"""The batch itself as references."""

from __future__ import annotations

import torch

from vicinal.criterion import Criterion
from vicinal.pairs import masks
from vicinal.references import Batch


def test_everything_but_oneself() -> None:
    embeddings, labels = torch.randn(4, 2), torch.tensor([2**40, 5, 2**40, 2**40 + 1])
    view = Batch()(embeddings, labels)
    assert view.vectors is embeddings
    assert view.labels is labels
    positive, negative = masks(labels, view.labels, view.itself)
    assert positive.nonzero().tolist() == [[0, 2], [2, 0]]
    assert negative.sum() == 4 * 4 - 4 - 2
    assert not negative.diagonal().any()


def test_copies_of_an_item_are_not_compared() -> None:
    labels = torch.tensor([0, 0, 0])
    view = Batch()(torch.randn(3, 2), labels, torch.tensor([7, 8, 7]))
    assert view.itself.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    # Even under two labels, as when labels are noisy or come from clustering, an item is not its own negative.
    _, negative = masks(torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1]), view.itself)
    assert negative.nonzero().tolist() == [[1, 2], [2, 1]]


def test_ids_reach_the_loss() -> None:
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([0, 0, 1])
    criterion = Criterion("contrastive")
    assert criterion(embeddings, labels) == -2 / 3
    assert criterion(embeddings, labels, ids=torch.tensor([4, 4, 5])) == 0
