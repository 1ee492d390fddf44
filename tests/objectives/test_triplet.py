"""Triplet loss over all triplets without listing one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, losses, miners
from torch import Tensor

from vicinal.criterion import Criterion
from vicinal.errors import UnknownName
from vicinal.objectives import triplet
from vicinal.objectives.triplet import violated_triplets

KINDS = ("all", "semi_hard", "hard")


def brute_force(
    matrix: Tensor, positive: Tensor, negative: Tensor, margin: float, which: str
) -> tuple[float, Tensor, int]:
    """Value, gradient and number of violated triplets, by visiting every triplet."""
    rows, P, N = matrix.tolist(), positive.tolist(), negative.tolist()
    total, count, gradient = 0.0, 0, torch.zeros_like(matrix)
    for a, row in enumerate(rows):
        for p, near in enumerate(row):
            for k, far in enumerate(row):
                wanted = which == "all" or (near < far) == (which == "semi_hard")
                if P[a][p] and N[a][k] and wanted and near - far + margin > 0:
                    total += near - far + margin
                    count += 1
                    gradient[a, p] += 1
                    gradient[a, k] -= 1
    return total / max(count, 1), gradient / max(count, 1), count


def test_by_hand() -> None:
    matrix = torch.tensor([[0.5, 0.7, 0.4, 0.55, 0.9]])
    same = torch.tensor([[True, True, False, False, False]])
    # violated by 0.1: 0.5-0.4 -> 0.2, 0.5-0.55 -> 0.05, 0.7-0.4 -> 0.4, 0.7-0.55 -> 0.25
    assert triplet(matrix, same, ~same).item() == pytest.approx(0.9 / 4)
    assert triplet(matrix, same, ~same, which="semi_hard").item() == pytest.approx(0.05)
    assert triplet(matrix, same, ~same, which="hard").item() == pytest.approx(0.85 / 3)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 6),
    m=st.integers(1, 8),
    levels=st.integers(1, 9),
    margin=st.sampled_from([0.0, 0.125, 0.5]),
    which=st.sampled_from(KINDS),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_equals_brute_force_with_ties(
    seed: int, n: int, m: int, levels: int, margin: float, which: Any, dtype: torch.dtype
) -> None:
    """Distances are eighths, so that sums are exact, ties are many and gaps often equal the margin."""
    generator = torch.Generator().manual_seed(seed)
    matrix = (torch.randint(levels, (n, m), generator=generator) / 8).to(dtype).requires_grad_()
    kind = torch.randint(3, (n, m), generator=generator)
    value, gradient, count = brute_force(matrix.detach(), kind == 0, kind == 1, margin, which)
    loss = triplet(matrix, kind == 0, kind == 1, margin=margin, which=which)
    loss.backward()
    assert loss.item() == pytest.approx(value, rel=1e-6, abs=1e-6)
    torch.testing.assert_close(matrix.grad, gradient)
    _, per_positive, per_negative = violated_triplets(matrix, kind == 0, kind == 1, margin, which)
    assert per_positive.sum() == per_negative.sum() == count
    assert (per_positive >= 0).all()


@pytest.mark.parametrize("which", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_equals_brute_force_on_distances(which: Any, seed: int) -> None:
    """Random embeddings, each of them three times: many distances are exactly equal."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(6, 3, generator=generator, dtype=torch.float64).repeat(3, 1)
    labels = torch.randint(3, (18,), generator=generator)
    matrix = (points[:, None] - points[None]).norm(dim=2)
    same = labels[:, None] == labels
    positive = same & ~torch.eye(18, dtype=torch.bool)
    value, gradient, _ = brute_force(matrix, positive, ~same, 0.3, which)
    loss = triplet(matrix.requires_grad_(), positive, ~same, margin=0.3, which=which)
    loss.backward()
    assert loss.item() == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(matrix.grad, gradient)


def test_hard_and_semi_hard_part_all(pairs: Any) -> None:
    drawn = pairs("triplet", "batch")
    counts = {which: violated_triplets(drawn.matrix, drawn.positive, drawn.negative, 0.2, which)[2] for which in KINDS}
    assert torch.equal(counts["all"], counts["hard"] + counts["semi_hard"])
    assert counts["hard"].any()
    assert counts["semi_hard"].any()


def test_similarities_through_cosine_distance(batch: Any) -> None:
    embeddings, labels = batch
    loss = Criterion("triplet", geometry="cosine_distance", margin=0.2)(embeddings, labels)
    s = torch.nn.functional.cosine_similarity(embeddings[:, None], embeddings[None], dim=2)
    same = labels[:, None] == labels
    triplets = (same & ~torch.eye(30, dtype=torch.bool))[:, :, None] & ~same[:, None, :]
    hinges = (s[:, None, :] - s[:, :, None] + 0.2)[triplets]
    torch.testing.assert_close(loss, hinges[hinges > 0].mean())


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_kind_of_triplets() -> None:
    same = torch.tensor([[True, False]])
    with pytest.raises(UnknownName, match=r"Unknown kind of triplets 'semihard'; did you mean 'semi_hard'\?"):
        triplet(torch.zeros(1, 2), same, ~same, which="semihard")


@pytest.mark.peer
@pytest.mark.parametrize("margin", [0.1, 0.5])
def test_peer_all(same_as_peer: Any, batch: Any, margin: float) -> None:
    same_as_peer(Criterion("triplet", margin=margin), losses.TripletMarginLoss(margin=margin), *batch)
    cosine = losses.TripletMarginLoss(margin=margin, distance=distances.CosineSimilarity())
    same_as_peer(Criterion("triplet", margin=margin, geometry="cosine_distance"), cosine, *batch)


@pytest.mark.peer
@pytest.mark.parametrize("which", ["semi_hard", "hard"])
def test_peer_mined(same_as_peer: Any, batch: Any, which: str) -> None:
    """The peer's window includes triplets exactly at the margin; their loss is zero and its mean leaves them out."""
    mine = miners.TripletMarginMiner(margin=0.2, type_of_triplets=which.replace("_", ""))
    loss = losses.TripletMarginLoss(margin=0.2)
    ours = Criterion("triplet", margin=0.2, which=which)
    same_as_peer(ours, lambda x, y: loss(x, y, mine(x.detach(), y)), *batch)


@pytest.mark.peer
def test_peer_batch_hard(same_as_peer: Any, batch: Any) -> None:
    mine, loss = miners.BatchHardMiner(), losses.TripletMarginLoss(margin=0.2)
    ours = Criterion("triplet", margin=0.2, mining="hard")
    same_as_peer(ours, lambda x, y: loss(x, y, mine(x.detach(), y)), *batch)
