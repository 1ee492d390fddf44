"""Greedy k-Center, and a cover of the data as references."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.references import Cover, greedy_k_center


def radius(points: Tensor, chosen: list[int]) -> float:
    """The largest distance of a point to its nearest chosen one."""
    return max(min((point - points[c]).norm().item() for c in chosen) for point in points)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), b=st.integers(2, 8), d=st.integers(1, 3), tied=st.booleans())
def test_radius_is_at_most_twice_the_best(seed: int, b: int, d: int, tied: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(b, d, generator=generator, dtype=torch.float64)
    points = (2 * points).round() if tied else points
    before = float("inf")
    for k in range(1, b + 1):
        chosen = greedy_k_center(points[None], k)[0].tolist()
        found = radius(points, chosen)
        best = min(radius(points, list(subset)) for subset in itertools.combinations(range(b), k))
        assert found <= 2 * best + 1e-12
        assert found <= before
        before = found
    assert before == 0


def test_each_pick_is_the_farthest_from_all_before() -> None:
    generator = torch.Generator().manual_seed(0)
    pool = torch.randn(3, 9, 4, generator=generator)
    picks = greedy_k_center(pool, 5)
    for points, chosen in zip(pool, picks.tolist(), strict=True):
        assert chosen[0] == points.norm(dim=1).argmax()
        for count in range(1, 5):
            gaps = torch.cdist(points, points[chosen[:count]]).amin(1)
            assert chosen[count] == gaps.argmax()
        assert len(set(chosen)) == 5


def test_centres_count_as_picked_already() -> None:
    pool = torch.tensor([[[0.0], [4.0], [10.0]], [[0.0], [4.0], [10.0]]])
    centres = torch.tensor([[[9.0], [9.5]], [[0.0], [1.0]]])
    assert greedy_k_center(pool, 2, centres=centres).tolist() == [[0, 1], [2, 1]]


def test_invalid_candidates_are_never_picked() -> None:
    pool = torch.tensor([[[0.0], [100.0], [3.0], [7.0]]])
    valid = torch.tensor([[True, False, True, True]])
    assert greedy_k_center(pool, 3, valid=valid).tolist() == [[3, 0, 2]]
    # More wanted than there are: picks repeat, but only valid ones.
    assert set(greedy_k_center(pool, 6, valid=valid)[0].tolist()) == {0, 2, 3}
    far = torch.tensor([[[50.0]]])
    assert 1 not in greedy_k_center(pool, 6, valid=valid, centres=far)[0].tolist()


def test_bad_pools() -> None:
    pool = torch.zeros(2, 3, 1)
    with pytest.raises(InputError, match="k of at least 1 and a candidate in each pool; got k=0, b=3"):
        greedy_k_center(pool, 0)
    with pytest.raises(InputError, match="got k=1, b=0"):
        greedy_k_center(pool[:, :0], 1)
    valid = torch.tensor([[True, False, False], [False, False, False]])
    with pytest.raises(InputError, match=r"1 pools have no valid candidate \(first: \[1\]\)"):
        greedy_k_center(pool, 1, valid=valid)


def test_a_cover_is_chosen_class_by_class_and_then_far_from_itself() -> None:
    cover = Cover(2, 1, per_class=2)
    cover.choose(torch.tensor([[[1.0], [2.0], [9.0]], [[-5.0], [0.0], [0.0]]]))
    assert cover.vectors.flatten().tolist() == [9.0, 1.0, -5.0, 0.0]
    assert cover.labels.tolist() == [0, 0, 1, 1]
    cover.choose(torch.tensor([[[1.0], [5.0], [9.0]], [[-5.0], [-2.0], [0.0]]]))
    assert cover.vectors.flatten()[0] == 5.0
    assert cover.vectors.flatten()[2] == -2.0


def test_a_cover_is_fixed_and_gradients_reach_embeddings() -> None:
    cover = Cover(2, 3)
    cover.choose(torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)))
    criterion = Criterion("proxy_anchor", references=cover)
    assert list(criterion.parameters()) == []
    embeddings = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    criterion(embeddings, torch.tensor([0, 1, 0, 1])).backward()
    assert embeddings.grad.any()
    restored = Criterion("proxy_anchor", references=Cover(2, 3))
    restored.load_state_dict(criterion.state_dict())
    assert torch.equal(
        restored(embeddings, torch.tensor([0, 1, 0, 1])), criterion(embeddings, torch.tensor([0, 1, 0, 1]))
    )


def test_cover_refuses_what_does_not_fit() -> None:
    cover = Cover(2, 3)
    with pytest.raises(InputError, match=r"This Cover has no points yet; call cover\.choose\(pool\)"):
        cover(torch.zeros(1, 3), torch.tensor([0]))
    with pytest.raises(InputError, match=r"The pool must be \[2 classes, candidates, 3 dimensions\]; got \[3, 4, 3\]"):
        cover.choose(torch.zeros(3, 4, 3))
    cover.choose(torch.randn(2, 4, 3))
    with pytest.raises(InputError, match=r"Labels must be 0\.\.1 for 2 classes; got 0\.\.2"):
        cover(torch.zeros(2, 3), torch.tensor([0, 2]))
    with pytest.raises(InputError, match=r"Cover needs classes, dim and per_class of at least 1; got \(2, 3, 0\)"):
        Cover(2, 3, per_class=0)
