"""`check_objective`: what it accepts, what it finds, and what it prints."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vicinal.objectives import OBJECTIVES, objective
from vicinal.objectives.stable import mean
from vicinal.testing import check_objective

# proxy_gram correlates whole columns over the batch, whichever pairs mining keeps.
KEEPING = sorted(set(OBJECTIVES) - {"proxy_gram"})


@pytest.mark.parametrize("name", KEEPING)
def test_every_loss_of_vicinal_passes(name: str) -> None:
    check_objective(name, gradcheck=name != "circle", show=False)


def test_a_loss_that_weighs_pairs_outside_the_masks_is_found() -> None:
    with pytest.raises(AssertionError, match="proxy_gram fails:\n  - pairs in neither mask"):
        check_objective("proxy_gram", show=False)


@objective(geometry="cosine", paper="Author 2026")
def squared_hinge(matrix: Tensor, positive: Tensor, negative: Tensor, *, threshold: float = 0.3) -> Tensor:
    """Pull positives to 1, push negatives below a threshold."""
    return mean((1 - matrix).square(), positive) + mean((matrix - threshold).clamp_min(0.0).square(), negative)


def test_the_data_sheet_and_the_curve_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    check_objective(squared_hinge, threshold=0.0)
    said = capsys.readouterr().out
    assert "Pull positives to 1, push negatives below a threshold." in said
    assert "threshold = 0.3" in said
    assert "Author 2026" in said
    assert said.count(" ok\n") == 6
    pull, push = (line.split("|")[1] for line in said.splitlines() if "|" in line)
    assert pull[0] == "█"  # the farther a positive, the harder it is pulled
    assert pull[-1] == " "
    assert push[:20].strip() == ""  # below the threshold nothing is pushed
    assert push[-1] != " "


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda matrix, p, n: (1 - matrix)[p].mean(), "empty batch: without positives the value is nan"),
        (lambda matrix, p, n: (matrix * ~p).sum() - (matrix * p).sum(), "pairs in neither mask"),
        (lambda matrix, p, n: matrix.detach().where(n, 0.0).sum(), "it is zero everywhere"),
        (lambda matrix, p, n: matrix.where(n, 0.0)[0].sum() - matrix.where(p, 0.0).sum(), "order of items"),
        (lambda matrix, p, n: (matrix.detach() * matrix).where(n, 0.0).sum(), "not the derivative of the value"),
        (lambda matrix, p, n: torch.acos(matrix.where(p, 0.5)).sum(), "duplicates: with equal items"),
    ],
    ids=["empty", "masks", "constant", "order", "detached", "equal"],
)
def test_mistakes_are_found(loss: Callable[..., Tensor], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        check_objective(loss, show=False)


def test_a_loss_per_item_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"one number as a tensor of shape \[\]; got \[8\]"):
        check_objective(lambda matrix, p, n: matrix.sum(1), show=False)
